"""A tracker at work: slots in, queries out, released numbers in, estimates out.    [docs/specification/tracker.md]

The caller draws and commits each query before it takes the next. After a crash, the same calls with the released
numbers of before lead to the same state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.model import (
    HOURS,
    SHARED,
    HatCounts,
    Integers,
    bytes_of,
    floats_of,
    prior_means,
)
from hatcast.stream.tracker.prior import Prior, PriorScale
from hatcast.stream.tracker.prior_scale import SCALES, Evidence, next_scale
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import Calibration, HatEstimate, Track
from hatcast.stream.units import HOUR_MS

_MILLI: Final = 1000
_VERSION: Final = 4


class TrackerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a tracker between two days: all later queries and estimates follow from it.

    It has floats as they are, so a tracker that goes on from it does exactly what the one that stored it would have
    done. It follows from public counts and released numbers.

    policy_id     of its policy
    date          local date through which days are settled
    cells         names of cells, in the order of their numbers
    seen, hours   as in `Outlook`; float64 [C]
    newest_ms     start of the newest slot, ms UTC; None: there was none
    covariance, slopes, variance   as in `Covariance`: float64 [29, 29], [C, 29], [C]
    means, intercepts              as in `Means`: float64 [29], [C]
    calibration   the two running means of `Calibration`
    centre        of the model's first feature; None: there was no slot
    timetable     from which cells of the next date take their scheduled speeds; None: they have none
    prior_scale   as in `Covariance`, of the next date
    evidence      as in `Evidence`: float64 [37]; empty if the prior is no guess
    Arrays are little-endian bytes, row by row.
    """

    policy_id: str
    date: str
    cells: tuple[str, ...]
    seen: bytes
    hours: int
    newest_ms: int | None
    covariance: bytes
    slopes: bytes
    variance: bytes
    means: bytes
    intercepts: bytes
    calibration: tuple[float, float]
    centre: float | None
    timetable: Timetable | None
    prior_scale: PriorScale
    evidence: bytes
    version: int = _VERSION

    def encoded(self) -> bytes:
        """Return the bytes, as `decoded` reads them."""
        return _ENCODER.encode(self)

    @classmethod
    def decoded(cls, stored: bytes | None, policy_id: str) -> Self | None:
        """Return the state; None if they are missing, or of another version or policy."""
        if stored is None:
            return None
        try:
            state = msgspec.msgpack.decode(stored, type=cls)
        except UNREADABLE:
            return None
        cells = len(state.cells)
        sizes = (
            (state.covariance, SHARED**2),
            (state.slopes, cells * SHARED),
            (state.variance, cells),
            (state.means, SHARED),
            (state.intercepts, cells),
            (state.seen, cells),
            (state.evidence, SCALES if state.evidence else 0),
        )
        fits = all(len(array) == 8 * numbers for array, numbers in sizes)
        return state if fits and (state.version, state.policy_id) == (_VERSION, policy_id) else None

    def restore(self, schedule: Schedule, tracks: Sequence[Track]) -> None:
        """Put the state into a new schedule and new tracks."""
        cells, covariance = len(self.cells), schedule.covariance
        covariance.rescale(self.prior_scale)
        schedule.add_cells(self.cells)
        covariance.shared = floats_of(self.covariance, SHARED, SHARED)
        covariance.slopes = floats_of(self.slopes, cells, SHARED)
        covariance.variance = floats_of(self.variance, cells)
        schedule.seen, schedule.hours = floats_of(self.seen, cells), self.hours
        schedule.day.centre = self.centre
        for track in tracks:
            track.means.shared = floats_of(self.means, SHARED)
            track.means.intercepts = floats_of(self.intercepts, cells)
            track.calibration = Calibration(self.calibration)
            if track.evidence is not None and self.evidence:
                track.evidence = Evidence(floats_of(self.evidence, SCALES))


_ENCODER: Final = msgspec.msgpack.Encoder()


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
    timetable   from which cells take their scheduled speeds; None: they have none. Set it before a date begins
    """

    def __init__(
        self,
        keys: TrackerKeys,
        prior: Prior,
        tracks: int = 1,
        state: TrackerState | None = None,
        *,
        min_users: int = 1,
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
            self._cells = {cell: number for number, cell in enumerate(state.cells)}
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
            centre=schedule.day.centre,
            timetable=self.timetable,
            prior_scale=schedule.covariance.prior_scale,
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
        chosen = next_scale(evidence, covariance.prior_scale)
        if chosen != covariance.prior_scale:
            change = covariance.rescale(chosen)
            for track in self.tracks:
                track.rescale(change, self._prior)

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
