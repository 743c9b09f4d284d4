"""A recording in the order in which its records arrived.    [fold.md, "Recordings"]

Reading the bytes is the caller's: it hands in a function that reads the records from the start, as often as asked.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Recorded

UNKNOWN_MS: Final = -1
HELD_RECORDS: Final = 1 << 18  # at most so many wait for an earlier one: some 200 MB of ITMS records


def resolve(arrivals: Iterable[int | None]) -> "array[int]":
    """Arrivals (ms UTC) in file order, with a value for each unreadable one (None).

    Unreadable: the greatest arrival before it, else the first readable one after it. Where none is readable: 0.
    """
    resolved = array("q")
    greatest: int | None = None
    leading = 0
    for arrival in arrivals:
        if arrival is not None:
            if greatest is None:
                resolved.extend(array("q", (arrival,)) * leading)
            greatest = arrival if greatest is None else max(greatest, arrival)
            resolved.append(arrival)
        elif greatest is None:
            leading += 1
        else:
            resolved.append(greatest)
    return resolved if greatest is not None else array("q", (0,)) * leading


def by_their_own(records: Iterable[tuple[int, Recorded]]) -> Iterator[tuple[int, Recorded]]:
    """Yield (arrival, record), with an arrival before 1970 for each record that does not say when it arrived.

    That is the rule under `add_remove`: to such a record `resolve` gives the arrival of others, so that one vehicle
    more could make another one's readings late. Before 1970 it is undecodable and moves no clock (rule 2).
    """
    return ((UNKNOWN_MS if recorded.arrival is None else arrival, recorded) for arrival, recorded in records)


class Recording:
    """The records of one or several files, taken in arrival order; ties keep the order of the file.

    Reads everything once to learn the arrivals (8 bytes a record) and again on each iteration. A recording that is in
    order already is streamed. Otherwise a record waits until those before it have come, and where more than
    `held_records` would have to wait, the files are read again: memory is bounded, time is not.

    Iterating yields (arrival in ms UTC, record).
    Raises RecordingError what `read` raises, and if the files changed in between.
    """

    def __init__(self, read: Callable[[], Iterable[Recorded]], name: str, held_records: int = HELD_RECORDS) -> None:
        """Args:
        read:  all records from the start, in file order, each time it is called
        name:  of the recording, for error messages
        """
        self._read = read
        self._name = name
        self._held_records = held_records
        self._arrivals = resolve(recorded.arrival for recorded in read())
        arrivals = np.frombuffer(self._arrivals, dtype=np.int64)
        self._in_order = bool(np.all(arrivals[1:] >= arrivals[:-1]))
        self.first_ms: int | None = int(arrivals.min()) if len(arrivals) else None
        self.last_ms: int | None = int(arrivals.max()) if len(arrivals) else None

    def __len__(self) -> int:
        return len(self._arrivals)

    def __iter__(self) -> Iterator[tuple[int, Recorded]]:
        if self._in_order:
            yield from ((self._arrivals[index], recorded) for index, recorded in self._pass())
        else:
            yield from self._sorted()

    def _pass(self) -> Iterator[tuple[int, Recorded]]:
        """The records with their index in the file. Raises RecordingError if there are not as many as before."""
        index = -1
        for index, recorded in enumerate(self._read()):
            if index == len(self):
                break
            yield index, recorded
        if index + 1 != len(self):
            raise RecordingError(self._name, "changed while it was read", "use a copy that nobody writes to")

    def _sorted(self) -> Iterator[tuple[int, Recorded]]:
        order = np.argsort(np.frombuffer(self._arrivals, dtype=np.int64), kind="stable")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        rank_of = array("q", ranks.tobytes())
        taken = 0
        held: dict[int, tuple[int, Recorded]] = {}
        while taken < len(self):
            for index, recorded in self._pass():
                rank = rank_of[index]
                if taken <= rank < taken + self._held_records:
                    held[rank] = self._arrivals[index], recorded
                while taken in held:
                    yield held.pop(taken)
                    taken += 1
