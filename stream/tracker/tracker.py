"""A tracker at work: slots in, queries out, released numbers in, estimates out.    [docs/specification/tracker.md]

The caller draws and commits each query before it takes the next. After a crash, the same calls with the released
numbers of before lead to the same state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.calibration import Calibration
from hatcast.stream.tracker.contributions import HatCounts, Integers
from hatcast.stream.tracker.model import HOURS
from hatcast.stream.tracker.query import Query
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.setting import Variances
from hatcast.stream.tracker.state import TrackerState, bytes_of
from hatcast.stream.tracker.track import HatEstimate, Track
from hatcast.stream.units import HOUR_MS

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class HatUsers:
    """Users of one final HAT, in any order.

    pseudonyms   uint64 [L], each once
    counts       int64 [L]  readings, 1 or more
    sums         int64 [L]  of each user's readings, milli-units
    """

    cell: str
    pseudonyms: NDArray[np.uint64]
    counts: Integers
    sums: Integers


class Tracker:
    """A policy's tracker.

    Call, in order: `begin_day`, then `close_slot` for each of its slots with HATs, then `settle`.

    values   float64 [N]  private mean of each contribution of the day, in the policy's unit
    tracks   one for each sequence of released numbers: one, unless noise is simulated
    """

    def __init__(
        self, keys: TrackerKeys, upper_bound: float, tracks: int = 1, state: TrackerState | None = None
    ) -> None:
        """Args:
        upper_bound: of the policy's value
        state: after the days before; None: there were none
        """
        self.schedule = Schedule(keys, Variances.of(upper_bound), state)
        self.tracks = [Track(upper_bound / 2, state) for _ in range(tracks)]
        self.values = np.empty(0)
        self._cells = {} if state is None else {cell: number for number, cell in enumerate(state.cells)}
        self._buses: dict[int, int] = {}
        self._newest_ms = None if state is None else state.newest_ms

    def state(self, policy_id: str, date: str) -> TrackerState:
        """Return the state after a day that is settled, of the first track."""
        schedule, track = self.schedule, self.tracks[0]
        if not isinstance(track.calibration, Calibration):
            raise TypeError("a tracker's calibration is that of queries")
        return TrackerState(
            policy_id=policy_id,
            date=date,
            cells=tuple(self._cells),
            seen=bytes_of(schedule.seen),
            hours=schedule.hours,
            newest_ms=self._newest_ms,
            covariance=bytes_of(schedule.covariance.shared),
            slopes=bytes_of(schedule.covariance.slopes),
            variance=bytes_of(schedule.covariance.variance),
            means=bytes_of(track.means.shared),
            intercepts=bytes_of(track.means.intercepts),
            calibration=track.calibration.means,
        )

    def begin_day(self) -> None:
        """Begin a local date."""
        self.schedule.begin_day()
        for track in self.tracks:
            track.means.begin_day()
        self.values = np.empty(0)
        self._buses = {}

    def close_slot(self, start_ms: int, hour: int, hats: Sequence[HatUsers]) -> Iterator[Query]:
        """Take the final HATs of a slot and make its queries.

        start_ms   ms UTC; later than that of the slot before
        hour       of the local clock in which it starts, 0 to 23
        hats       each of another cell, in ascending order of cells: it decides between queries of equal worth, and it
                   is that of the numbers of `estimates` and `Members.hats`
        Raises ValueError for anything else, and for a HAT without users or with a user without readings.
        """
        _check_slot(hour, hats)
        self._advance(start_ms)
        self.add_cells([hat.cell for hat in hats])
        counts = [HatCounts(self._cells[hat.cell], hour, self._numbers_of(hat.pseudonyms), hat.counts) for hat in hats]
        self.values = np.concatenate((self.values, *(hat.sums / hat.counts / _MILLI for hat in hats)))
        self.schedule.add(counts)
        for track in self.tracks:
            track.means.resize(self.schedule.covariance)
        return self.schedule.close_slot()

    def settle(self) -> Iterator[Query]:
        """Make the queries of the day's end."""
        return self.schedule.settle()

    def add_cells(self, cells: Sequence[str]) -> None:
        """Add those of these cells that are new."""
        new = [cell for cell in dict.fromkeys(cells) if cell not in self._cells]
        for cell in new:
            self._cells[cell] = len(self._cells)
        self.schedule.add_cells(new)

    def estimates(self, numbers: Sequence[int]) -> list[list[HatEstimate]]:
        """Return the estimates of these HATs of the day, for each track."""
        day, covariance = self.schedule.day, self.schedule.covariance
        return [[track.estimate(n, day.hats[n], covariance) for n in numbers] for track in self.tracks]

    def _advance(self, start_ms: int) -> None:
        if self._newest_ms is not None:
            drift = self.schedule.covariance.advance((start_ms - self._newest_ms) / HOUR_MS)
            for track in self.tracks:
                track.means.follow(drift)
        self._newest_ms = start_ms

    def _numbers_of(self, pseudonyms: NDArray[np.uint64]) -> Integers:
        buses = self._buses
        return np.array([buses.setdefault(pseudonym, len(buses)) for pseudonym in pseudonyms.tolist()], np.int64)


def _check_slot(hour: int, hats: Sequence[HatUsers]) -> None:
    """Raise ValueError for HATs that would make numbers without a meaning. It follows from counts alone."""
    if not 0 <= hour < HOURS:
        raise ValueError(f"an hour of the local clock is 0 to {HOURS - 1}, not {hour}")
    if any(one.cell >= other.cell for one, other in pairwise(hats)):
        raise ValueError("the HATs of a slot are not in ascending order of cells, each of another")
    for hat in hats:
        if not len(hat.pseudonyms) == len(hat.counts) == len(hat.sums) > 0:
            raise ValueError("a HAT has no users, or not one count and one sum of each")
        if int(hat.counts.min()) < 1:
            raise ValueError("a user of a HAT has no readings")
