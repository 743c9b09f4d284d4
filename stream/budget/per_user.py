"""What a policy by itself can cost one user's day, before anything is released: all of it follows from the policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from hatcast.stream.accounting.composition import composed_epsilon
from hatcast.stream.accounting.ledger import Reserved, user_charges
from hatcast.stream.hybrid import gaussian_epsilon
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import reservations
from hatcast.stream.units import NANO


@dataclass(frozen=True, slots=True)
class DayLoss:
    """The most that one user's day can lose under one policy. Charges are integers of 1e-9 epsilon.

    places   in how many HATs that day can be
    epsilon  of the release of one of them
    queries  by name: what each costs the day
    limit    of the day, for all policies of the telemetry topic together
    gaussian (releases, delta) -> their epsilon, where noise is Gaussian: then every bound of a day is one with the
             policy's delta; None: bounds are pure
    """

    places: int
    epsilon: int
    queries: Mapping[str, Reserved]
    limit: int
    gaussian: Callable[[int, float], float] | None = None

    @property
    def hats(self) -> int:
        """Of the releases of all its HATs."""
        return self.places * self.epsilon

    @property
    def reserved(self) -> int:
        """Of all queries."""
        return sum(query.amount for query in self.queries.values())

    @property
    def bound(self) -> int:
        """Of all together: no more than the limit, unless a private choice of cells alone has cost more."""
        return max(min(self.hats + self.reserved, self.limit), self.reserved)

    @property
    def place(self) -> int:
        """Of all that reads one HAT: its release and each query's answer."""
        return self.epsilon + sum(query.epsilon for query in self.queries.values())

    def over(self, days: int, total_limit: int | None) -> int:
        """Of so many days of the same user; `total_limit` is that of unit `user`."""
        lost = days * self.bound
        return lost if total_limit is None else min(lost, total_limit)

    def finer(self, days: int, delta: float) -> float:
        """The epsilon of (epsilon, delta) of so many days, whatever noise is used; never above `days` times `bound`.

        With Gaussian noise that bound holds for `days` times the policy's delta, so for several days it is no limit.
        Over one day all charges compose. Over several only those of releases do: one answer of a query reads many days
        of the same user, and what it loses over them is no smaller than their sum (docs/privacy.md).
        """
        if self.gaussian is not None:
            releases = min(self.places, self.limit // self.epsilon) if self.epsilon else 0
            finer = self.gaussian(days * releases, delta) + days * self.reserved / NANO
            return min(finer, self.bound / NANO) if days == 1 else finer
        if days == 1:
            charges = user_charges({self.epsilon: self.places}, self.places, self.queries.values())
            finer = composed_epsilon(charges, delta)
        else:
            finer = composed_epsilon({self.epsilon: days * self.places}, delta) + days * self.reserved / NANO
        return min(finer, days * self.bound / NANO)


def day_loss(policy: Policy, date: str | None = None) -> DayLoss:
    """Of a local date, with the queries that read it; without one of a day that every query reads."""
    every = {query.name: Reserved(policy.most_hats, query.epsilon_nano) for query in policy.queries}
    return DayLoss(
        places=policy.most_hats,
        epsilon=policy.epsilon_nano,
        queries=every if date is None else reservations(policy, date),
        limit=policy.daily_limit_nano,
        gaussian=None if policy.is_pure else partial(gaussian_epsilon, policy),
    )
