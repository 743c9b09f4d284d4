"""Expected errors of a tracker, day after day, from the recursion of its covariance: no speed is read, no noise drawn.

The given days are repeated. The queries of a day are designed by the code of releases when a day is seen for the first
time, and again on days that the caller names; in between the observations of the last design are repeated on the
covariance of the day. Spreads only shrink from day to day, so this understates what a query tells there, and it keeps
pulses that are not worth their price any more: tests/unit/test_plan.py compares.
"""

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.lab.plan.counts import CountedDays, SlotCounts
from hatcast.lab.processes import step
from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.counts import DayCounts, Floats, ModelHat
from hatcast.stream.tracker.model import TIMETABLE, Covariance, Observation
from hatcast.stream.tracker.prior import Prior, Variances
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.timetable import Timetable

MEAN_DEVIATION: Final = math.sqrt(2 / math.pi)
"""mean absolute deviation of a normal distribution, in standard deviations"""
_DAY_HOURS: Final = 24
_READERS_SLOPE_SD: Final = 0.3  # of a reader who takes the slope for .8, as the baseline of lab/evaluate/skill.py does

Deviations = tuple[list[Floats], Floats]
"""Standard deviations of a day's HATs and of their roads, float64 [2, H]: at the close of each slot those of its HATs,
and at the end of the day those of all HATs, in the order of their slots"""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected absolute errors of one day, in the policy's unit: means over its HATs."""

    # live, end: of the mean of all readings of a HAT, at the close of its slot and at the end of the day
    live: float
    end: float
    # road_live, road_end: of the road: the mean for cell and hour without the sampling of the HAT's buses
    road_live: float
    road_end: float


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    """Observations of one day."""

    day: DayCounts  # counts as the model sees them
    live: list[list[Observation]]  # of each slot, in order
    end: list[Observation]  # of the settlement


class Forecast:
    """Forecast of one tracker, from the first day on."""

    def __init__(
        self, keys: TrackerKeys, prior: Prior, counts: CountedDays, timetable: Timetable | None = None
    ) -> None:
        """prior: of the policy's value; counts: of one day or more, which are repeated."""
        self._counts = counts
        self._schedule = Schedule(keys, prior.variances)
        self._schedule.add_cells(counts.names)
        self._schedule.covariance.add_scheduled(_scheduled(counts, timetable))
        self._designs: dict[int, _Design] = {}
        self._day = 0
        self._newest_hour: int | None = None

    def days(self, number: int, designed: Container[int]) -> list[Expected]:
        """Return the expected errors of the next days. Each is a step.

        designed   numbers of days, from 0, whose queries are designed, besides the first of each given day
        """
        found = []
        for live, end in self.deviations(number, designed):
            found.append(_expected(live, end))
            step()
        return found

    def deviations(self, number: int, designed: Container[int]) -> Iterator[Deviations]:
        """Yield the standard deviations of the HATs of each of the next days; arguments as of `days`."""
        for _ in range(number):
            day, index = self._day, self._day % len(self._counts.days)
            slots = self._counts.days[index]
            self._day += 1
            if index in self._designs and day not in designed:
                yield self._repeated(day, slots, self._designs[index])
            else:
                self._designs[index], found = self._designed(day, slots)
                yield found

    def _designed(self, day: int, slots: Sequence[SlotCounts]) -> tuple[_Design, Deviations]:
        schedule = self._schedule
        schedule.begin_day()
        live, observations = [], []
        for slot in slots:
            self._advance(day, slot)
            first = len(schedule.day.hats)
            schedule.add(slot.hats)
            observations.append([query.observation for query in schedule.close_slot()])
            live.append(_deviations(schedule.day.hats[first:], first, schedule.covariance))
        at_end = [query.observation for query in schedule.settle()]
        end = _deviations(schedule.day.hats, 0, schedule.covariance)
        return _Design(schedule.day, observations, at_end), (live, end)

    def _repeated(self, day: int, slots: Sequence[SlotCounts], design: _Design) -> Deviations:
        covariance, hats = self._schedule.covariance, design.day.hats
        covariance.begin_day()
        live, first = [], 0
        for slot, observations in zip(slots, design.live, strict=True):
            self._advance(day, slot)
            last = first + len(slot.hats)
            covariance.add_hats(hats[first:last])
            for observation in observations:
                covariance.observe(observation)
            live.append(_deviations(hats[first:last], first, covariance))
            first = last
        for observation in design.end:
            covariance.observe(observation)
        return live, _deviations(hats, 0, covariance)

    def _advance(self, day: int, slot: SlotCounts) -> None:
        hour = day * _DAY_HOURS + slot.hour
        if self._newest_hour is not None:
            self._schedule.covariance.advance(hour - self._newest_hour)
        self._newest_hour = hour


@dataclass(frozen=True, slots=True)
class Constants:
    """Expected errors of publishing what costs nothing, by the model's prior."""

    half_bound: float  # U/2 for each HAT
    city: float  # the city's mean, if it were known
    timetable: float | None  # the timetable, if the city's mean were known; None without one

    @property
    def best(self) -> float:
        """The least of them."""
        return min(self.half_bound, self.city, *(() if self.timetable is None else (self.timetable,)))


def constant_errors(prior: Prior, counts: CountedDays, timetable: Timetable | None = None) -> Constants:
    """Return the expected errors of constants: variances of city, hour, count features, cell and own deviation."""
    whole, city = _prior_variances(prior.variances, counts, None), prior.variances.city
    scheduled = None if timetable is None else _mean_error(_prior_variances(prior.variances, counts, timetable) - city)
    return Constants(_mean_error(whole, prior.width / 2 - prior.city), _mean_error(whole - city), scheduled)


def _mean_error(variances: Floats, shift: float = 0.0) -> float:
    """Return the mean absolute value of normal numbers with mean `shift` and these variances."""
    of_one = [
        MEAN_DEVIATION * sd * math.exp(-((shift / sd) ** 2) / 2) + shift * math.erf(shift / sd / math.sqrt(2))
        for sd in np.sqrt(variances).tolist()
    ]
    return math.fsum(of_one) / len(of_one)


def _prior_variances(variances: Variances, counts: CountedDays, timetable: Timetable | None) -> Floats:
    """Return the variance of each HAT's mean before any release."""
    covariance = Covariance(variances)
    covariance.add_cells(counts.cells)
    covariance.add_scheduled(_scheduled(counts, timetable))
    covariance.shared[TIMETABLE, TIMETABLE] = _READERS_SLOPE_SD**2
    found = []
    for slots in counts.days:
        day = DayCounts(variances)
        for slot in slots:
            day.add(slot.hats)
        covariance.begin_day()
        covariance.add_hats(day.hats)
        found.append(_deviations(day.hats, 0, covariance)[0] ** 2)
    return np.concatenate(found)


def _scheduled(counts: CountedDays, timetable: Timetable | None) -> dict[int, int]:
    """Return the scheduled speeds of those cells that have one, by number."""
    speeds = {} if timetable is None else timetable.speeds
    return {number: speeds[name] for number, name in enumerate(counts.names) if name in speeds}


def _deviations(hats: Sequence[ModelHat], first: int, covariance: Covariance) -> Floats:
    """Return standard deviations of the HATs' means and of their roads, float64 [2, H]. first: number of the first."""
    rows = np.array([covariance.row_of(hat.cell, hat.hour, hat.features) for hat in hats])
    some = np.arange(first, first + len(hats))
    cells, own = np.array([hat.cell for hat in hats]), covariance.own
    slopes, with_cell, variance = own.slopes[some], own.with_cell[some], own.variance(some)

    def with_share(share: Floats) -> Floats:
        whole = rows + share[:, None] * slopes
        common = np.einsum("hi,ij,hj->h", whole, covariance.shared, whole) + covariance.variance[cells]
        return np.asarray(common + 2 * share * with_cell + share**2 * variance)

    share, prior = (np.array([getattr(hat, name) for hat in hats]) for name in ("road_share", "variance"))
    return np.sqrt((with_share(np.ones(len(hats))), with_share(share) + share * (1 - share) * prior))


def _expected(live: Sequence[Floats], end: Floats) -> Expected:
    mean, road = MEAN_DEVIATION * np.concatenate(live, axis=1).mean(axis=1)
    mean_end, road_end = MEAN_DEVIATION * end.mean(axis=1)
    return Expected(float(mean), float(mean_end), float(road), float(road_end))
