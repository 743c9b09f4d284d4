"""The live part of the demo's page on a terminal."""

from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hatcast.agents.demo import texts
from hatcast.agents.demo.state import State
from hatcast.stream.records import ReleaseRecord

_ROWS_MIN: Final = 8
_ROWS_MAX: Final = 16
_OTHER_LINES: Final = 20  # of the page without the rows, with the introduction above it
_SUPPRESSED_ROWS: Final = 2
_STRIP_WIDTH: Final = 24
_SHORT_STRIP: Final = 10  # beside the groups of a hybrid policy, or a running mean
_BAR_WIDTH: Final = 40
_WIDE: Final = 76  # columns, with a running mean


def page(state: State, width: int, height: int) -> RenderableType:
    """Return the live part for a terminal of the given size."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    facts.add_row("clock", texts.clock_line(state))
    facts.add_row("readings", texts.outcome_line(state.outcomes))
    if state.policy.takes_reports:
        facts.add_row("reports", texts.outcome_line(state.report_outcomes))
    facts.add_row(*_budget(state, min(_BAR_WIDTH, width - 45)))
    if state.policy.queries:
        facts.add_row("queries", texts.queries_line(state))
    rows = max(_ROWS_MIN, min(_ROWS_MAX, height - _OTHER_LINES))
    table = releases_table(state, rows) if state.policy.tracker is None else estimates_table(state, rows, width)
    return Group(facts, Text(), table, _hours(state))


def releases_table(state: State, rows: int) -> Table:
    """Return a table of the latest releases, newest slot first, with at most a few suppressed ones."""
    top = state.policy.upper_bound / 1000
    is_hybrid = state.policy.takes_reports
    width = _SHORT_STRIP if is_hybrid else _STRIP_WIDTH
    table = _table("mean km/h" if state.policy.continual is None else "running mean km/h", top, width)
    if is_hybrid:
        table.padding = (0, 1)
        table.add_column("users", justify="right", no_wrap=True)
        table.add_column("weights", no_wrap=True)
    for release in _shown_releases(state, rows):
        when = f"{texts.day(release.date)} {release.slot}"
        if release.mean is None:
            table.add_row(when, release.cell, Text(texts.mean(release)), style="dim")
        else:
            strip = Text(noise_strip(release.mean, texts.spread(release), top, width), style="cyan")
            table.add_row(when, release.cell, texts.mean(release), strip, *_groups(release))
    for _ in range(rows - table.row_count):
        table.add_row()
    return table


def _groups(release: ReleaseRecord) -> Iterator[str]:
    """Yield users and weights of both groups of a hybrid policy's release."""
    if release.users is not None and release.weight is not None:
        yield f"{release.users.central:,}+{release.users.local:,}"
        yield f"{release.weight:.2f}+{1 - release.weight:.2f}"


def estimates_table(state: State, rows: int, columns: int) -> Table:
    """Return a table of each hexagon's newest estimate, by hexagon, so that rows stay where they are.

    A terminal of enough columns has the policy's first running mean beside it.
    """
    top = state.policy.upper_bound / 1000
    shown = next(iter(state.policy.running), None) if columns >= _WIDE else None
    table = _table("road km/h", top, _STRIP_WIDTH if shown is None else _SHORT_STRIP)
    if shown is not None:
        table.add_column(texts.running_name(state.policy, shown.name), justify="right", no_wrap=True)
    for cell in sorted(state.estimates)[:rows]:
        each = state.estimates[cell]
        width = _STRIP_WIDTH if shown is None else _SHORT_STRIP
        strip = Text(noise_strip(each.road.value, texts.half_width(each), top, width), style="cyan")
        more = [] if shown is None else [texts.running(state.running.get(shown.name, {}).get(cell))]
        style = "dim" if each.stage == "predicted" else ""
        table.add_row(f"{texts.day(each.date)} {each.slot}", cell, texts.road(each), strip, *more, style=style)
    for _ in range(rows - table.row_count):
        table.add_row()
    return table


def answers_table(state: State) -> Table:
    """Return a table of the answers to queries over days: the first ones by query, slot and hexagon."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    for heading in ("query", "days", "slot", "hexagon (H3)", "answer"):
        table.add_column(heading, no_wrap=True)
    ordered = sorted(state.answers.values(), key=lambda each: (each.query, each.date, each.slot, each.cell))
    # A released answer says more than one that was suppressed.
    ordered.sort(key=lambda each: each.mean is None)
    for each in ordered[:_ROWS_MAX]:
        table.add_row(each.query, texts.period(each), each.slot, each.cell, texts.answer(each))
    if len(ordered) > _ROWS_MAX:
        table.add_row(f"and {len(ordered) - _ROWS_MAX:,} more", style="dim")
    return table


def _table(value: str, top: float, width: int = _STRIP_WIDTH) -> Table:
    """Return an empty table. value: heading of its third column; top: the end of the scale, km/h; width: of it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("slot", no_wrap=True)
    table.add_column("hexagon (H3)", no_wrap=True)
    table.add_column(value, justify="right", no_wrap=True)
    table.add_column(f"0{f'{top:g}':>{width - 1}}", no_wrap=True)
    return table


def _shown_releases(state: State, rows: int) -> list[ReleaseRecord]:
    """Return the rows of the table: newest slot first, each slot by hexagon, so that rows stay where they are."""
    newest = sorted(state.latest, key=lambda release: release.cell)
    newest.sort(key=lambda release: (release.date, release.slot), reverse=True)
    without_mean = [release for release in newest if release.mean is None][:_SUPPRESSED_ROWS]
    with_mean = [release for release in newest if release.mean is not None][: rows - len(without_mean)]
    return with_mean + without_mean


def noise_strip(mean: float, spread: float, top: float, width: int = _STRIP_WIDTH) -> str:
    """Return the noise interval as a line on the scale 0..top km/h, with the mean as a dot."""

    def column(speed: float) -> int:
        return min(width - 1, max(0, int(speed / top * width)))

    low, dot, high = column(mean - spread), column(mean), column(mean + spread)
    return "".join("●" if at == dot else "─" if low <= at <= high else " " for at in range(width))


def _budget(state: State, width: int) -> Iterator[RenderableType]:
    budget = state.budget
    yield "budget"
    if budget is None:
        yield "nothing spent yet"
        return
    bar = Table.grid(padding=(0, 1))
    left = f"{budget.largest:.3g} of {budget.limit:g}"
    bar.add_row(texts.day(budget.date), ProgressBar(budget.limit, budget.largest, width=max(8, width)), left)
    yield bar


def _hours(state: State) -> Text:
    """Return the counts of the two latest slots."""
    parts = [
        f"{texts.day(hour[:10])} {hour[11:]}: {texts.status_counts(counts)}"
        for hour, counts in sorted(state.hours.items())[-2:]
    ]
    return Text("   ".join(parts) or "the first means come when the first slot is final", style="dim")
