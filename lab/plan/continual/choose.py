"""Choose the kind of a continual policy, and compare it with running means that cost nothing more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hatcast.lab.plan.continual import free
from hatcast.lab.plan.continual.criterion import Criterion
from hatcast.lab.plan.continual.kinds import (
    INDEPENDENT,
    Candidate,
    Spread,
    Stream,
    compare,
)
from hatcast.lab.plan.continual.presence import Presence
from hatcast.lab.plan.continual.users import Users
from hatcast.lab.plan.counts import Counts

_UNIFORM: Final = 12**-0.5  # standard deviation of values spread evenly over a range of width 1


@dataclass(frozen=True, slots=True)
class Observed:
    """Participation in recordings.

    presence   without limits
    cut        share of the entries that the declared participation cuts
    counts     of the HATs with enough users, for a tracker; None if the slots are not hours
    """

    presence: Presence
    cut: float
    counts: Counts | None


@dataclass(frozen=True, slots=True)
class Free:
    """Errors of running means without a continual policy, at the same cost of a day.

    daily_cost        epsilon that a user's day can lose
    release_epsilon   of one HAT
    releases          of releases, with users that have one value in a HAT
    tracker           of a tracker, at most; None: without counts
    """

    daily_cost: float
    release_epsilon: float
    releases: Spread
    tracker: Spread | None

    def best(self, criterion: Criterion) -> float:
        """Return the least error of the running mean."""
        known = (each for each in (self.releases, self.tracker) if each is not None)
        return min(each.by(criterion) for each in known)


@dataclass(frozen=True, slots=True, eq=False)
class ContinualPlan:
    """Errors of each kind, in the order of the kinds, and of the free alternatives.

    best       the candidate with the least error by the criterion
    constant   error of publishing the middle of the value's range, if values are spread evenly over it
    observed   None: without recordings
    """

    stream: Stream
    users: Users
    criterion: Criterion
    candidates: tuple[Candidate, ...]
    best: Candidate
    free: Free
    constant: float
    observed: Observed | None

    @property
    def per_slot_is_best(self) -> bool:
        """Whether the best kind adds noise to each slot alone."""
        return self.best.kind in INDEPENDENT

    @property
    def runner_up(self) -> Candidate:
        """The best candidate of the other sort: with noise of each slot alone if the best one has not, or without."""
        others = [each for each in self.candidates if (each.kind in INDEPENDENT) != self.per_slot_is_best]
        return min(others, key=lambda each: each.errors.by(self.criterion))

    @property
    def free_is_best(self) -> bool:
        """Whether a free running mean has a smaller error than the running mean of the best kind."""
        return self.free.best(self.criterion) < self.best.errors.mean.by(self.criterion)


def choose(
    stream: Stream,
    users: Users,
    criterion: Criterion,
    observed: Observed | None,
    progress: Callable[[int], None] = lambda _: None,
) -> ContinualPlan:
    """Compare all kinds, and take the one with the least error.

    Calls `progress` with 1 for each day of a tracker that is planned, which takes longest.
    """
    candidates = compare(stream, users, criterion)
    counts = None if observed is None else observed.counts
    alternatives = Free(
        free.daily_cost(stream),
        free.release_epsilon(stream),
        free.release_errors(stream, users).mean,
        None if counts is None else free.tracker_errors(stream, counts, progress),
    )
    best = min(candidates, key=lambda each: each.errors.by(criterion))
    return ContinualPlan(
        stream, users, criterion, tuple(candidates), best, alternatives, _UNIFORM * stream.bound, observed
    )
