"""The demo's faces: a live table on a terminal, plain lines elsewhere, JSON for programs."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hatcast.agents.demo import texts as words
from hatcast.agents.demo.state import Published, State

_ROWS_MIN: Final = 8
_ROWS_MAX: Final = 16
_OTHER_LINES: Final = 20  # of the page beside the rows, with what stands above it
_SUPPRESSED_ROWS: Final = 2
_STRIP_WIDTH: Final = 24
_BAR_WIDTH: Final = 40
_STARTING: Final = "starting Kafka, Redis and a worker; the first means come in about ten seconds ..."


class View(Protocol):
    """What is shown while the demo runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self, state: State) -> None:
        """The feed begins: say what this is."""

    def release(self, release: Published, record: bytes, state: State) -> None:
        """A release came; `record` are its bytes."""

    def refresh(self, state: State) -> None:
        """Time has passed."""

    def note(self, sentence: str) -> None:
        """A sentence for people."""

    def end(self, state: State, seconds: float) -> None:
        """The demo has stopped."""


class Json:
    """The records' bytes on standard output, one a line, and nothing else."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, state: State) -> None:
        """Nothing."""

    def release(self, release: Published, record: bytes, state: State) -> None:
        """The bytes, as any consumer gets them."""
        sys.stdout.buffer.write(record + b"\n")
        sys.stdout.buffer.flush()

    def refresh(self, state: State) -> None:
        """Nothing."""

    def note(self, sentence: str) -> None:
        """To standard error."""
        click.echo(sentence, err=True)

    def end(self, state: State, seconds: float) -> None:
        """Nothing."""


class Lines:
    """One line a release, for pipes and files. ASCII, since nobody knows where they end up."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, state: State) -> None:
        """What this is."""
        rows = words.introduction(state)
        self._print(f"{word:<10}  {text}".replace("±", "+-") for word, text in rows)

    def release(self, release: Published, record: bytes, state: State) -> None:
        """A line."""
        self._open.add(f"{release.date}/{release.slot}")
        self._print([words.line(release, state.policy)])

    def refresh(self, state: State) -> None:
        """How each slot ended, once a later one has begun to come."""
        self._close(sorted(self._open)[:-1], state)

    def note(self, sentence: str) -> None:
        """A line."""
        self._print([sentence])

    def end(self, state: State, seconds: float) -> None:
        """The last slots, and the summary."""
        self._close(sorted(self._open), state)
        self._print(words.summary(state, seconds))

    def _close(self, slots: Sequence[str], state: State) -> None:
        for slot in slots:
            self._open.remove(slot)
            budget = state.budgets.get(slot[:10])
            spent = "" if budget is None else f"; {words.budget_line(budget)}"
            self._print([f"-- {slot.replace('/', ' ')}: {words.counted(state.hours[slot])}{spent}"])

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            click.echo(line)


class Screen:
    """A live table on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text(_STARTING), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, state: State) -> None:
        """What this is, above the live part."""
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="bold", no_wrap=True)
        rows.add_column()
        for word, text in words.introduction(state):
            rows.add_row(word, text)
        self._live.console.print(Text("hatcast demo", style="bold"), rows, Text("Ctrl-C ends it.\n", style="dim"))

    def release(self, release: Published, record: bytes, state: State) -> None:
        """Shown at the next refresh."""

    def refresh(self, state: State) -> None:
        """Draw again."""
        self._live.update(page(state, self._console.width, self._console.height), refresh=True)

    def note(self, sentence: str) -> None:
        """A line above the live part."""
        self._live.console.print(sentence, highlight=False, markup=False)

    def end(self, state: State, seconds: float) -> None:
        """The table as it stands, and the summary below."""
        self.refresh(state)
        self._live.stop()
        self._console.print(*words.summary(state, seconds), sep="\n", highlight=False, markup=False)


def page(state: State, width: int, height: int) -> RenderableType:
    """The live part, for a terminal of that size."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    facts.add_row("clock", words.clock_line(state))
    facts.add_row("readings", words.outcome_line(state))
    facts.add_row(*_budget(state, min(_BAR_WIDTH, width - 45)))
    rows = max(_ROWS_MIN, min(_ROWS_MAX, height - _OTHER_LINES))
    return Group(facts, Text(), releases_table(state, rows), _hours(state))


def releases_table(state: State, rows: int) -> Table:
    """The latest releases, newest hour first; of the suppressed ones only a few."""
    top = state.policy.upper_bound / 1000
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("slot", no_wrap=True)
    table.add_column("hexagon (H3)", no_wrap=True)
    table.add_column("mean km/h", justify="right", no_wrap=True)
    table.add_column(f"0{f'{top:g}':>{_STRIP_WIDTH - 1}}", no_wrap=True)
    for release in _chosen(state, rows):
        when = f"{words.day(release.date)} {release.slot}"
        if release.mean is None:
            table.add_row(when, release.cell, Text(words.mean(release)), "", style="dim")
        else:
            strip = Text(strip_of(release.mean, words.spread(release), top), style="cyan")
            table.add_row(when, release.cell, words.mean(release), strip)
    for _ in range(rows - table.row_count):
        table.add_row()
    return table


def _chosen(state: State, rows: int) -> list[Published]:
    newest = sorted(state.latest, key=lambda release: (release.date, release.slot), reverse=True)
    silent = [release for release in newest if release.mean is None][:_SUPPRESSED_ROWS]
    telling = [release for release in newest if release.mean is not None][: rows - len(silent)]
    return telling + silent


def strip_of(mean: float, spread: float, top: float, width: int = _STRIP_WIDTH) -> str:
    """The noise's interval as a line on 0..top km/h, with the mean as a dot."""

    def place(speed: float) -> int:
        return min(width - 1, max(0, int(speed / top * width)))

    low, dot, high = place(mean - spread), place(mean), place(mean + spread)
    return "".join("●" if at == dot else "─" if low <= at <= high else " " for at in range(width))


def _budget(state: State, width: int) -> Iterator[RenderableType]:
    budget = state.budget
    yield "budget"
    if budget is None:
        yield "nothing spent yet"
        return
    bar = Table.grid(padding=(0, 1))
    left = f"{budget.epsilon_user_day:g} of {budget.limit:g}"
    bar.add_row(words.day(budget.date), ProgressBar(budget.limit, budget.epsilon_user_day, width=max(8, width)), left)
    yield bar


def _hours(state: State) -> Text:
    """How the latest hours ended."""
    parts = [
        f"{words.day(hour[:10])} {hour[11:]}: {words.counted(counts)}"
        for hour, counts in sorted(state.hours.items())[-2:]
    ]
    return Text("   ".join(parts) or "the first means come when the first slot is over", style="dim")
