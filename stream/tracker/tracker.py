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
from hatcast.stream.tracker.counts import HatCounts, Integers
from hatcast.stream.tracker.model import HOURS, bytes_of, prior_means
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.prior_scale import Evidence, next_scale
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.state import ModelState, TrackerState
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import Calibration, HatEstimate, Track
from hatcast.stream.units import HOUR_MS

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class HatUsers:
    """Users of one final HAT, in any order."""

    cell: str
    pseudonyms: NDArray[np.uint64]  # uint64 [L], each once
    counts: Integers  # int64 [L]  readings, 1 or more
    sums: Integers  # int64 [L]  of each user's readings, milli-units


class Tracker:
    """A policy's tracker.

    Call, in order: `begin_day`, then `close_slot` for each of its slots with HATs, then `settle`.

    values   float64 [N]  private mean of each contribution of the day, in the policy's unit
    tracks   one for each sequence of released numbers: one, unless noise is simulated
    timetable   from which cells take their scheduled speeds; None: they have none. Set it before a date begins
    """

    def __init__(
        self, keys: TrackerKeys, prior: Prior, tracks: int = 1, state: TrackerState | None = None, *, min_users: int = 1
    ) -> None:
        """Args:
        prior: of the policy's value
        state: after the days before; None: there were none
        min_users: least number of buses of a query of a whole slot
        """
        self.schedule = Schedule(keys, prior.variances, min_users)
        self._prior, is_guess = prior_means(prior), prior.variances.is_guess
        self.tracks = [Track(self._prior, Calibration(), Evidence() if is_guess else None) for _ in range(tracks)]
        self.values = np.empty(0)
        self._cells: dict[str, int] = {}
        self._buses: dict[int, int] = {}
        self._newest_ms: int | None = None
        self.timetable: Timetable | None = None
        if state is not None:
            state.restore(self.schedule, self.tracks)
            self._cells = {cell: number for number, cell in enumerate(state.model.cells)}
            self._newest_ms = state.newest_ms
            self.timetable = state.timetable

    @property
    def prior_scale(self) -> int | None:
        """Scale of a guessed prior on the date at work, as in `Covariance`; None of any other."""
        covariance = self.schedule.covariance
        return covariance.prior_scale if covariance.variances.is_guess else None

    def state(self, policy_id: str, date: str) -> TrackerState:
        """Return the state after a day that is settled, of the first track."""
        schedule, track = self.schedule, self.tracks[0]
        if not isinstance(track.calibration, Calibration):
            raise TypeError("a tracker's calibration is that of queries")
        return TrackerState(
            policy_id=policy_id,
            date=date,
            model=ModelState.of(self._cells, schedule.covariance, track.means),
            seen=bytes_of(schedule.seen),
            hours=schedule.hours,
            newest_ms=self._newest_ms,
            calibration=track.calibration.means,
            timetable=self.timetable,
            evidence=b"" if track.evidence is None else bytes_of(track.evidence.sums),
        )

    def begin_day(self) -> None:
        """Begin a local date."""
        drift = self.schedule.begin_day()
        for track in self.tracks:
            track.means.begin_day(drift)
        self.values = np.empty(0)
        self._buses = {}

    def close_slot(self, start_ms: int, hour: int, hats: Sequence[HatUsers]) -> Iterator[ResidualQuery]:
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
        speeds = {} if self.timetable is None else self.timetable.speeds
        self.schedule.covariance.add_scheduled(
            {self._cells[hat.cell]: speeds[hat.cell] for hat in hats if hat.cell in speeds}
        )
        counts = [HatCounts(self._cells[hat.cell], hour, self._numbers_of(hat.pseudonyms), hat.counts) for hat in hats]
        self.values = np.concatenate((self.values, *(hat.sums / hat.counts / _MILLI for hat in hats)))
        self.schedule.add(counts)
        for track in self.tracks:
            track.means.resize(self.schedule.covariance)
        return self.schedule.close_slot()

    def settle(self) -> Iterator[ResidualQuery]:
        """Make the queries of the day's end."""
        return self.schedule.settle()

    def end_day(self) -> None:
        """End a date that is settled: choose the scale of a guessed prior for the next one."""
        covariance = self.schedule.covariance
        evidence = [track.evidence for track in self.tracks if track.evidence is not None]
        chosen = next_scale(evidence, covariance.prior_scale, is_usual=covariance.variances.is_usual)
        if chosen != covariance.prior_scale:
            change = covariance.rescale(chosen)
            for track in self.tracks:
                track.means.rescale(change, self._prior)

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
