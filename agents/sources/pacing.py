"""Pace of a replay, at the rate of its records' own times, with its progress bar and summary."""

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.stream.fold.calendar import Calendar

_SLEEP_MIN_S: Final = 0.01  # records due within it are sent together
_SLEEP_MAX_S: Final = 0.5


class Pace:
    """Pace of records: the first is due at once, each later one (its time - the first one's) / speedup after it.

    speedup   60: a recorded hour a minute; 0: unlimited
    """

    def __init__(self, speedup: float, ahead_ms: int, stop: threading.Event) -> None:
        self._speedup = speedup
        self.ahead_ms = ahead_ms  # no record is due before its time - ahead_ms by the wall clock
        self.stop = stop  # set when the feed has to stop
        self._first_ms: int | None = None
        self._began_s = 0.0
        self._due_ms = -1

    def wait(self, timestamp_ms: int, meanwhile: Callable[[], object]) -> bool:
        """Wait until a record is due, calling `meanwhile` now and then; return False if the feed has to stop first."""
        if self._first_ms is None:
            self._first_ms, self._began_s = timestamp_ms, monotonic_s()
        while not self.stop.is_set():
            if timestamp_ms <= self._due_ms:
                return True
            missing_s = self._update_due(timestamp_ms, self._first_ms)
            if missing_s > 0:
                meanwhile()
                self.stop.wait(min(max(missing_s, _SLEEP_MIN_S), _SLEEP_MAX_S))
        return False

    def _update_due(self, timestamp_ms: int, first_ms: int) -> float:
        """Set the latest time that is due now; return the seconds until the record is due, at least."""
        self._due_ms = wall = now_ms() + self.ahead_ms
        missing_s = (timestamp_ms - wall) / 1000
        if self._speedup > 0:
            paced = first_ms + int((monotonic_s() - self._began_s) * 1000 * self._speedup)
            self._due_ms = min(wall, paced)
            missing_s = max(missing_s, (timestamp_ms - paced) / 1000 / self._speedup)
        return missing_s

    def disable_pacing(self) -> None:
        """Send the rest without pacing, limited only by `ahead_ms`."""
        self._speedup = 0.0


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


class FeedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a finished feed."""

    topic: str
    partitions: int
    records: int  # sent, `undecodable` of them as raw bytes with the key ""
    ticks: int  # heartbeat records sent
    undecodable: int = 0
    arrived_in_future: int = 0  # not sent: docs/specification/fold.md, rule 1
    arrived_before_1970: int = 0  # not sent: Kafka rejects such timestamps; `batch` counts them as undecodable
    seconds: float
    finished: bool  # False: it was stopped before its end

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
