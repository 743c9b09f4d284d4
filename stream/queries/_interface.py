"""Interface of queries over days: the retained contributions of each day in, one noisy number out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators import Estimate
from hatcast.stream.fold.packing import stripped_columns
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Kind, MissingDays, Query

Column = NDArray[np.int64]


class Reason(StrEnum):
    """Reason for suppression. All are public under `replace`; under `add_remove` only MISSING_DAYS occurs."""

    NOT_REQUESTED = "not_requested"
    TOO_FEW_USER_DAYS = "too_few_user_days"
    MISSING_DAYS = "missing_days"


@dataclass(frozen=True, slots=True, eq=False)
class RetainedDay:
    """Retained contributions of one cell, slot and date: one row per user, in an order that does not identify users.

    counts, sums, maxima   int64 [n]  number, sum and maximum of the readings; milli-units above the value's
                           lower bound, readings clipped to [0, U]
    """

    counts: Column
    sums: Column
    maxima: Column

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> Self:
        """Unpack stripped chunks of all partitions. Raises ValueError on bytes of another version."""
        read = [columns for chunk in chunks for columns in stripped_columns(chunk)]
        if not read:
            empty = np.empty(0, np.int64)
            return cls(empty, empty, empty)
        return cls(*(np.concatenate(column) for column in zip(*read, strict=True)))


class QueryKind(Protocol):
    """One kind of query, one per file. Its docstring gives formula, source and proof.

    Law (tests/laws/test_queries.py): changing one user's day moves `value` by at most `sensitivity`. Under `replace`
    the changed day has the same count of the user; under `add_remove` a user is added or removed on one date.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of the published value."""
        ...

    def grid(self, policy: Policy) -> Grid:
        """Return the grid of the published value."""
        ...

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the exact value before noise, in milli-units of `unit`. Private.

        days   the days that are not missing, at least one
        """
        ...

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return the sensitivity of `value` to one user's day, in milli-units.

        Public if `user_days` is public or not used.
        days   number of days that are not missing
        """
        ...

    def top(self, policy: Policy) -> int | None:
        """Return the largest value in milli-units; None if values are unbounded."""
        ...


_NO_TOP: Final = 2**60


@dataclass(frozen=True, slots=True)
class Answer:
    """Publishable answer of a query about one cell, one slot and one period.

    estimate   None if suppressed
    reason     reason for suppression; None if not suppressed
    missing    dates of the period without data
    user_days  number of user-days, public under `replace`; None under `add_remove`
    """

    estimate: Estimate | None
    reason: Reason | None
    missing: tuple[str, ...]
    user_days: int | None


def answerer(
    kinds: Mapping[Kind, QueryKind],
) -> Callable[[Policy, Query, Mapping[str, RetainedDay | None], Noise], Answer]:
    """Return the function that answers queries of these kinds."""

    def answer_of(policy: Policy, query: Query, days: Mapping[str, RetainedDay | None], noise: Noise) -> Answer:
        """Answer a query about one cell and slot, for at most its charge.

        days   every date of the period, in order -> its retained contributions; None if the date is missing
        """
        missing = tuple(date for date, day in days.items() if day is None)
        present = [day for day in days.values() if day is not None]
        user_days = sum(len(day.counts) for day in present)
        public_user_days = None if policy.relation == "add_remove" else user_days
        if query.speed_limit is None:
            return Answer(None, Reason.NOT_REQUESTED, missing, public_user_days)
        if not present or (missing and query.missing_days is MissingDays.SUPPRESS):
            return Answer(None, Reason.MISSING_DAYS, missing, public_user_days)
        if user_days < query.min_n:
            return Answer(None, Reason.TOO_FEW_USER_DAYS, missing, public_user_days)
        kind = kinds[query.kind]
        grid = kind.grid(policy)
        sensitivity = kind.sensitivity(user_days, len(present), policy)
        noisy = noise.laplace(
            grid.nearest(kind.value(present, query)), grid.distance(sensitivity), _epsilon(query, sensitivity)
        )
        top = kind.top(policy)
        estimate = Estimate.of_laplace(noisy, _NO_TOP if top is None else grid.floor(top))
        return Answer(estimate, None, missing, public_user_days)

    return answer_of


def _epsilon(query: Query, sensitivity: Fraction) -> float:
    """Return the epsilon of the noise, at most the charge.

    With `scale` B it is sensitivity / B, rounded down. For `mean_speed` that is U / (N B), and N is at least min_n. For
    `over_speed_limit` it is 1 / (days B), which exceeds the charge if days are missing: then it is the charge, and the
    noise is wider than B.
    """
    if query.epsilon is not None:
        return query.epsilon
    if query.scale is None:
        raise ValueError("a query needs an epsilon or a scale")
    exact = min(sensitivity / query.scale, Fraction(query.epsilon_nano, 10**9))
    epsilon = float(exact)
    return epsilon if Fraction(epsilon) <= exact else math.nextafter(epsilon, 0.0)
