"""`[[policy.query]]`: queries over several days, their cost, and the periods that they are answered for.

A query is answered once per period for every cell and slot. Periods have `days` days; the first begins at `from`.
[docs/specification/estimators.md, section 7]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import Annotated, Final, Self

import msgspec

from hatcast.stream.errors import SettingError, name_fix
from hatcast.stream.policy.checks import check_name
from hatcast.stream.policy.estimator_keys import Relation
from hatcast.stream.policy.table import WEAK_EPSILON, PolicyTable
from hatcast.stream.policy.toml_tables import check_within, decode_table, member, plain_date, such_as
from hatcast.stream.policy.value_keys import SPEED, Value
from hatcast.stream.readings.reading import in_milli, to_milli
from hatcast.stream.units import NANO, nano_ceil, nano_floor

CELL_SELECTION: Final = "cells"  # name of the private selection of cells where queries are listed
TRACKER_QUERIES: Final = "tracker"  # name of what all queries of a tracker reserve together
RUNNING_SUMS: Final = "continual"  # name of what the running sums of a horizon reserve on each of its dates


class Kind(StrEnum):
    """Kind of a query.    [T II.D]"""

    MEAN_SPEED = "mean_speed"
    OVER_SPEED_LIMIT = "over_speed_limit"


KINDS_OF_VALUE: Final[Mapping[str, Kind]] = {"mean_value": Kind.MEAN_SPEED, "over_threshold": Kind.OVER_SPEED_LIMIT}
"""Names of the kinds in a policy of another value than the speed"""


class MissingDays(StrEnum):
    """Handling of days without data: suppress the answer, or leave these days out."""

    SUPPRESS = "suppress"
    LEAVE_OUT = "leave_out"


@dataclass(frozen=True, slots=True)
class Period:
    """Local dates of one answer, first and last included."""

    first: date
    days: int

    @property
    def last(self) -> date:
        """The last date: the query is answered after it, and its records are stored under it."""
        return self.first + timedelta(days=self.days - 1)

    @property
    def dates(self) -> list[str]:
        """The local dates in ascending order."""
        return [(self.first + timedelta(days=day)).isoformat() for day in range(self.days)]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a policy."""

    name: str
    kind: Kind
    days: int  # D, length of a period
    first: date  # first date of the first period
    epsilon_nano: int  # charge of one answer on each of its days, in 1e-9, rounded up
    epsilon: float | None  # as configured; None if `scale` is configured
    # B, of the Laplace noise in milli-units (of a reading, or of vehicles); None if `epsilon` is configured
    scale: Fraction | None
    min_n: int  # `mean_speed` is suppressed below this number of user-days; 0 for the other kind
    # of `over_speed_limit`: milli-units above the value's lower bound; 0 for the other kind; None: not answered unless
    # one is requested
    speed_limit: int | None
    missing_days: MissingDays
    canonical: dict[str, str | int | float] = field(compare=False, repr=False)  # the part that is hashed into policy_id
    # an operator may request a speed limit for each period, once; `speed_limit` is used without a request
    on_request: bool = False
    kind_name: str = ""  # name of the kind in the policy and in records

    def period_of(self, day: str) -> Period | None:
        """Return the period that contains a local date; None before the first period."""
        past = (date.fromisoformat(day) - self.first).days
        if past < 0:
            return None
        return Period(self.first + timedelta(days=past - past % self.days), self.days)


DAYS_MAX: Final = 366
_QUERIES_MAX: Final = 16
_EPSILON_MIN: Final = 0.001
_EPSILON_MAX: Final = 10**6
_YEARS: Final = range(3, 9990)
_EPOCH: Final = date(1970, 1, 1)  # first date of periods of one day: any date gives the same periods


class QueryTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.query]]` as written: `scale` in the unit of the answer, `speed_limit` in the unit of readings."""

    name: Annotated[str, such_as("fast-buses")]
    """as `policy.name`; unique among the queries"""
    kind: Annotated[str, such_as("over_speed_limit")]
    """`mean_speed` (only under `replace`) or `over_speed_limit`; with `[policy.value]` `mean_value` or
    `over_threshold`"""
    days: Annotated[int, such_as(31)]
    """length of each period, 1 to 366"""
    from_date: Annotated[str | None, such_as("2022-01-01", default="`policy.from`")] = msgspec.field(
        default=None, name="from"
    )
    """the first local date of the first period, not before `policy.from`; required if there is none and `days` is
    above 1"""
    epsilon: Annotated[float | None, such_as(0.1, default="this or `scale`")] = None
    """charge of one answer for its cell and slot, on each of its days: 0.001 or more"""
    scale: Annotated[float | None, such_as(1.0, default="this or `epsilon`")] = None
    """B of the Laplace noise, in the unit of readings up to U, or in vehicles per day: an answer's charge is then U
    / (`min_n` B), or 1 / (`days` B)"""
    min_n: Annotated[int | None, such_as(310, default="required for `mean_speed`")] = None
    """only `mean_speed` and `mean_value`: an answer with fewer user-days is `suppressed`; 1 or more"""
    speed_limit: Annotated[
        float | None, such_as(50.0, default="required for `over_speed_limit` without `on_request`")
    ] = None
    """only `over_speed_limit`: km/h in [0, `upper_bound`); strictly faster vehicles count"""
    threshold: Annotated[float | None, such_as(300.0, default="required for `over_threshold` without `on_request`")] = (
        None
    )
    """only `over_threshold`: in the unit of `[policy.value]`, from `lower` to below `upper`; vehicles with a greater
    value count"""
    on_request: bool = False
    """only `over_speed_limit` and `over_threshold`, under `replace`: `hatcast query` may request a limit for each
    period ([queries](queries.md#a-limit-of-your-choice)); without a request the policy's is used"""
    missing_days: str = "suppress"
    """a period with missing days has no answers; `leave_out`: it is answered over the other days"""


@dataclass(frozen=True, slots=True)
class _Words:
    """Names and units of the queries of one policy."""

    kinds: Mapping[str, Kind]  # by name in the policy
    limit: str  # key of the limit of `over_speed_limit`
    unit: str
    lower: int  # of the value, milli-units
    upper: int

    @classmethod
    def of(cls, given: PolicyTable, value: Value | None) -> Self:
        """Return the names for a policy. value: of `[policy.value]`; None: the speed."""
        lower, upper = (0, to_milli(given.upper_bound, "km/h")) if value is None else (value.lower, value.upper)
        if value is None or value.name == SPEED:
            return cls({kind.value: kind for kind in Kind}, "speed_limit", "km/h", lower, upper)
        return cls(KINDS_OF_VALUE, "threshold", value.unit, lower, upper)

    def name(self, kind: Kind) -> str:
        """Return the name of a kind."""
        return next(name for name, each in self.kinds.items() if each is kind)


def read_queries(given: PolicyTable, relation: Relation, value: Value | None = None) -> tuple[Query, ...]:
    """Return the queries of a policy whose other keys are already checked. Raises SettingError.

    value   of `[policy.value]`; None: the speed
    """
    words = _Words.of(given, value)
    if len(given.query) > _QUERIES_MAX:
        raise SettingError("policy.query", f"{len(given.query)} queries", f"write at most {_QUERIES_MAX}")
    queries = [
        _query(given, decode_table(table, QueryTable, f"policy.query[{at}]"), relation, words, f"policy.query[{at}]")
        for at, table in enumerate(given.query)
    ]
    names = [query.name for query in queries]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SettingError(f"policy.query[{at}].name", f"{name!r} is used twice", "give each query its own name")
    return tuple(queries)


def check_queries(given: PolicyTable, queries: Sequence[Query], most_hats: int) -> None:
    """Check that the queries leave enough of a day's limit for its HATs. Raises SettingError.

    Under `replace` enough for one HAT, under `add_remove` for all of them: see `check_add_remove`.
    """
    if not queries:
        return
    privacy = given.privacy
    reserved = most_hats * sum(query.epsilon_nano for query in queries)
    hats = most_hats if privacy.relation == Relation.ADD_REMOVE else 1
    needed = reserved + hats * nano_ceil(privacy.epsilon)
    for key, limit in (("daily_limit", privacy.daily_limit), ("total_limit", privacy.total_limit)):
        if limit is not None and needed > nano_floor(limit):
            raise SettingError(
                f"policy.privacy.{key}",
                f"{limit:g} is below {needed / NANO:g}: the queries cost a user {reserved / NANO:g} on each of their"
                f" days ({most_hats} HATs), and {hats} HAT{'s' if hats > 1 else ''} {hats * privacy.epsilon:g}",
                f"raise {key}, or lower the queries' epsilon or max_hats_per_day",
            )


def _query(given: PolicyTable, table: QueryTable, relation: Relation, words: _Words, where: str) -> Query:
    check_name(table.name, f"{where}.name")
    if table.name == CELL_SELECTION:
        raise SettingError(
            f"{where}.name", f"{CELL_SELECTION!r} is reserved for a private selection of cells", "use another name"
        )
    if table.kind not in words.kinds:
        raise SettingError(f"{where}.kind", f"{table.kind!r} is not a kind of query", name_fix(table.kind, words.kinds))
    check_within(table.days, 1, DAYS_MAX, f"{where}.days", "is not a valid number of days")
    missing_days = member(MissingDays, table.missing_days, f"{where}.missing_days")
    kind = words.kinds[table.kind]
    _check_kind(table, words, relation, where)
    charge = _charge_nano(given, table, kind, where)
    first = _first_date(given, table, where)
    written = table.speed_limit if words.limit == "speed_limit" else table.threshold
    limit = None if written is None else in_milli(written)
    optional = {"min_n": table.min_n, words.limit: limit, "epsilon": table.epsilon, "scale": table.scale}
    optional["on_request"] = True if table.on_request else None  # left out: a policy of before keeps its id
    return Query(
        name=table.name,
        kind=kind,
        days=table.days,
        first=first,
        epsilon_nano=charge,
        epsilon=table.epsilon,
        scale=None if table.scale is None else Fraction(repr(table.scale)) * 1000,
        min_n=table.min_n or 0,
        speed_limit=0 if kind is Kind.MEAN_SPEED else None if limit is None else limit - words.lower,
        missing_days=missing_days,
        canonical={
            "name": table.name,
            "kind": table.kind,
            "days": table.days,
            "from": first.isoformat(),
            "missing_days": table.missing_days,
            **{key: value for key, value in optional.items() if value is not None},
        },
        on_request=table.on_request,
        kind_name=table.kind,
    )


def _check_kind(table: QueryTable, words: _Words, relation: Relation, where: str) -> None:
    """Check the keys that a kind requires, and those that it does not use."""
    limit, mean = _limit_of(table, words, where), words.name(Kind.MEAN_SPEED)
    if table.kind == mean:
        if relation is Relation.ADD_REMOVE:
            raise SettingError(
                f"{where}.kind",
                f"{mean} divides by the number of user-days, which add_remove hides",
                f'use "{words.name(Kind.OVER_SPEED_LIMIT)}", or relation = "replace"',
            )
        for key, is_given in ((words.limit, limit is not None), ("on_request", table.on_request)):
            if is_given:
                raise SettingError(f"{where}.{key}", f"is not used by {mean}", "remove it")
        if table.min_n is None or not 1 <= table.min_n <= 10**9:
            raise SettingError(
                f"{where}.min_n",
                "is missing" if table.min_n is None else f"{table.min_n} is not a number of user-days",
                "write the least number of user-days that is answered, such as min_n = 310",
            )
        return
    if table.min_n is not None:
        raise SettingError(f"{where}.min_n", f"is not used by {table.kind}", "remove it")
    if table.on_request and relation is Relation.ADD_REMOVE:
        raise SettingError(
            f"{where}.on_request",
            "needs public instants of requests, which add_remove has not",
            f'write a {words.limit} instead, or relation = "replace"',
        )
    if limit is not None or not table.on_request:
        _check_limit(limit, table, words, where)


def _limit_of(table: QueryTable, words: _Words, where: str) -> float | None:
    """Return the limit as written; None without one. Raises SettingError for the key of other policies."""
    limits = {"speed_limit": table.speed_limit, "threshold": table.threshold}
    limit = limits.pop(words.limit)
    for key, other in limits.items():
        if other is not None:
            raise SettingError(
                f"{where}.{key}", "is not used by this policy's value", f"write {words.limit}, in {words.unit}"
            )
    return limit


def _check_limit(limit: float | None, table: QueryTable, words: _Words, where: str) -> None:
    """Check that the limit of `over_speed_limit` is within the range of values."""
    lower, upper = words.lower / 1000, words.upper / 1000
    if limit is None or not lower <= limit < upper:
        top, values = ("upper_bound", "speed") if words.limit == "speed_limit" else ("upper", "value")
        example = "50.0" if words.limit == "speed_limit" else f"{(lower + upper) / 2:g}"
        problem = "is missing"
        if limit is not None:
            problem = f"{limit:g} is not below {top} {upper:g}, so no {values} exceeds it"
        if limit is not None and limit < lower < 0:
            problem = f"{limit:g} is below lower {lower:g}, as which smaller values count"
        raise SettingError(
            f"{where}.{words.limit}",
            problem,
            f"write {words.unit} in [{lower:g}, {top}), such as {example}"
            + ("" if table.on_request else ", or on_request = true"),
        )


def _charge_nano(given: PolicyTable, table: QueryTable, kind: Kind, where: str) -> int:
    """Return the charge of one answer in 1e-9: as configured, or as `scale` gives it."""
    if table.epsilon is not None and table.scale is None:
        key, exact = f"{where}.epsilon", _checked_epsilon(table.epsilon, f"{where}.epsilon")
    elif table.scale is not None and table.epsilon is None:
        key, exact = f"{where}.scale", _epsilon_of_scale(given, table, table.scale, kind, f"{where}.scale")
    else:
        raise SettingError(where, "needs either epsilon or scale", "write one of them, such as epsilon = 0.1")
    if exact > WEAK_EPSILON and not given.privacy.acknowledge_weak_privacy:
        raise SettingError(
            key,
            f"gives epsilon {float(exact):g}, which is hardly any privacy",
            f"keep epsilon at or below {WEAK_EPSILON:g}, or set acknowledge_weak_privacy = true",
        )
    return ceil(exact * NANO)


def _checked_epsilon(epsilon: float, key: str) -> Fraction:
    # At the smallest epsilon the noise still fits in 64 bits on the finest grid.
    if not _EPSILON_MIN <= epsilon <= _EPSILON_MAX:
        raise SettingError(
            key, f"{epsilon:g} is not a valid epsilon", f"use {_EPSILON_MIN:g} to {_EPSILON_MAX}, such as 0.1"
        )
    return Fraction(Decimal(repr(epsilon)))


def _epsilon_of_scale(given: PolicyTable, table: QueryTable, scale: float, kind: Kind, key: str) -> Fraction:
    """Return epsilon for Laplace noise of scale B: U / (min_n B) for a mean, else 1 / (D B)."""
    scale_max = given.upper_bound if kind is Kind.MEAN_SPEED else 1e6  # keeps the noise far below 64 bits
    if not 0 < scale <= scale_max:
        raise SettingError(key, f"{scale:g} is not between 0 and {scale_max:g}", "use a number such as 1.0")
    numerator = Fraction(1, table.days)
    if kind is Kind.MEAN_SPEED:
        numerator = Fraction(repr(given.upper_bound)) / (table.min_n or 1)
    exact = numerator / Fraction(Decimal(repr(scale)))
    if exact > _EPSILON_MAX:
        least = float(numerator / _EPSILON_MAX)
        raise SettingError(key, f"{scale:g} is hardly any noise", f"use a number of at least {least:g}")
    return exact


def _first_date(given: PolicyTable, table: QueryTable, where: str) -> date:
    """Return the first date of the first period."""
    text = table.from_date or given.from_date
    if text is None:
        if table.days > 1:
            raise SettingError(
                f"{where}.from", "is missing", 'write the first local date of a period, such as "2022-01-01"'
            )
        return _EPOCH
    first = plain_date(text, f"{where}.from", "2022-01-01", _YEARS)
    if given.from_date is not None and text < given.from_date:
        raise SettingError(
            f"{where}.from", f"{text} is before policy.from {given.from_date}", "use that date or a later one"
        )
    return first
