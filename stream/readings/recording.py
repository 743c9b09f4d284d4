"""Recordings in arrival order.    [docs/specification/fold.md]

The caller reads the files: it passes a function that yields the records from the start, and may be called repeatedly.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import NO_VALUE, Format, Recorded
from hatcast.stream.readings.formats.interface import OUT_OF_SERVICE
from hatcast.stream.readings.positions import Derivation, SpeedDeriver
from hatcast.stream.readings.reading import MISSING

UNKNOWN_MS: Final = -1
NOT_OF_FORMAT: Final = "is not in the format that was named: docs/feeds.md"
LACKS_SPEED: Final = "they lack only their speed: `--derive-speed` (in Python `derive_speed`) derives it from positions"
NO_SPEED: Final = "no speed follows from its position"
"""`Recorded.problem` of a record without a speed, where speeds are derived."""
Contents = Sequence[tuple[str, bytes]]  # name and digest of the content of each file
BUFFERED_RECORDS: Final = 1 << 18  # out of order, at most: some 200 MB of ITMS records


def fill_arrivals(arrivals: Iterable[int | None]) -> "array[int]":
    """Return the arrivals (ms UTC) in file order, with a value for each unreadable one (None).

    An unreadable arrival gets the greatest arrival before it, or else the first readable one after it. If none is
    readable, all are 0.
    """
    filled = array("q")
    greatest: int | None = None
    leading = 0
    for arrival in arrivals:
        if arrival is not None:
            if greatest is None:
                filled.extend(array("q", (arrival,)) * leading)
            greatest = arrival if greatest is None else max(greatest, arrival)
            filled.append(arrival)
        elif greatest is None:
            leading += 1
        else:
            filled.append(greatest)
    return filled if greatest is not None else array("q", (0,)) * leading


def invalidate_missing_arrivals(records: Iterable[tuple[int, Recorded]]) -> Iterator[tuple[int, Recorded]]:
    """Yield (arrival, record) with an arrival before 1970 for each record without a readable arrival.

    Required under `add_remove`: `fill_arrivals` derives such an arrival from other records, so one more vehicle could
    make another vehicle's readings late. A record before 1970 is undecodable and moves no watermark (rule 2).
    """
    return ((UNKNOWN_MS if recorded.arrival is None else arrival, recorded) for arrival, recorded in records)


def with_derived_speeds(
    records: Iterable[tuple[int, Recorded]], derivation: Derivation
) -> Iterator[tuple[int, Recorded]]:
    """Yield (arrival, record) in arrival order, with speeds derived from positions.

    A record without a speed that cannot be derived is undecodable. So is one without a readable arrival, since
    `fill_arrivals` would give it the arrival of another vehicle.
    """
    deriver, counts = SpeedDeriver(derivation), derivation.counts
    for arrival, recorded in records:
        reading, problem = recorded.reading, recorded.problem
        if reading is not None:
            if recorded.arrival is not None:
                reading = deriver.reading(arrival, reading)
            elif reading.speed is MISSING or derivation.always:
                reading = None
            if reading is None:
                problem = NO_SPEED
            elif counts is not None and not counts(recorded.raw):
                reading, problem = None, OUT_OF_SERVICE
        yield arrival, Recorded(recorded.raw, reading, recorded.arrival, problem)


def reason_of(feed: Format) -> Callable[[Recorded], str]:
    """Return a function that says why a record is undecodable, without any of its data.

    That it has a position but no speed comes first, because there is an option for it.
    """

    def why(recorded: Recorded) -> str:
        problem = recorded.problem or NOT_OF_FORMAT
        is_lacking = problem == NO_VALUE and feed.without_speed is not None
        return LACKS_SPEED if is_lacking or feed.lacks_only_its_speed(recorded.raw) else problem

    return why


class Recording:
    """Records of one or several files in arrival order; ties keep the file order.

    The files are read once for the arrivals (8 bytes a record) and again on each iteration. A recording that is already
    in order is streamed. Otherwise a record is buffered until all earlier ones are read; if more than
    `buffered_records` would be buffered, the files are read again: memory is bounded, time is not.

    Iteration yields (arrival in ms UTC, record). With a derivation, each iteration derives the same speeds.
    Raises RecordingError if the files change between two reads, and whatever `read` raises.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Recorded]],
        name: str,
        buffered_records: int = BUFFERED_RECORDS,
        derivation: Derivation | None = None,
        contents: Callable[[], Contents] = lambda: (),
        why: Callable[[Recorded], str] | None = None,
    ) -> None:
        """Args:
        read:  yields all records from the start, in file order, on each call
        name:  name of the recording for error messages
        derivation:  of the speeds that its records lack; None: they have theirs
        contents:  reads the files once more, whatever their format, and returns their contents
        why:  says why a record is undecodable, without any of its data; None: no reasons are counted
        """
        self._read = read
        self._name = name
        self._buffer_size = buffered_records
        self._derivation = derivation
        self.contents = contents
        self.problems: Counter[str] = Counter()  # number of undecodable records by reason, before speeds are derived
        self._arrivals = fill_arrivals(
            (recorded.arrival for recorded in read()) if why is None else self._counted_arrivals(why)
        )
        arrivals = np.frombuffer(self._arrivals, dtype=np.int64)
        self._in_order = bool(np.all(arrivals[1:] >= arrivals[:-1]))
        self.first_ms: int | None = int(arrivals.min()) if len(arrivals) else None
        self.last_ms: int | None = int(arrivals.max()) if len(arrivals) else None

    def _counted_arrivals(self, why: Callable[[Recorded], str]) -> Iterator[int | None]:
        for recorded in self._read():
            if recorded.reading is None:
                self.problems[why(recorded)] += 1
            yield recorded.arrival

    def __len__(self) -> int:
        return len(self._arrivals)

    def __iter__(self) -> Iterator[tuple[int, Recorded]]:
        in_order = ((self._arrivals[index], recorded) for index, recorded in self._records())
        records = in_order if self._in_order else self._sorted()
        return records if self._derivation is None else with_derived_speeds(records, self._derivation)

    def _records(self) -> Iterator[tuple[int, Recorded]]:
        """Yield (index, record) in file order. Raises RecordingError if the number of records changed."""
        index = -1
        for index, recorded in enumerate(self._read()):
            if index == len(self):
                break
            yield index, recorded
        if index + 1 != len(self):
            raise RecordingError(self._name, "changed while it was read", "use a copy that is not being written")

    def _sorted(self) -> Iterator[tuple[int, Recorded]]:
        order = np.argsort(np.frombuffer(self._arrivals, dtype=np.int64), kind="stable")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        rank_of = array("q", ranks.tobytes())
        next_rank = 0
        buffer: dict[int, tuple[int, Recorded]] = {}
        while next_rank < len(self):
            for index, recorded in self._records():
                rank = rank_of[index]
                if next_rank <= rank < next_rank + self._buffer_size:
                    buffer[rank] = self._arrivals[index], recorded
                while next_rank in buffer:
                    yield buffer.pop(next_rank)
                    next_rank += 1
