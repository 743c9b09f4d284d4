"""Queries over days: one answer about a cell and slot on D local dates, computed once all are over.    [T II.D]

Kinds are listed in `KINDS`. They read contributions retained per (day, user) at the release of a HAT:
`RetainedDay`. See docs/specification/estimators.md, section 7.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
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
from hatcast.stream.units import NANO, float_below

Column = NDArray[np.int64]
_FRACTION_BITS: Final = 20  # of milli-units
_GRID_OF_VALUES: Final = Decimal("0.001")


class SuppressionReason(StrEnum):
    """Reason for suppression. All are public under `replace`; under `add_remove` only MISSING_DAYS occurs."""

    NOT_REQUESTED = "not_requested"
    TOO_FEW_USER_DAYS = "too_few_user_days"
    MISSING_DAYS = "missing_days"


@dataclass(frozen=True, slots=True, eq=False)
class RetainedDay:
    """Retained contributions of one cell, slot and date: one row per user, in an order that does not identify users."""

    # counts, sums, maxima: int64 [n]  number, sum and maximum of the readings; milli-units above the value's lower
    # bound, readings clipped to [0, U]
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
    """One kind of query. Its docstring gives formula, source and proof.

    Law (tests/laws/test_queries.py): changing one user's day moves `value` by at most `sensitivity`. Under `replace`
    the changed day has the same count of the user; under `add_remove` a user is added or removed on one date.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of the published value."""

    def grid(self, policy: Policy) -> Grid:
        """Return the grid of the published value."""

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the exact value before noise, in milli-units of `unit`. Private.

        days   the days that are not missing, at least one
        """

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return the sensitivity of `value` to one user's day, in milli-units.

        Public if `user_days` is public or not used.
        days   number of days that are not missing
        """

    def top(self, policy: Policy) -> int | None:
        """Return the largest value in milli-units; None if values are unbounded."""


_NO_TOP: Final = 2**60


@dataclass(frozen=True, slots=True)
class Answer:
    """Publishable answer of a query about one cell, one slot and one period."""

    estimate: Estimate | None  # None if suppressed
    reason: SuppressionReason | None  # reason for suppression; None if not suppressed
    missing: tuple[str, ...]  # dates of the period without data
    user_days: int | None  # number of user-days, public under `replace`; None under `add_remove`


class MeanSpeed:
    """(1 / N) sum over the N user-days of s / c; s is the sum of the c readings of that user on that day, in [0, c U].

    Sensitivity (replace, one user's day): U / N. Counts, and so N and the set of user-days, are public and equal for
    neighbours; one summand moves within [0, U].

    Each s / c is rounded down to a multiple of 2^-20 milli-units, so the sum is exact in any order. Rounding down keeps
    it in [0, U], because U is such a multiple: the proof still holds, and the value is off by less than 1e-9 units.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of readings. See QueryKind."""
        return policy.released_value.unit

    def grid(self, policy: Policy) -> Grid:
        """Return the policy's grid. See QueryKind."""
        return Grid(policy.grid, policy.lower)

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the mean of day means. See QueryKind."""
        integers = fractions = user_days = 0
        for day in days:
            quotient, rest = np.divmod(day.sums, day.counts)
            integers += int(quotient.sum())
            fractions += int(((rest << _FRACTION_BITS) // day.counts).sum())  # rest < count < 2^31: within 64 bits
            user_days += len(day.counts)
        return Fraction((integers << _FRACTION_BITS) + fractions, user_days << _FRACTION_BITS)

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return U / N. See QueryKind."""
        return Fraction(policy.upper_bound, user_days)

    def top(self, policy: Policy) -> int | None:
        """Return U. See QueryKind."""
        return policy.upper_bound


MEAN_SPEED: Final = MeanSpeed()


class OverSpeedLimit:
    """(1 / D) sum over D days of the number of users whose maximum speed on that day is strictly above the limit.

    Sensitivity: 1 / D, under `replace` and `add_remove`. One user's day contributes 0 or 1 to one of the D numbers. D
    is public: the missing days follow from records that the log has lost, or under `replace` from counts.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of the number. See QueryKind."""
        return "vehicles/day"

    def grid(self, policy: Policy) -> Grid:
        """Return the grid of numbers: that of speeds, and a thousandth with another value. See QueryKind."""
        return Grid(policy.grid if policy.value is None else _GRID_OF_VALUES)

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the mean number. See QueryKind."""
        if query.speed_limit is None:
            raise ValueError("no speed limit was requested: the query is not answered")
        over = sum(int((day.maxima > query.speed_limit).sum()) for day in days)
        return Fraction(1000 * over, len(days))

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return 1 / D. See QueryKind."""
        return Fraction(1000, days)

    def top(self, policy: Policy) -> int | None:
        """Return None: the number is unbounded. See QueryKind."""
        return None


OVER_SPEED_LIMIT: Final = OverSpeedLimit()

KINDS: Final[Mapping[Kind, QueryKind]] = {Kind.MEAN_SPEED: MEAN_SPEED, Kind.OVER_SPEED_LIMIT: OVER_SPEED_LIMIT}


def answer_of(policy: Policy, query: Query, days: Mapping[str, RetainedDay | None], noise: Noise) -> Answer:
    """Answer a query about one cell and slot, for at most its charge.

    days   every date of the period, in order -> its retained contributions; None if the date is missing
    """
    missing = tuple(date for date, day in days.items() if day is None)
    present = [day for day in days.values() if day is not None]
    user_days = sum(len(day.counts) for day in present)
    public_user_days = None if policy.relation == "add_remove" else user_days
    if query.speed_limit is None:
        return Answer(None, SuppressionReason.NOT_REQUESTED, missing, public_user_days)
    if not present or (missing and query.missing_days is MissingDays.SUPPRESS):
        return Answer(None, SuppressionReason.MISSING_DAYS, missing, public_user_days)
    if user_days < query.min_n:
        return Answer(None, SuppressionReason.TOO_FEW_USER_DAYS, missing, public_user_days)
    kind = KINDS[query.kind]
    grid = kind.grid(policy)
    sensitivity = kind.sensitivity(user_days, len(present), policy)
    noisy = noise.laplace(
        grid.nearest(kind.value(present, query)), grid.distance(sensitivity), _epsilon(query, sensitivity)
    )
    top = kind.top(policy)
    estimate = Estimate.of_laplace(noisy, _NO_TOP if top is None else grid.floor(top))
    return Answer(estimate, None, missing, public_user_days)


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
    return float_below(min(sensitivity / query.scale, Fraction(query.epsilon_nano, NANO)))


def is_queried(policy: Policy, date: str) -> bool:
    """Return whether a query will read the contributions of HATs of a local date."""
    return any(query.period_of(date) is not None for query in policy.queries)
