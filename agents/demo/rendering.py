"""Views of the demo: a live table on a terminal, plain lines elsewhere, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, Self

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hatcast.agents.demo import texts
from hatcast.agents.demo.introduction import introduction
from hatcast.agents.demo.messages import Began
from hatcast.agents.demo.observer import Listener
from hatcast.agents.demo.page import answers_table, page
from hatcast.agents.demo.state import State
from hatcast.agents.tables.terminal import read_shown, record_line
from hatcast.stream.records import EstimateRecord, QueryRecord, ReleaseRecord, RunningRecord

_STARTING: Final = "starting Kafka, Redis and a worker; the first means come in about ten seconds ..."


class View(Listener, Protocol):
    """Output of the demo while it runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self, state: State, began: Began) -> None:
        """Print the introduction: the feed has started."""

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

    def release(self, release: ReleaseRecord, record: bytes, state: State) -> None:
        """Print the record."""
        sys.stdout.buffer.write(record + b"\n")
        sys.stdout.buffer.flush()

    def answer(self, answer: QueryRecord, record: bytes, state: State) -> None:
        """Print the record."""
        sys.stdout.buffer.write(record + b"\n")
        sys.stdout.buffer.flush()

    def estimate(self, estimate: EstimateRecord, state: State) -> None:
        """Do nothing: the releases are printed."""

    def settled(self, date: str, state: State) -> None:
        """Do nothing."""

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
        rows = introduction(state, began)
        self._print(f"{word:<10}  {text}".replace("±", "+-") for word, text in rows)

    def release(self, release: ReleaseRecord, record: bytes, state: State) -> None:
        """Print the release; those of a tracker are shown as estimates."""
        self._open_slots.add(f"{release.date}/{release.slot}")
        if state.policy.tracker is None:
            self._print_record(release)

    def answer(self, answer: QueryRecord, record: bytes, state: State) -> None:
        """Print the answer."""
        self._print_record(answer)

    def estimate(self, estimate: EstimateRecord, state: State) -> None:
        """Print the estimate of a tracker."""
        if state.policy.tracker is not None:
            self._print_record(estimate)

    def settled(self, date: str, state: State) -> None:
        """Print that the day is settled."""
        self._print([f"-- {texts.settled_line(date)}"])

    def refresh(self, state: State) -> None:
        """Print the counts of each slot that a later slot follows."""
        self._print_counts(sorted(self._open_slots)[:-1], state)

    def note(self, sentence: str) -> None:
        """Print the sentence."""
        self._print([sentence])

    def end(self, state: State, seconds: float) -> None:
        """Print the counts of the last slots, the newest running means, and the summary."""
        self._print_counts(sorted(self._open_slots), state)
        self._print_running(state)
        self._print(texts.summary(state, seconds))

    def _print_counts(self, slots: Sequence[str], state: State) -> None:
        for slot in slots:
            self._open_slots.remove(slot)
            budget = state.budgets.get(slot[:10])
            spent = "" if budget is None else f"; {texts.budget_line(budget)}"
            self._print([f"-- {slot.replace('/', ' ')}: {texts.status_counts(state.hours[slot])}{spent}"])

    def _print_running(self, state: State) -> None:
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
        for word, text in introduction(state, began):
            rows.add_row(word, text)
        self._live.console.print(Text("hatcast demo", style="bold"), rows, Text("Ctrl-C ends it.\n", style="dim"))

    def release(self, release: ReleaseRecord, record: bytes, state: State) -> None:
        """Do nothing: the next refresh shows it."""

    def answer(self, answer: QueryRecord, record: bytes, state: State) -> None:
        """Do nothing: the next refresh counts it, and the end shows it."""

    def estimate(self, estimate: EstimateRecord, state: State) -> None:
        """Do nothing: the next refresh shows it."""

    def settled(self, date: str, state: State) -> None:
        """Print above the live part that the day is settled."""
        self._live.console.print(texts.settled_line(date), highlight=False, markup=False)

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
        if state.answers:
            self._console.print(answers_table(state))
        self._console.print(*texts.summary(state, seconds), sep="\n", highlight=False, markup=False, soft_wrap=True)
