"""Largest privacy loss of one user's day under a policy, computed from the policy alone, before any release."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.hybrid import gaussian_epsilon
from hatcast.stream.ledger.day import Reserved, own_reservation, reservations, user_charges
from hatcast.stream.policy.continual_keys import ContinualKeys
from hatcast.stream.policy.method import NoiseKind
from hatcast.stream.policy.policy import HybridKeys, Policy
from hatcast.stream.policy.query import TRACKER_QUERIES
from hatcast.stream.release.spending import charge_split, usual_fineness
from hatcast.stream.units import NANO


@dataclass(frozen=True, slots=True)
class DayLoss:
    """Largest privacy loss of one user's day under one policy. Charges are integers in 1e-9 epsilon."""

    most_hats: int  # most HATs that the day can enter
    epsilon: int  # charge of the release of one HAT
    queries: Mapping[str, Reserved]  # budget that each query reserves of the day, by name
    limit: int  # daily limit, for all policies of the telemetry topic together
    # (number of releases, delta) -> epsilon of their composition, with Gaussian noise: then every bound of a day holds
    # with the policy's delta; None: bounds are pure epsilon
    gaussian: Callable[[int, float], float] | None = None
    # what the charge of a HAT pays for, unless noise is finer than its `fineness`; None: any mechanism
    split: ChargeSplit | None = None
    # of running sums: the reservation of a day is then that of all days of its horizon; None: without
    horizon: ContinualKeys | None = None

    @property
    def hats(self) -> int:
        """Charge of the releases of all its HATs."""
        return self.most_hats * self.epsilon

    @property
    def reserved(self) -> int:
        """Budget reserved for all queries."""
        return sum(query.amount for query in self.queries.values())

    @property
    def bound(self) -> int:
        """Total charge: at most the limit, unless a private selection of cells alone has cost more."""
        return max(min(self.hats + self.reserved, self.limit), self.reserved)

    @property
    def per_hat(self) -> int:
        """Charge of everything that reads one HAT: its release and the answer of each query."""
        return self.epsilon + sum(query.epsilon for query in self.queries.values())

    def over_days(self, days: int, total_limit: int | None) -> int:
        """Return the bound over `days` days of the same user; `total_limit` is that of unit `user`."""
        lost = self.charged(days) * self.bound
        return lost if total_limit is None else min(lost, total_limit)

    def epsilon_at_delta(self, days: int, delta: float) -> float:
        """Return the composed epsilon over `days` days at `delta`; with pure charges at most the bound.

        Charges of HATs compose by what they pay for, all others as those of any mechanism. The bound is `days` times
        `bound`. With Gaussian noise it holds at `days` times the policy's delta, so it caps the result for a single
        day only.
        Over one day all charges compose. Over several days only those of releases and of a tracker do: one answer of a
        query reads many days of the same user, and its loss over them is no smaller than the sum of its charges
        (docs/proofs.md).
        """
        releases = min(self.most_hats, self.limit // self.epsilon) if self.epsilon else 0
        if self.gaussian is not None:
            epsilon = self.gaussian(days * releases, delta) + days * self.reserved / NANO
            return min(epsilon, self.bound / NANO) if days == 1 else epsilon
        if self.horizon is not None:
            return self._horizons_epsilon(days, self.horizon, delta)
        if days == 1:
            charges = user_charges({self.epsilon: releases}, releases, self.queries.values())
            epsilon = composed_epsilon(charges, delta, self._known(releases))
        else:
            tracker = self.queries.get(TRACKER_QUERIES, Reserved(0, 0)).amount  # each of its queries reads one day
            levels = Counter({self.epsilon: days * releases}) + Counter({tracker: days})
            epsilon = (
                composed_epsilon(levels, delta, self._known(days * releases)) + days * (self.reserved - tracker) / NANO
            )
        return min(epsilon, days * self.bound / NANO)

    def _known(self, releases: int) -> KnownCharges | None:
        return None if self.split is None else KnownCharges(self.epsilon, releases, self.split)

    def charged(self, days: int) -> int:
        """Return how often the bound is charged over this many days: once a day, or once a horizon."""
        return days if self.horizon is None else self.horizon.horizons_in(days)

    def _horizons_epsilon(self, days: int, horizon: ContinualKeys, delta: float) -> float:
        """Return the composed epsilon of running sums over `days` days.

        With Laplace noise the sums of several cells and horizons compose as pure mechanisms do, although each of them
        is one stream of many records [Vadhan and Zhang 2023, concurrent composition]. With Gaussian noise each cell
        already has its part of the policy's delta: the sum is returned, and holds at that delta for each horizon.
        """
        times = horizon.horizons_in(days)
        if horizon.noise is NoiseKind.GAUSSIAN:
            return times * self.bound / NANO
        charges = user_charges({}, 0, times * list(self.queries.values()))
        return min(composed_epsilon(charges, delta), times * self.bound / NANO)


def day_loss(policy: Policy, date: str | None = None) -> DayLoss:
    """Return the loss of a local date with the queries that read it; None: of a day that every query reads."""
    keys = policy.method
    every = {query.name: Reserved(policy.most_hats, query.epsilon_nano) for query in policy.queries}
    return DayLoss(
        most_hats=policy.most_hats,
        epsilon=policy.epsilon_nano,
        queries=every | own_reservation(policy) if date is None else reservations(policy, date),
        limit=policy.daily_limit_nano,
        gaussian=partial(gaussian_epsilon, policy) if isinstance(keys, HybridKeys) and not keys.is_pure else None,
        split=charge_split(policy, usual_fineness(policy)),
        horizon=keys if isinstance(keys, ContinualKeys) else None,
    )


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Inputs of the report's figures; the defaults are the report's own numbers."""

    most_hats: int = 89  # K: most HATs that a bus entered on one day
    upper_bound: Fraction = Fraction(65)  # U, km/h
    # N: daily unique buses, summed over the days, in each of the K HATs with the fewest. The report uses a separate N
    # for each and prints only the smallest and the total; 468 in each gives that total
    user_days: int = 468
    days: int = 31  # D, of both queries
    scale: Fraction = Fraction(1)  # B of the Laplace noise: km/h for query 1, buses a day for query 2
    epsilon: Fraction = Fraction(1)  # of the mean that hatcast releases for each HAT and day; the report releases none


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Epsilon of one bus's day."""

    hats: Fraction  # for the means of all its HATs
    # query_1, query_2: for each query, over all its HATs
    query_1: Fraction
    query_2: Fraction

    @property
    def cumulative(self) -> Fraction:
        """Sum over both queries: the report's Cumulative-Epsilon-Per-Day."""
        return self.query_1 + self.query_2

    @property
    def total(self) -> Fraction:
        """Cost of all releases about the day."""
        return self.hats + self.cumulative


REPORT: Final = ReportSettings()
LEAST_USER_DAYS: Final = 314  # the smallest N of the report's HATs


def report_table(settings: ReportSettings = REPORT) -> ReportTable:
    """Return K times the cost of each release in one HAT: epsilon, U / (N B), 1 / (D B).

    With the report's numbers query 1 costs 12.361, query 2 costs 2.871, together 15.232, and with the means 104.232.
    """
    most_hats, scale = settings.most_hats, settings.scale
    return ReportTable(
        hats=most_hats * settings.epsilon,
        query_1=most_hats * settings.upper_bound / (settings.user_days * scale),
        query_2=most_hats / (settings.days * scale),
    )
