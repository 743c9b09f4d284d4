"""What a query over days is: what is kept of each day in, one noisy number out."""

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
from hatcast.stream.policy.query_keys import Kind, MissingDays, Query

Column = NDArray[np.int64]


class Reason(StrEnum):
    """Why a query is suppressed. Both are public under `replace`; under `add_remove` only the second can be."""

    TOO_FEW_USER_DAYS = "too_few_user_days"
    MISSING_DAYS = "missing_days"


@dataclass(frozen=True, slots=True, eq=False)
class RetainedDay:
    """What is kept of one cell, slot and date: one row for each user that was there, in no order that tells who.

    counts, sums, maxima   int64 [n]  readings; milli-units: their sum, the greatest, each reading cut to [0, U]
    """

    counts: Column
    sums: Column
    maxima: Column

    @classmethod
    def of(cls, kept: Sequence[bytes]) -> Self:
        """From stripped chunks, of all partitions. Raises ValueError on bytes of another version."""
        read = [columns for part in kept for columns in stripped_columns(part)]
        if not read:
            nobody = np.empty(0, np.int64)
            return cls(nobody, nobody, nobody)
        return cls(*(np.concatenate(column) for column in zip(*read, strict=True)))


class QueryKind(Protocol):
    """One kind of query, in one file. Its docstring gives formula, source and proof.

    Law (tests/laws/test_queries.py): another user's day moves `value` by at most `sensitivity`; under `replace` the
    other day is of the same user count, under `add_remove` a user comes or goes on one date.
    """

    @property
    def unit(self) -> str:
        """Of what is published."""
        ...

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """What is published, but for noise, exactly, in milli-units of `unit`. Private.

        days   those that are not missing, at least one
        """
        ...

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """The most that one user's day can move `value`, in milli-units. Public where `user_days` is, or is not used.

        days   that are not missing
        """
        ...

    def top(self, policy: Policy) -> int | None:
        """The greatest value in milli-units; None: there is none."""
        ...


_NO_TOP: Final = 2**60


@dataclass(frozen=True, slots=True)
class Answer:
    """What may be published of a query, one cell, one slot and one period.

    estimate   None: suppressed
    reason     why; None where it is not
    missing    the dates of the period without data
    user_days  public under `replace`; None under `add_remove`
    """

    estimate: Estimate | None
    reason: Reason | None
    missing: tuple[str, ...]
    user_days: int | None


def answerer(
    kinds: Mapping[Kind, QueryKind],
) -> Callable[[Policy, Query, Mapping[str, RetainedDay | None], Noise], Answer]:
    """The function that answers a query of one of these kinds."""

    def answer_of(policy: Policy, query: Query, days: Mapping[str, RetainedDay | None], noise: Noise) -> Answer:
        """Answer a query about one cell and slot, for its charge at most.

        days   every date of the period, in order -> what is kept of it; None: the date is missing
        """
        missing = tuple(date for date, day in days.items() if day is None)
        there = [day for day in days.values() if day is not None]
        user_days = sum(len(day.counts) for day in there)
        public = None if policy.relation == "add_remove" else user_days
        if not there or (missing and query.missing_days is MissingDays.SUPPRESS):
            return Answer(None, Reason.MISSING_DAYS, missing, public)
        if user_days < query.min_n:
            return Answer(None, Reason.TOO_FEW_USER_DAYS, missing, public)
        kind, grid = kinds[query.kind], Grid(policy.grid)
        sensitivity = kind.sensitivity(user_days, len(there), policy)
        noisy = noise.laplace(
            grid.nearest(kind.value(there, query)), grid.distance(sensitivity), _epsilon(query, sensitivity)
        )
        top = kind.top(policy)
        return Answer(Estimate.of_laplace(noisy, _NO_TOP if top is None else grid.floor(top)), None, missing, public)

    return answer_of


def _epsilon(query: Query, sensitivity: Fraction) -> float:
    """What the noise is made for: never more than the charge.

    With `scale` B it is sensitivity / B, rounded down. For `mean_speed` that is U / (N B), and N is at least min_n. For
    `over_speed_limit` it is 1 / (days B), which is more than the charge where days are missing: then the charge, and
    the noise is wider than B.
    """
    if query.epsilon is not None:
        return query.epsilon
    if query.scale is None:
        raise ValueError("a query has an epsilon or a scale")
    exact = min(sensitivity / query.scale, Fraction(query.epsilon_nano, 10**9))
    epsilon = float(exact)
    return epsilon if Fraction(epsilon) <= exact else math.nextafter(epsilon, 0.0)
