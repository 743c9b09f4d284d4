"""Choose the kind of a continual policy, and compare it with running means that cost nothing more.

A continual policy books its whole horizon, max_cells x epsilon, on every date of it. A policy of releases or a tracker
with this daily limit costs a user's day as much. Its guarantee is for a day: the days of a horizon add up.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.kinds import (
    INDEPENDENT,
    Candidate,
    ErrorSpread,
    PlannedSums,
    compare,
    errors_of,
)
from hatcast.lab.plan.continual.users import Presence, UsersBySlot, run_of
from hatcast.lab.plan.counts import CountedDays
from hatcast.lab.plan.forecast import Forecast
from hatcast.stream.continual import KINDS
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price, rounded_price
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.units import nano_floor

_UNIFORM: Final = 12**-0.5  # standard deviation of values spread evenly over a range of width 1


def daily_cost(stream: PlannedSums) -> float:
    """Return the epsilon that a horizon costs a user, which each of its dates books."""
    return stream.participation.max_cells * stream.epsilon


def tracker_errors(stream: PlannedSums, counts: CountedDays, progress: Callable[[int], None]) -> ErrorSpread:
    """Return upper bounds of the errors of running means of a tracker's estimates, over the HATs of the horizon.

    The days of `counts` are repeated. Errors of estimates are correlated, and the deviation of a weighted mean is at
    most the weighted mean of the deviations. Estimates of a date are those at the close of each slot, and on later
    dates those at its end. Calls `progress` with 1 after each day.
    """
    limit = daily_cost(stream)
    price = rounded_price(default_price(limit, stream.bound, Objective.CELLS))
    forecast = Forecast(TrackerKeys(nano_floor(limit), price), Prior.of(stream.bound), counts)
    settled: dict[int, float] = defaultdict(float)  # by cell: users times deviation, of the dates before
    running: dict[int, int] = defaultdict(int)
    found = []
    for day, (live, end) in enumerate(forecast.deviations(stream.days, ())):
        slots = counts.days[day % len(counts.days)]
        today = settled.copy()
        for slot, deviations in zip(slots, live, strict=True):
            for hat, deviation in zip(slot.hats, deviations[0], strict=True):
                running[hat.cell] += len(hat.buses)
                today[hat.cell] += len(hat.buses) * deviation
                found.append(today[hat.cell] / running[hat.cell])
        for hat, deviation in zip((hat for slot in slots for hat in slot.hats), end[0], strict=True):
            settled[hat.cell] += len(hat.buses) * deviation
        progress(1)
    return ErrorSpread.of(np.array(found))


@dataclass(frozen=True, slots=True)
class Observed:
    """Participation in recordings."""

    presence: Presence  # without limits
    cut: float  # share of the entries that the declared participation cuts
    counts: CountedDays | None  # of the HATs with enough users, for a tracker; None if the slots are not hours


@dataclass(frozen=True, slots=True)
class Free:
    """Errors of running means without a continual policy, at the same cost of a day."""

    daily_cost: float  # epsilon that a user's day can lose
    release_epsilon: float  # of one HAT
    releases: ErrorSpread  # of releases, with users that have one value in a HAT
    tracker: ErrorSpread | None  # of a tracker, at most; None: without counts

    def best(self, criterion: Criterion) -> float:
        """Return the least error of the running mean."""
        known = (each for each in (self.releases, self.tracker) if each is not None)
        return min(each.by(criterion) for each in known)


@dataclass(frozen=True, slots=True, eq=False)
class ContinualPlan:
    """Errors of each kind, in the order of the kinds, and of the free alternatives."""

    stream: PlannedSums
    users: UsersBySlot
    criterion: Criterion
    candidates: tuple[Candidate, ...]
    best: Candidate  # the candidate with the least error by the criterion
    free: Free
    constant: float  # error of publishing the middle of the value's range, if values are spread evenly over it
    observed: Observed | None  # None: without recordings

    @property
    def per_slot_is_best(self) -> bool:
        """Whether the best kind adds noise to each slot alone."""
        return self.best.kind in INDEPENDENT


def choose(
    stream: PlannedSums,
    users: UsersBySlot,
    criterion: Criterion,
    observed: Observed | None,
    progress: Callable[[int], None] = lambda _: None,
) -> ContinualPlan:
    """Compare all kinds, and take the one with the least error.

    Calls `progress` with 1 for each day of a tracker that is planned, which takes longest.
    """
    candidates = compare(stream, users, criterion)
    counts = None if observed is None else observed.counts
    # Each user has one value in a HAT, whose noise is independent, as that of kind `laplace` for a user in one slot.
    participation = stream.participation
    one = replace(participation, max_slots=1, min_separation=1)
    # At the same cost of a day: a user's day enters as many HATs as are declared.
    a_day = min(participation.max_slots, -(-stream.day_slots // participation.min_separation))
    of_hats = replace(stream, participation=one, epsilon=stream.epsilon / a_day)
    noise = run_of(KINDS[ContinualKind.LAPLACE](of_hats.setting(NoiseKind.LAPLACE)), users)
    alternatives = Free(
        daily_cost(stream),
        of_hats.epsilon,
        errors_of(noise, users, stream.bound).mean,
        None if counts is None else tracker_errors(stream, counts, progress),
    )
    best = min(candidates, key=lambda each: each.errors.by(criterion))
    return ContinualPlan(
        stream, users, criterion, tuple(candidates), best, alternatives, _UNIFORM * stream.bound, observed
    )
