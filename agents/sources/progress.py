"""What a person sees of a feed: a progress bar on terminals, and one summary."""

import sys
from types import TracebackType
from typing import Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from hatcast.agents.clock import monotonic_s
from hatcast.stream.fold.hats import Calendar


class Bar:
    """Progress on standard error, if that is a terminal. `total` None: a feed without an end."""

    def __init__(self, calendar: Calendar, total: int | None) -> None:
        self.seconds = 0.0
        self._calendar = calendar
        self._began_s = monotonic_s()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("sending"),
            *([TextColumn("{task.completed:,}")] if total is None else [BarColumn(), MofNCompleteColumn()]),
            TextColumn("records, arrived {task.description}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.seconds = monotonic_s() - self._began_s
        self._progress.stop()

    def show(self, records: int, timestamp_ms: int) -> None:
        """So many records were sent; the next one arrived at that time (ms UTC)."""
        if not self._progress.disable:
            arrived = f"{self._calendar.local(timestamp_ms):%Y-%m-%d %H:%M:%S}"
            self._progress.update(self._task, completed=records, description=arrived)

    def note(self, sentence: str) -> None:
        """A line above the bar."""
        self._progress.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed did.

    records              sent, of which `undecodable` as raw bytes with the key ""
    arrived_in_future    not sent: rule 1
    arrived_before_1970  not sent: Kafka takes no such timestamp; `batch` counts them as undecodable
    finished             False: it was stopped before its end
    """

    topic: str
    partitions: int
    records: int
    ticks: int
    undecodable: int = 0
    arrived_in_future: int = 0
    arrived_before_1970: int = 0
    seconds: float
    finished: bool

    def show(self, *, as_json: bool) -> None:
        """To standard output."""
        if as_json:
            click.echo(msgspec.json.encode(self))
            return
        click.echo(
            f"{'' if self.finished else 'stopped: '}sent {self.records:,} records and {self.ticks:,} ticks to"
            f" {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s"
        )
        show_counts(
            (self.undecodable, "of them cannot be decoded and were sent as they are"),
            (self.arrived_in_future, "more arrived in the future and were not sent"),
            (self.arrived_before_1970, "more arrived before 1970 and were not sent"),
        )


def show_counts(*counts: tuple[int, str]) -> None:
    """To standard output, a line each: how many of what; nothing of what there is none of."""
    for count, what in counts:
        if count:
            click.echo(f"{count:,} {what}")
