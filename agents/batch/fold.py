"""Recordings and dumps through the fold.    [fold.md, "Recordings"]"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Final, Generic, TypeVar

import h3.api.basic_int as h3

from hatcast.agents.batch.retention import Retention
from hatcast.agents.recordings.dump_file import Dump
from hatcast.agents.worker.early_records import Ahead
from hatcast.stream.fold.contributions import FoldOf
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.partition_fold import Earlier, PartitionFold
from hatcast.stream.fold.watermark import slowest
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.pseudonyms import Pseudonyms
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import by_their_own

V = TypeVar("V")

_RECORDS: Final = 4_096  # folded at once
_LOOK_RECORDS: Final = 100_000  # between two looks of the keeper: with open slots, what memory holds

_Lines = tuple[list[int], list[int], list[bytes | None]]
"""Offsets, timestamps and values of a partition's records."""

_reading_of: Final[Callable[[Recorded], Reading | None]] = attrgetter("reading")


@dataclass(frozen=True, slots=True)
class Job:
    """What every partition is folded with.

    now_ms     the time of the start: later records arrived in the future
    progress   is told how many records were folded
    earlier    what earlier runs have entered and released
    """

    policy: Policy
    pseudonyms: Pseudonyms
    now_ms: int
    keeper: Retention
    progress: Callable[[int], None]
    earlier: Earlier | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """What files came to.

    outcomes        records by what became of them; only those that occur
    is_final        whether a slot takes no more readings, by the clock (ms UTC) that closes it
    first_ms        the least arrival (ms UTC) that moved a clock; None: none did
    last_ms         the greatest one
    complete_from   ms UTC: what arrived before was deleted in some partition; None: nowhere
    too_late        (`date/slot`, cell) of HATs that had their record when somebody else's readings came
    ahead           of a dump: why partitions were not folded to their ends, as the worker says it
    """

    outcomes: dict[str, int]
    is_final: Callable[[int], bool]
    first_ms: int | None
    last_ms: int | None
    complete_from: int | None
    too_late: frozenset[tuple[str, str]] = frozenset()
    ahead: tuple[str, ...] = ()

    def beside(self, reports: "Folded") -> "Folded":
        """These, and what devices' reports came to: their outcomes are told apart by `reports.`"""
        named = {f"reports.{outcome}": records for outcome, records in reports.outcomes.items()}
        both = (self, reports)
        return Folded(
            outcomes=self.outcomes | named,
            is_final=lambda closes_ms: all(one.is_final(closes_ms) for one in both),
            first_ms=min((one.first_ms for one in both if one.first_ms is not None), default=None),
            last_ms=max((one.last_ms for one in both if one.last_ms is not None), default=None),
            complete_from=max((one.complete_from for one in both if one.complete_from is not None), default=None),
            too_late=self.too_late | reports.too_late,
            ahead=self.ahead + reports.ahead,
        )


class _Partition(Generic[V]):
    """One partition's fold, fed in lists.

    missing   records before the first one were deleted
    ahead     of a dump: the record that ended it
    """

    def __init__(self, job: Job, number: int, fold: PartitionFold[V], *, missing: bool = False) -> None:
        self.fold = fold
        fold.earlier = job.earlier
        self.first_ms: int | None = None
        self.ahead: Ahead | None = None
        self._missing = missing
        self._job = job
        self._number = number
        self._since_look = 0

    def apply(self, timestamps: Sequence[int], values: Sequence[V | None]) -> None:
        """Fold records; now and then let the keeper look, and forget what is closed."""
        if self._missing and timestamps:
            # As a worker's first start above 0: whatever was made up to here may have stood in the deleted records.
            self.fold.complete_from = timestamps[0] + self._job.policy.max_ahead_ms
            self._missing = False
        self.fold.apply(self._job.now_ms, timestamps, values)
        if self.first_ms is None and self.fold.clock is not None:
            self.first_ms = min(each for each in timestamps if 0 <= each <= self.fold.clock)
        self._job.progress(len(values))
        self._since_look += len(values)
        if self._since_look >= _LOOK_RECORDS:
            self._since_look = 0
            self._look(ended=False)

    def apply_dumped(self, offsets: Sequence[int], timestamps: Sequence[int], values: Sequence[V | None]) -> None:
        """Fold records of a dump, as a worker does: up to the first that is dated too far ahead of the clock."""
        allowed = 0 if self.ahead else self.fold.allowed(self._job.now_ms, timestamps)
        if allowed < len(timestamps) and self.ahead is None:
            self.ahead = Ahead(offsets[allowed], timestamps[allowed], self._job.policy.max_ahead_ms)
        self.apply(timestamps[:allowed], values[:allowed])
        self._job.progress(len(timestamps) - allowed)

    def end(self) -> None:
        """The last look."""
        self._look(ended=True)

    def _look(self, *, ended: bool) -> None:
        fold = self.fold
        self._job.keeper.look(fold, self._number, ended=ended)
        fold.take_changed()
        for day in fold.days.values():
            day.over = fold.is_over(day.date)
        fold.forget_closed()


def fold_recording(records: Iterable[tuple[int, Recorded]], job: Job) -> Folded:
    """Fold (arrival, record) in arrival order, without rule 10.

    At the end every slot is final, as by replay's last tick. Under `add_remove` a record that does not say when it
    arrived is undecodable.
    """
    partition = _Partition(job, 0, FoldOf(job.policy, Calendar(job.policy), job.pseudonyms, _reading_of, None))
    rest = iter(by_their_own(records) if job.policy.relation is Relation.ADD_REMOVE else records)
    while taken := list(islice(rest, _RECORDS)):
        arrivals, values = zip(*taken, strict=True)
        partition.apply(arrivals, values)
    partition.end()
    return _folded([partition], lambda _: True)


def fold_dump(dump: Dump, job: Job, make_fold: Callable[[int], PartitionFold[bytes]]) -> Folded:
    """Each partition in offset order, with its own clock and rule 10. `make_fold`: see agents/worker/folds.py."""
    partitions = [
        _Partition(job, number, make_fold(number), missing=start > 0)
        for number, start in enumerate(dump.head.start_offsets)
    ]
    waiting: list[_Lines] = [([], [], []) for _ in partitions]
    for line in dump:
        offsets, timestamps, values = waiting[line.partition]
        offsets.append(line.offset)
        timestamps.append(line.ts)
        values.append(line.value)
        if len(values) == _RECORDS:
            partitions[line.partition].apply_dumped(offsets, timestamps, values)
            waiting[line.partition] = ([], [], [])
    for partition, lines in zip(partitions, waiting, strict=True):
        partition.apply_dumped(*lines)
        partition.end()
    least = slowest(partition.fold.clock for partition in partitions)
    folded = _folded(partitions, lambda closes_ms: least is not None and least >= closes_ms)
    ahead = [(number, each.ahead) for number, each in enumerate(partitions) if each.ahead is not None]
    return replace(folded, ahead=tuple(each.stops(dump.head.topic, number) for number, each in ahead))


def _folded(partitions: Sequence[_Partition[V]], is_final: Callable[[int], bool]) -> Folded:
    firsts = [partition.first_ms for partition in partitions if partition.first_ms is not None]
    clocks = [partition.fold.clock for partition in partitions if partition.fold.clock is not None]
    complete = [p.fold.complete_from for p in partitions if p.fold.complete_from is not None]
    return Folded(
        outcomes=_occurring(partition.fold for partition in partitions),
        is_final=is_final,
        first_ms=min(firsts, default=None),
        last_ms=max(clocks, default=None),
        complete_from=max(complete, default=None),
        too_late=frozenset(
            (slot, h3.int_to_str(cell)) for partition in partitions for slot, cell in partition.fold.too_late
        ),
    )


def _occurring(folds: Iterable[PartitionFold[V]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for fold in folds:
        for outcome, records in fold.outcomes.items():
            if records:
                found[outcome] = found.get(outcome, 0) + records
    return found
