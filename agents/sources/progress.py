"""Progress bar and summary of a feed."""

import sys
from types import TracebackType
from typing import Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from hatcast.agents.clock import monotonic_s
from hatcast.stream.fold.hats import Calendar


class ProgressBar:
    """Progress bar on standard error, if that is a terminal. `total` None: an endless feed."""

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
        """Show the number of records sent and the arrival time of the next one (ms UTC)."""
        if not self._progress.disable:
            arrived = f"{self._calendar.local(timestamp_ms):%Y-%m-%d %H:%M:%S}"
            self._progress.update(self._task, completed=records, description=arrived)

    def note(self, sentence: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a finished feed.

    records              sent, `undecodable` of them as raw bytes with the key ""
    ticks                heartbeat records sent
    arrived_in_future    not sent: docs/specification/fold.md, rule 1
    arrived_before_1970  not sent: Kafka rejects such timestamps; `batch` counts them as undecodable
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
        """Print it to standard output."""
        print_summary(
            self,
            f"{'' if self.finished else 'stopped: '}sent {self.records:,} records and {self.ticks:,} heartbeat records"
            f" to {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s",
            (self.undecodable, "of them cannot be decoded and were sent unchanged"),
            (self.arrived_in_future, "more arrived in the future and were not sent"),
            (self.arrived_before_1970, "more arrived before 1970 and were not sent"),
            as_json=as_json,
        )


def print_summary(summary: msgspec.Struct, sentence: str, *counts: tuple[int, str], as_json: bool) -> None:
    """Print a summary to standard output: as JSON, or as a sentence and a line for each count that is not 0."""
    if as_json:
        click.echo(msgspec.json.encode(summary))
        return
    click.echo(sentence)
    for count, what in counts:
        if count:
            click.echo(f"{count:,} {what}")
