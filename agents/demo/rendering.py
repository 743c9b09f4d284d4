"""Views of the demo: a live table on a terminal, plain lines elsewhere, JSON for programs."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from hatcast.agents.demo import texts
from hatcast.agents.demo.introduction import introduction
from hatcast.agents.demo.observer import RecordListener
from hatcast.agents.demo.state import Began, DemoState
from hatcast.agents.tables.terminal import read_shown, record_line, table
from hatcast.stream.records import EstimateRecord, QueryRecord, ReleaseRecord, RunningRecord

_ROWS_MIN: Final = 8
_ROWS_MAX: Final = 16
_OTHER_LINES: Final = 20  # of the page without the rows, with the introduction above it
_SUPPRESSED_ROWS: Final = 2
_STRIP_WIDTH: Final = 24
_SHORT_STRIP: Final = 10  # beside the groups of a hybrid policy, or a running mean
_BAR_WIDTH: Final = 40
_WIDE: Final = 76  # columns, with a running mean


def page(state: DemoState, width: int, height: int) -> RenderableType:
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
    shown = estimates_table(state, rows, width) if state.policy.method.settles_days else releases_table(state, rows)
    return Group(facts, Text(), shown, _hours(state))


def releases_table(state: DemoState, rows: int) -> Table:
    """Return a table of the latest releases, newest slot first, with at most a few suppressed ones."""
    top, is_hybrid = state.policy.upper_bound / 1000, state.policy.takes_reports
    width = _SHORT_STRIP if is_hybrid else _STRIP_WIDTH

    def row_of(release: ReleaseRecord) -> tuple[RenderableType, ...]:
        when = f"{texts.day(release.date)} {release.slot}"
        if release.mean is None:
            return when, release.cell, Text(texts.mean(release), "dim")
        strip = Text(noise_strip(release.mean, texts.spread(release), top, width), style="cyan")
        return when, release.cell, texts.mean(release), strip, *_groups(release)

    kind = "Running means" if state.policy.method.has_horizons else "Means"
    further = (Column("users", justify="right"), "weights") if is_hybrid else ()
    return _table(kind, state, map(row_of, _shown_releases(state, rows)), rows, width, further)


def _groups(release: ReleaseRecord) -> Iterator[str]:
    """Yield users and weights of both groups of a hybrid policy's release."""
    if release.users is not None and release.weight is not None:
        yield f"{release.users.central:,}+{release.users.local:,}"
        yield f"{release.weight:.2f}+{1 - release.weight:.2f}"


def estimates_table(state: DemoState, rows: int, columns: int) -> Table:
    """Return a table of each hexagon's newest estimate, by hexagon, so that rows stay where they are.

    A terminal of enough columns has the policy's first running mean beside it.
    """
    top = state.policy.upper_bound / 1000
    shown = next(iter(state.policy.running), None) if columns >= _WIDE else None
    width = _STRIP_WIDTH if shown is None else _SHORT_STRIP

    def row_of(cell: str) -> tuple[RenderableType, ...]:
        each = state.estimates[cell]
        strip = Text(noise_strip(texts.headline(each).value, texts.half_width(each), top, width), style="cyan")
        more = [] if shown is None else [texts.running(state.running.get(shown.name, {}).get(cell))]
        mean = Text(texts.estimate(each), "" if each.mean is not None else "dim")
        return f"{texts.day(each.date)} {each.slot}", cell, mean, strip, *more

    running = () if shown is None else (Column(texts.running_name(state.policy, shown.name), justify="right"),)
    found = map(row_of, sorted(state.estimates)[:rows])
    return _table("Means of all readings", state, found, rows, width, running)


def answers_table(state: DemoState) -> Table:
    """Return a table of the answers to queries over days: the first ones by query, slot and hexagon."""
    ordered = sorted(state.answers.values(), key=lambda each: (each.query, each.date, each.slot, each.cell))
    # A released answer says more than one that was suppressed.
    ordered.sort(key=lambda each: each.mean is None)
    rows = [(each.query, texts.period(each), each.slot, each.cell, texts.answer(each)) for each in ordered[:_ROWS_MAX]]
    more = f"and {len(ordered) - _ROWS_MAX:,} more" if len(ordered) > _ROWS_MAX else ""
    headings = [Column(name, no_wrap=True) for name in ("query", "days", "slot", "hexagon (H3)", "answer")]
    return table("Answers to queries over days", more, headings, rows)


def _table(
    title: str,
    state: DemoState,
    found: Iterable[Sequence[RenderableType]],
    rows: int,
    width: int,
    further: Sequence[str | Column],
) -> Table:
    """Return a table of means with a fixed number of rows, so that the text below it does not move.

    width     of the strip
    further   headings of the columns after it
    """
    top = f"{state.policy.upper_bound / 1000:g}"
    names = ("slot", "hexagon (H3)", Column("mean", justify="right", no_wrap=True), f"0{top:>{width - 1}}", *further)
    headings = [each if isinstance(each, Column) else Column(each, no_wrap=True) for each in names]
    shown = table(f"{title}, {state.policy.quantity}, {state.policy.released_value.unit}", "", headings, found)
    shown.show_edge = False  # its lines are few
    for _ in range(rows - shown.row_count):
        shown.add_row()
    return shown


def _shown_releases(state: DemoState, rows: int) -> list[ReleaseRecord]:
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


def _budget(state: DemoState, width: int) -> Iterator[RenderableType]:
    budget = state.budget
    yield "budget"
    if budget is None:
        yield "nothing spent yet"
        return
    bar = Table.grid(padding=(0, 1))
    left = f"{budget.largest:.3g} of {budget.limit:g}"
    bar.add_row(texts.day(budget.date), ProgressBar(budget.limit, budget.largest, width=max(8, width)), left)
    yield bar


def _hours(state: DemoState) -> Text:
    """Return the counts of the two latest slots."""
    parts = [
        f"{texts.day(hour[:10])} {hour[11:]}: {texts.status_counts(counts)}"
        for hour, counts in sorted(state.hours.items())[-2:]
    ]
    return Text("   ".join(parts) or "the first means come when the first slot is final", style="dim")


_STARTING: Final = "starting Kafka, Redis and a worker; the first means come in about ten seconds ..."


class DemoView(RecordListener):
    """Output of the demo while it runs. Subclasses override the methods that they need; these do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, state: DemoState, began: Began) -> None:
        """Print the introduction: the feed has started."""

    def refresh(self, state: DemoState) -> None:
        """Update the display; called regularly."""

    def note(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def end(self, state: DemoState, seconds: float) -> None:
        """Print the summary: the demo has stopped."""


class Json(DemoView):
    """Prints the original records, one per line, and nothing else."""

    def release(self, release: ReleaseRecord, record: bytes, state: DemoState) -> None:
        """Print the record."""
        _print_record(record)

    def answer(self, answer: QueryRecord, record: bytes, state: DemoState) -> None:
        """Print the record."""
        _print_record(record)

    def note(self, sentence: str) -> None:
        """Print to standard error."""
        click.echo(sentence, err=True)


def _print_record(record: bytes) -> None:
    sys.stdout.buffer.write(record + b"\n")
    sys.stdout.buffer.flush()


class Lines(DemoView):
    """Prints one line per release, for pipes and files; ASCII, which every reader can show."""

    def __init__(self) -> None:
        self._open_slots: set[str] = set()

    def begin(self, state: DemoState, began: Began) -> None:
        """Print the introduction."""
        rows = introduction(state, began)
        self._print(f"{word:<10}  {text}".replace("±", "+-") for word, text in rows)

    def release(self, release: ReleaseRecord, record: bytes, state: DemoState) -> None:
        """Print the release; those of a tracker are shown as estimates."""
        self._open_slots.add(f"{release.date}/{release.slot}")
        if not state.policy.method.settles_days:
            self._print_record(release)

    def answer(self, answer: QueryRecord, record: bytes, state: DemoState) -> None:
        """Print the answer."""
        self._print_record(answer)

    def estimate(self, estimate: EstimateRecord, state: DemoState) -> None:
        """Print the estimate of a tracker."""
        if state.policy.method.settles_days:
            self._print_record(estimate)

    def settled(self, date: str, state: DemoState) -> None:
        """Print that the day is settled."""
        self._print([f"-- {texts.settled_line(date)}"])

    def refresh(self, state: DemoState) -> None:
        """Print the counts of each slot that a later slot follows."""
        self._print_counts(sorted(self._open_slots)[:-1], state)

    def note(self, sentence: str) -> None:
        """Print the sentence."""
        self._print([sentence])

    def end(self, state: DemoState, seconds: float) -> None:
        """Print the counts of the last slots, the newest running means, and the summary."""
        self._print_counts(sorted(self._open_slots), state)
        self._print_running(state)
        self._print(texts.summary(state, seconds))

    def _print_counts(self, slots: Sequence[str], state: DemoState) -> None:
        for slot in slots:
            self._open_slots.remove(slot)
            budget = state.budgets.get(slot[:10])
            spent = "" if budget is None else f"; {texts.budget_line(budget)}"
            self._print([f"-- {slot.replace('/', ' ')}: {texts.status_counts(state.hours[slot])}{spent}"])

    def _print_running(self, state: DemoState) -> None:
        """Print the newest running means that have a number, each name with its hexagons."""
        for keys in state.policy.running:
            known = [each for _, each in sorted(state.running.get(keys.name, {}).items()) if each.mean is not None]
            if known:
                self._print([f"-- running means, {texts.running_name(state.policy, keys.name)}:"])
            for each in known:
                self._print_record(each)

    def _print_record(self, record: ReleaseRecord | QueryRecord | EstimateRecord | RunningRecord) -> None:
        """Print a record as `hatcast tail` does."""
        self._print([record_line(read_shown(msgspec.json.encode(record))).plain])

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            click.echo(line)


class Screen(DemoView):
    """Shows a live table on a terminal, which each refresh draws from the state."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text(_STARTING), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, state: DemoState, began: Began) -> None:
        """Print the introduction above the live part."""
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="bold", no_wrap=True)
        rows.add_column()
        for word, text in introduction(state, began):
            rows.add_row(word, text)
        self._live.console.print(Text("hatcast demo", style="bold"), rows, Text("Ctrl-C ends it.\n", style="dim"))

    def settled(self, date: str, state: DemoState) -> None:
        """Print above the live part that the day is settled."""
        self._live.console.print(texts.settled_line(date), highlight=False, markup=False)

    def refresh(self, state: DemoState) -> None:
        """Draw the live part."""
        self._live.update(page(state, self._console.width, self._console.height), refresh=True)

    def note(self, sentence: str) -> None:
        """Print the sentence above the live part."""
        self._live.console.print(sentence, highlight=False, markup=False)

    def end(self, state: DemoState, seconds: float) -> None:
        """Leave the last table on the screen and print the summary below it."""
        self.refresh(state)
        self._live.stop()
        if state.answers:
            self._console.print(answers_table(state))
        self._console.print(*texts.summary(state, seconds), sep="\n", highlight=False, markup=False, soft_wrap=True)
