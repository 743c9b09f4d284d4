"""Views of the demo: a live table on a terminal, plain lines elsewhere, JSON for programs."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hatcast.agents.demo import texts
from hatcast.agents.demo.messages import Began
from hatcast.agents.demo.state import Estimated, Published, State

_ROWS_MIN: Final = 8
_ROWS_MAX: Final = 16
_OTHER_LINES: Final = 20  # of the page without the rows, with the introduction above it
_SUPPRESSED_ROWS: Final = 2
_STRIP_WIDTH: Final = 24
_BAR_WIDTH: Final = 40
_STARTING: Final = "starting Kafka, Redis and a worker; the first means come in about ten seconds ..."


class View(Protocol):
    """Output of the demo while it runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self, state: State, began: Began) -> None:
        """Print the introduction: the feed has started."""

    def release(self, release: Published, record: bytes, state: State) -> None:
        """Show a release; `record` is its original bytes."""

    def estimate(self, estimate: Estimated, state: State) -> None:
        """Show an estimate of a new slot."""

    def refresh(self, state: State) -> None:
        """Update the display; called regularly."""

    def note(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def end(self, state: State, seconds: float) -> None:
        """Print the summary: the demo has stopped."""


class Json:
    """Prints the original records, one per line, and nothing else."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, state: State, began: Began) -> None:
        """Do nothing."""

    def release(self, release: Published, record: bytes, state: State) -> None:
        """Print the record."""
        sys.stdout.buffer.write(record + b"\n")
        sys.stdout.buffer.flush()

    def estimate(self, estimate: Estimated, state: State) -> None:
        """Do nothing: the releases are printed."""

    def refresh(self, state: State) -> None:
        """Do nothing."""

    def note(self, sentence: str) -> None:
        """Print to standard error."""
        click.echo(sentence, err=True)

    def end(self, state: State, seconds: float) -> None:
        """Do nothing."""


class Lines:
    """Prints one line per release, for pipes and files; ASCII, which every reader can show."""

    def __init__(self) -> None:
        self._open_slots: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, state: State, began: Began) -> None:
        """Print the introduction."""
        rows = texts.introduction(state, began)
        self._print(f"{word:<10}  {text}".replace("±", "+-") for word, text in rows)

    def release(self, release: Published, record: bytes, state: State) -> None:
        """Print the release; those of a tracker are shown as estimates."""
        self._open_slots.add(f"{release.date}/{release.slot}")
        if state.policy.tracker is None:
            self._print([texts.line(release, state.policy)])

    def estimate(self, estimate: Estimated, state: State) -> None:
        """Print the estimate of a tracker."""
        if state.policy.tracker is not None:
            self._print([texts.estimate_line(estimate)])

    def refresh(self, state: State) -> None:
        """Print the counts of each slot that a later slot follows."""
        self._print_counts(sorted(self._open_slots)[:-1], state)

    def note(self, sentence: str) -> None:
        """Print the sentence."""
        self._print([sentence])

    def end(self, state: State, seconds: float) -> None:
        """Print the counts of the last slots, and the summary."""
        self._print_counts(sorted(self._open_slots), state)
        self._print(texts.summary(state, seconds))

    def _print_counts(self, slots: Sequence[str], state: State) -> None:
        for slot in slots:
            self._open_slots.remove(slot)
            budget = state.budgets.get(slot[:10])
            spent = "" if budget is None else f"; {texts.budget_line(budget)}"
            self._print([f"-- {slot.replace('/', ' ')}: {texts.status_counts(state.hours[slot])}{spent}"])

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            click.echo(line)


class Screen:
    """Shows a live table on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text(_STARTING), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, state: State, began: Began) -> None:
        """Print the introduction above the live part."""
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="bold", no_wrap=True)
        rows.add_column()
        for word, text in texts.introduction(state, began):
            rows.add_row(word, text)
        self._live.console.print(Text("hatcast demo", style="bold"), rows, Text("Ctrl-C ends it.\n", style="dim"))

    def release(self, release: Published, record: bytes, state: State) -> None:
        """Do nothing: the next refresh shows it."""

    def estimate(self, estimate: Estimated, state: State) -> None:
        """Do nothing: the next refresh shows it."""

    def refresh(self, state: State) -> None:
        """Draw the live part."""
        self._live.update(page(state, self._console.width, self._console.height), refresh=True)

    def note(self, sentence: str) -> None:
        """Print the sentence above the live part."""
        self._live.console.print(sentence, highlight=False, markup=False)

    def end(self, state: State, seconds: float) -> None:
        """Leave the last table on the screen and print the summary below it."""
        self.refresh(state)
        self._live.stop()
        self._console.print(*texts.summary(state, seconds), sep="\n", highlight=False, markup=False)


def page(state: State, width: int, height: int) -> RenderableType:
    """Return the live part for a terminal of the given size."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    facts.add_row("clock", texts.clock_line(state))
    facts.add_row("readings", texts.outcome_line(state))
    facts.add_row(*_budget(state, min(_BAR_WIDTH, width - 45)))
    rows = max(_ROWS_MIN, min(_ROWS_MAX, height - _OTHER_LINES))
    table = releases_table(state, rows) if state.policy.tracker is None else estimates_table(state, rows)
    return Group(facts, Text(), table, _hours(state))


def releases_table(state: State, rows: int) -> Table:
    """Return a table of the latest releases, newest slot first, with at most a few suppressed ones."""
    top = state.policy.upper_bound / 1000
    table = _table("mean km/h", top)
    for release in _shown_releases(state, rows):
        when = f"{texts.day(release.date)} {release.slot}"
        if release.mean is None:
            table.add_row(when, release.cell, Text(texts.mean(release)), "", style="dim")
        else:
            strip = Text(noise_strip(release.mean, texts.spread(release), top), style="cyan")
            table.add_row(when, release.cell, texts.mean(release), strip)
    for _ in range(rows - table.row_count):
        table.add_row()
    return table


def estimates_table(state: State, rows: int) -> Table:
    """Return a table of the newest estimates: those with a query of their own first, then the narrowest."""
    top = state.policy.upper_bound / 1000
    table = _table("road km/h", top)
    newest = max(((each.date, each.slot) for each in state.estimates.values()), default=None)
    shown = [each for each in state.estimates.values() if (each.date, each.slot) == newest]
    shown.sort(key=lambda each: (each.stage == "predicted", texts.half_width(each), each.cell))
    for each in shown[:rows]:
        strip = Text(noise_strip(each.road.value, texts.half_width(each), top), style="cyan")
        style = "dim" if each.stage == "predicted" else ""
        table.add_row(f"{texts.day(each.date)} {each.slot}", each.cell, texts.road(each), strip, style=style)
    for _ in range(rows - table.row_count):
        table.add_row()
    return table


def _table(value: str, top: float) -> Table:
    """Return an empty table. value: heading of its third column; top: the end of the scale, km/h."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("slot", no_wrap=True)
    table.add_column("hexagon (H3)", no_wrap=True)
    table.add_column(value, justify="right", no_wrap=True)
    table.add_column(f"0{f'{top:g}':>{_STRIP_WIDTH - 1}}", no_wrap=True)
    return table


def _shown_releases(state: State, rows: int) -> list[Published]:
    newest = sorted(state.latest, key=lambda release: (release.date, release.slot), reverse=True)
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
