"""Values of a reading: `[policy] values`, released together, or `[policy.value]`, one value in place of the speed.

Each value is a number of a reading, such as its speed or its delay, with a public range. `speed` is defined by
`upper_bound` and `grid`; every other of several values by a table `[[policy.value]]`.
[docs/specification/estimators.md, section 4]

One value is computed as its distance from `lower`, so `upper` - `lower` takes the place of `upper_bound` in every
estimator and sensitivity; published numbers have `lower` added (docs/proofs.md, "A value other than the speed").
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.estimator_keys import EstimatorKeys, MeansKeys, Relation
from hatcast.stream.policy.hybrid_keys import HybridKeys
from hatcast.stream.policy.method import Hashed
from hatcast.stream.policy.table import PolicyTable
from hatcast.stream.policy.toml_tables import decode_table, such_as
from hatcast.stream.readings.reading import in_milli, to_milli

SPEED: Final = "speed"
SPEED_UNIT: Final = "km/h"
VALUES_MAX: Final = 8
LARGEST: Final = 1e6  # of a value, in its unit
_LARGEST_MISSING: Final = 1e12  # such as 4294967295, the largest of 32 bits
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_FIX: Final = "use lower-case letters, digits and '_', a letter first"
_UNIT: Final = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,14}[^\s\x00-\x1f\x7f])?")
_VALUES: Final = "policy.values"
VALUE: Final = "policy.value"
_REPLACED: Final = {"upper_bound": "upper", "grid": "grid"}  # keys of [policy], by what replaces each
_DEFAULTS: Final[Mapping[str, Any]] = {"reject_above": "none", "drop_zero": False}


class ValueTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.value]]` or the `[policy.value]` as written: `lower`, `upper`, `grid` and `missing` in `unit`."""

    name: Annotated[str, such_as("delay")]
    """lower-case letters, digits, `_`: the field of a `jsonl` record, or `delay` of `hfp`
    ([feeds.md](feeds.md#a-value-other-than-the-speed)). In `[policy.value]` also `speed`, in km/h"""
    unit: Annotated[str, such_as("s")]
    """such as `"s"`: of the number in the reading, of the keys below and of what is released"""
    lower: Annotated[float, such_as(-600)]
    """smaller values count as this; may be negative. In `[policy.value]` a multiple of `grid`"""
    upper: Annotated[float, such_as(3600)]
    """larger values count as this. Noise is in proportion to `upper` - `lower`"""
    grid: float = 0.001
    """releases are multiples of it"""
    missing: Annotated[tuple[float, ...], such_as([-999])] = ()
    """numbers outside `lower` to `upper` that mean that there is no value, such as `[-999]`: such a reading does not
    count. Under `replace` it is public which readings these are"""
    usual: Annotated[tuple[float, float] | None, such_as([0, 300], default="`lower` to `upper`")] = None
    """of `[policy.value]`: where about 95 of 100 values are, such as `[0, 300]`, if that is known without the protected
    readings. A [tracker](estimators.md#how-much-a-value-differs) and estimates begin with it"""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a reading, and its public range."""

    name: str
    unit: str
    # lower, upper: milli-units of `unit`: readings are clipped to this range
    lower: int
    upper: int
    grid: Decimal  # in `unit`: releases are multiples of it
    # milli-units of `unit`, outside the range: numbers that say that there is no value, such as -999
    missing: tuple[int, ...] = ()
    # milli-units of `unit`, within the range: where about 95 of 100 readings are; None: anywhere
    usual: tuple[int, int] | None = None

    @property
    def width(self) -> int:
        """Largest distance of two readings, milli-units."""
        return self.upper - self.lower

    @property
    def canonical(self) -> dict[str, Any]:
        """The value's keys in the canonical policy; `missing` and `usual` are left out if they are empty."""
        grid, missing = float(self.grid * 1000), list(self.missing)
        keys = {"name": self.name, "unit": self.unit, "lower": self.lower, "upper": self.upper, "grid": grid}
        usual = {} if self.usual is None else {"usual": list(self.usual)}
        return keys | ({"missing": missing} if missing else {}) | usual


@dataclass(frozen=True, slots=True)
class ValuesKeys(MeansKeys):
    """Keys of an estimator that publishes means of several values of a reading; the values, speed first."""

    values: tuple[Value, ...] = ()

    def hashed(self) -> Hashed:
        named = [{"name": SPEED} if value.name == SPEED else value.canonical for value in self.values]
        return Hashed(estimator=MeansKeys.hashed(self).estimator, policy={"values": named})


def read_values(given: PolicyTable, relation: Relation, estimators: Mapping[str, EstimatorKeys]) -> tuple[Value, ...]:
    """Return the values of a policy, speed first; () for a policy of one value. Raises SettingError.

    The other keys of the policy, except queries, are already checked.
    """
    tables = given.value
    names = given.values
    if isinstance(tables, Mapping):  # `with_single_value`
        return ()
    if not names:
        if tables:
            raise SettingError(
                VALUE,
                "is not used without policy.values",
                f'add values = ["speed", ..]; for one value write [{VALUE}], with one bracket, and no upper_bound',
            )
        return ()
    _check_names(names)
    _check_supported(given, relation, estimators)
    defined = dict(_value(table, f"{VALUE}[{at}]") for at, table in enumerate(tables))
    if len(defined) < len(tables):
        raise SettingError(VALUE, "defines a value twice", "give each value one table")
    others = [name for name in names if name != SPEED]
    for name in others:
        if name not in defined:
            raise SettingError(
                _VALUES, f"{name!r} is not defined", f"add [[{VALUE}]] with its name, unit, lower and upper"
            )
    for name in defined:
        if name not in others:
            raise SettingError(VALUE, f"{name!r} is not one of policy.values", f"add it to {_VALUES}, or remove it")
    speed = Value(SPEED, SPEED_UNIT, 0, to_milli(given.upper_bound, SPEED_UNIT), Decimal(repr(given.grid)))
    return (speed, *(defined[name] for name in others))


def with_single_value(table: Mapping[str, Any]) -> tuple[Mapping[str, Any], Value | None]:
    """Return the [policy] table with the keys that `[policy.value]` sets, and its value.

    `upper_bound` becomes the width of the value's range. `reject_above` and `drop_zero` are off unless they are
    written. A table without `[policy.value]` is returned as it is, with None. Raises SettingError.
    """
    given = table.get("value")
    if not isinstance(given, Mapping):
        return table, None
    if table.get("values"):
        raise SettingError(VALUE, "is one table", f"write [[{VALUE}]], with two brackets, for each value but speed")
    for key, own in _REPLACED.items():
        if key in table:
            raise SettingError(f"policy.{key}", "is not used with [policy.value]", f"remove it: write {VALUE}.{own}")
    value = value_of(decode_table(given, ValueTable, VALUE), VALUE)
    _check_single(value, given)
    return {**_DEFAULTS, **table, "upper_bound": value.width / 1000, "grid": float(value.grid)}, value


def with_canonical_value(canonical: Mapping[str, Any], value: Value | None) -> Mapping[str, Any]:
    """Return a canonical policy, with its single value, if it has one, in place of the keys that the value sets."""
    if value is None:
        return canonical
    return {key: each for key, each in canonical.items() if key not in _REPLACED} | {"value": value.canonical}


def with_values(chosen: MeansKeys | HybridKeys, values: tuple[Value, ...]) -> MeansKeys | HybridKeys:
    """Return the keys of an estimator, for these values if there are any: then it publishes means (`read_values`)."""
    if not values or isinstance(chosen, HybridKeys):
        return chosen
    return ValuesKeys(**asdict(chosen), values=values)


def _check_names(names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if not NAME.fullmatch(name):
            raise SettingError(_VALUES, f"{name!r} is not a name", NAME_FIX)
        if name in names[:at]:
            raise SettingError(_VALUES, f"{name!r} is listed twice", "list each value once")
    if SPEED not in names:
        raise SettingError(_VALUES, f"lacks {SPEED!r}", f'add it: values = ["{SPEED}", "{names[0]}"]')
    if len(names) == 1:
        raise SettingError(_VALUES, f"lists {SPEED!r} alone, which is the default", "remove it, or list another value")
    if len(names) > VALUES_MAX:
        raise SettingError(_VALUES, f"lists {len(names)} values", f"list at most {VALUES_MAX}")


def _check_supported(given: PolicyTable, relation: Relation, estimators: Mapping[str, EstimatorKeys]) -> None:
    """Check that the rest of the policy is proved for several values."""
    if relation is not Relation.REPLACE:
        raise SettingError(
            _VALUES, f"several values are not proved for {relation.value!r}", 'use relation = "replace", or remove it'
        )
    proved = [name for name, keys in estimators.items() if keys.several_values]
    if given.estimator.name not in proved:
        raise SettingError(
            _VALUES, f"{given.estimator.name} releases speeds only", f"use one of {', '.join(proved)}, or remove it"
        )
    if given.query:
        raise SettingError(
            "policy.query", "reads speeds only, but this policy has values", "move the queries to a policy of their own"
        )


def _value(given: Mapping[str, Any], where: str) -> tuple[str, Value]:
    """Return the name and the value that one table defines."""
    table = decode_table(given, ValueTable, where)
    if table.name == SPEED:
        raise SettingError(
            f"{where}.name", f"{SPEED!r} is defined by policy.upper_bound and policy.grid", "remove the table"
        )
    if table.usual is not None:
        raise SettingError(f"{where}.usual", "is of one value alone, which has estimates", "remove it")
    return table.name, value_of(table, where)


def value_of(table: ValueTable, where: str) -> Value:
    """Return the value that a table defines. where: the table's dotted name. Raises SettingError."""
    if not _UNIT.fullmatch(table.unit):
        raise SettingError(f"{where}.unit", f"{table.unit!r} is not a unit", 'write 1 to 16 characters, such as "s"')
    for key in ("lower", "upper"):
        if not abs(getattr(table, key)) <= LARGEST:  # inf and nan too
            raise SettingError(f"{where}.{key}", f"{getattr(table, key):g} is too large", f"use at most {LARGEST:g}")
    lower, upper = in_milli(table.lower), in_milli(table.upper)
    if lower >= upper:
        raise SettingError(f"{where}.upper", f"{table.upper:g} is not above lower", "write the largest value to count")
    # In milli-units, to which `lower` and `upper` are rounded: this range is the estimator's.
    if not 0 < table.grid <= 2 * LARGEST or Decimal(repr(table.grid)) * 1000 > upper - lower:
        raise SettingError(
            f"{where}.grid", f"{table.grid:g} is not in (0, upper - lower]", "use a small step, such as 0.001"
        )
    if Fraction(Decimal(repr(table.grid))).denominator > 10**6:
        raise SettingError(f"{where}.grid", f"{table.grid:g} is too fine", "use at least 0.000001")
    return Value(
        table.name,
        table.unit,
        lower,
        upper,
        Decimal(repr(table.grid)),
        missing=_missing(table, lower, upper, where),
        usual=_usual(table, where),
    )


def _usual(table: ValueTable, where: str) -> tuple[int, int] | None:
    """Return the range of about 95 of 100 values; None: any. Raises SettingError: it is not within that of all."""
    if table.usual is None:
        return None
    first, last = table.usual
    if not table.lower <= first < last <= table.upper or in_milli(first) == in_milli(last):  # nan too
        raise SettingError(
            f"{where}.usual",
            f"[{first:g}, {last:g}] is not a range within lower to upper",
            f"write two numbers from {table.lower:g} to {table.upper:g}, the smaller one first, or remove it",
        )
    return in_milli(first), in_milli(last)


def _missing(table: ValueTable, lower: int, upper: int, where: str) -> tuple[int, ...]:
    """Return the numbers without a value, sorted. Raises SettingError: one is within the range of values."""
    key = f"{where}.missing"
    if len(table.missing) > VALUES_MAX:
        raise SettingError(key, f"lists {len(table.missing)} numbers", f"list at most {VALUES_MAX}")
    for sent in table.missing:
        if not abs(sent) <= _LARGEST_MISSING:  # inf and nan too
            raise SettingError(key, f"{sent:g} is too large", f"use at most {_LARGEST_MISSING:g}")
        if lower <= in_milli(sent) <= upper:
            raise SettingError(
                key, f"{sent:g} is a value from lower to upper", "list numbers outside that range, such as -999"
            )
    return tuple(sorted({in_milli(sent) for sent in table.missing}))


def _check_single(value: Value, given: Mapping[str, Any]) -> None:
    """Check the requirements of a single value besides those of each of several values."""
    if not NAME.fullmatch(value.name):
        raise SettingError(f"{VALUE}.name", f"{value.name!r} is not a name", NAME_FIX)
    if value.name == SPEED and value.unit != SPEED_UNIT:
        raise SettingError(
            f"{VALUE}.unit", f"{value.unit!r} is not the unit of {SPEED}", f'write "{SPEED_UNIT}", or use another name'
        )
    if value.name == SPEED and value.usual is not None:
        raise SettingError(f"{VALUE}.usual", "is not used with a speed: how speeds differ is known", "remove it")
    for key, milli in (("lower", value.lower), ("upper", value.upper)):
        if Fraction(repr(given[key])) * 1000 != milli:
            raise SettingError(
                f"{VALUE}.{key}",
                f"{given[key]:g} is not a multiple of 0.001",
                "use a unit in which a thousandth is fine enough",
            )
    if Fraction(value.lower) / (Fraction(Decimal(value.grid)) * 1000) % 1:
        raise SettingError(
            f"{VALUE}.lower",
            f"{given['lower']:g} is not a multiple of grid {value.grid}",
            "use a multiple of it, or another grid",
        )
