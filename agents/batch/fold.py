"""Fold recordings and dumps.    [docs/specification/fold.md, Recordings]"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Final, Generic, TypeVar

import h3.api.basic_int as h3

from hatcast.agents.batch.retention import Retention
from hatcast.agents.kafka.dump import Dump
from hatcast.agents.worker.folds import EarlyRecord
from hatcast.stream.fold.calendar import Calendar, min_watermark
from hatcast.stream.fold.open_slots import IdSpans
from hatcast.stream.fold.partition_fold import PartitionFold
from hatcast.stream.fold.reading_fold import reading_fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import invalidate_missing_arrivals

V = TypeVar("V")

_RECORDS: Final = 4_096  # of one call of the fold
_RETAIN_RECORDS: Final = 100_000  # between two calls of the retention: bounds memory, besides open slots

_Lines = tuple[list[int], list[int], list[bytes | None]]  # offsets, timestamps and values of a partition's records

_reading_of: Final[Callable[[Recorded], Reading | None]] = attrgetter("reading")


@dataclass(frozen=True, slots=True)
class FoldJob:
    """Settings of a fold, the same for all partitions."""

    policy: Policy
    users: FoldUsers
    now_ms: int  # time of the start: records with a later arrival arrived in the future
    retention: Retention
    progress: Callable[[int], None]  # called with the number of records folded since the last call


@dataclass(frozen=True, slots=True)
class FoldResult:
    """Result of folding files."""

    outcomes: dict[str, int]  # outcome -> number of records; only outcomes that occur
    is_final: Callable[[int], bool]  # whether a slot is final, by the watermark (ms UTC) that closes it
    first_ms: int | None  # the least arrival time (ms UTC) that set a watermark; None if none did
    last_ms: int | None  # the greatest watermark; None if there is none
    complete_from: int | None  # time (ms UTC) before which some partition lacks deleted records; None if none does
    # (`date/slot`, cell) of HATs that had a record when readings of a new user arrived
    late_hats: frozenset[tuple[str, str]] = frozenset()
    ahead: tuple[str, ...] = ()  # of a dump: why partitions were not folded to their ends, in the worker's words
    spans: IdSpans = field(default_factory=IdSpans)  # how many timeslots of their day vehicle ids live in
    problems: Mapping[str, int] = field(default_factory=dict)  # number of undecodable records of a recording by reason

    def merged_with(self, reports: "FoldResult") -> "FoldResult":
        """Return this result merged with that of devices' reports, whose outcomes get the prefix `reports.`"""
        named = {f"reports.{outcome}": records for outcome, records in reports.outcomes.items()}
        both = (self, reports)
        return FoldResult(
            outcomes=self.outcomes | named,
            is_final=lambda closes_ms: all(each.is_final(closes_ms) for each in both),
            first_ms=min((each.first_ms for each in both if each.first_ms is not None), default=None),
            last_ms=max((each.last_ms for each in both if each.last_ms is not None), default=None),
            complete_from=max((each.complete_from for each in both if each.complete_from is not None), default=None),
            late_hats=self.late_hats | reports.late_hats,
            ahead=self.ahead + reports.ahead,
            spans=self.spans,
            problems=self.problems,
        )


class _Partition(Generic[V]):
    """The fold of one partition.

    missing   records before the first one were deleted
    """

    def __init__(self, job: FoldJob, number: int, fold: PartitionFold[V], *, missing: bool = False) -> None:
        self.fold = fold
        self.first_ms: int | None = None
        self.ahead: EarlyRecord | None = None  # of a dump: the record at which the fold stopped
        self._missing = missing
        self._job = job
        self._number = number
        self._since_retained = 0

    def apply(self, timestamps: Sequence[int], values: Sequence[V | None]) -> None:
        """Fold records; every `_RETAIN_RECORDS` records, call the retention and drop closed slots."""
        if self._missing and timestamps:
            # As at a worker's first start above offset 0: readings made before this time may have been deleted.
            self.fold.complete_from = timestamps[0] + self._job.policy.max_ahead_ms
            self._missing = False
        self.fold.apply(self._job.now_ms, timestamps, values)
        if self.first_ms is None and self.fold.watermark is not None:
            self.first_ms = min(each for each in timestamps if 0 <= each <= self.fold.watermark)
        self._job.progress(len(values))
        self._since_retained += len(values)
        if self._since_retained >= _RETAIN_RECORDS:
            self._since_retained = 0
            self._retain(ended=False)

    def apply_dumped(self, offsets: Sequence[int], timestamps: Sequence[int], values: Sequence[V | None]) -> None:
        """Fold records of a dump up to the first whose timestamp is too far in the future, as a worker does."""
        allowed = 0 if self.ahead else self.fold.count_within_max_ahead(self._job.now_ms, timestamps)
        if allowed < len(timestamps) and self.ahead is None:
            self.ahead = EarlyRecord(offsets[allowed], timestamps[allowed], self._job.policy.max_ahead_ms)
        self.apply(timestamps[:allowed], values[:allowed])
        self._job.progress(len(timestamps) - allowed)

    def end(self) -> None:
        """Call the retention for the last time."""
        self._retain(ended=True)
        for period in self.fold.periods.values():  # which the watermark has not ended
            period.add_to(self.fold.spans)

    def _retain(self, *, ended: bool) -> None:
        fold = self.fold
        self._job.retention.retain(fold, self._number, ended=ended)
        fold.take_changed()
        for period in fold.periods.values():
            period.over = fold.is_over(period.name)
        fold.drop_closed()


def fold_recording(records: Iterable[tuple[int, Recorded]], job: FoldJob) -> FoldResult:
    """Fold (arrival, record) in arrival order, without rule 10.

    At the end every slot is final, as after replay's last heartbeat. Under `add_remove` a record without an arrival
    time is undecodable.
    """
    partition = _Partition(job, 0, reading_fold(job.policy, Calendar(job.policy), job.users, _reading_of, None))
    rest = iter(invalidate_missing_arrivals(records) if job.policy.relation is Relation.ADD_REMOVE else records)
    while taken := list(islice(rest, _RECORDS)):
        arrivals, values = zip(*taken, strict=True)
        partition.apply(arrivals, values)
    partition.end()
    return _folded([partition], lambda _: True)


def fold_dump(dump: Dump, job: FoldJob, make_fold: Callable[[int], PartitionFold[bytes]]) -> FoldResult:
    """Fold each partition in offset order, with its own watermark and rule 10. `make_fold`: agents/worker/folds.py."""
    partitions = [
        _Partition(job, number, make_fold(number), missing=start > 0)
        for number, start in enumerate(dump.head.start_offsets)
    ]
    pending: list[_Lines] = [([], [], []) for _ in partitions]
    for line in dump:
        offsets, timestamps, values = pending[line.partition]
        offsets.append(line.offset)
        timestamps.append(line.ts)
        values.append(line.value)
        if len(values) == _RECORDS:
            partitions[line.partition].apply_dumped(offsets, timestamps, values)
            pending[line.partition] = ([], [], [])
    for partition, lines in zip(partitions, pending, strict=True):
        partition.apply_dumped(*lines)
        partition.end()
    least = min_watermark(partition.fold.watermark for partition in partitions)
    folded = _folded(partitions, lambda closes_ms: least is not None and least >= closes_ms)
    ahead = [(number, each.ahead) for number, each in enumerate(partitions) if each.ahead is not None]
    return replace(folded, ahead=tuple(each.dump_problem(dump.head.topic, number) for number, each in ahead))


def _folded(partitions: Sequence[_Partition[V]], is_final: Callable[[int], bool]) -> FoldResult:
    firsts = [partition.first_ms for partition in partitions if partition.first_ms is not None]
    watermarks = [partition.fold.watermark for partition in partitions if partition.fold.watermark is not None]
    spans, outcomes = IdSpans(), Counter[str]()
    for partition in partitions:
        spans.merge(partition.fold.spans)
        outcomes.update(partition.fold.outcomes)
    complete = [p.fold.complete_from for p in partitions if p.fold.complete_from is not None]
    return FoldResult(
        outcomes={outcome: records for outcome, records in outcomes.items() if records},
        is_final=is_final,
        first_ms=min(firsts, default=None),
        last_ms=max(watermarks, default=None),
        complete_from=max(complete, default=None),
        late_hats=frozenset(
            (slot, h3.int_to_str(cell)) for partition in partitions for slot, cell in partition.fold.late_hats
        ),
        spans=spans,
    )
