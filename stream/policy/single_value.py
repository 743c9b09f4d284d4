"""`[policy.value]`, one table: the value of a policy that releases another value than the speed in km/h.

A value is computed as its distance from `lower`, so `upper` - `lower` takes the place of `upper_bound` in every
estimator and sensitivity; published numbers have `lower` added (docs/proofs.md, "A value other than the speed").
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.table import ValueTable
from hatcast.stream.policy.toml_tables import decode_table
from hatcast.stream.policy.value_keys import NAME, NAME_FIX, SPEED, SPEED_UNIT, VALUE, Value, value_of

_REPLACED: Final = {"upper_bound": "upper", "grid": "grid"}
_DEFAULTS: Final[Mapping[str, Any]] = {"reject_above": "none", "drop_zero": False}


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
    _check(value, given)
    return {**_DEFAULTS, **table, "upper_bound": value.width / 1000, "grid": float(value.grid)}, value


def canonical_single(value: Value) -> dict[str, Any]:
    """Return the part of the canonical policy that defines the value. It takes the place of the keys it sets."""
    return {"value": value.canonical}


def without_replaced(canonical: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical policy without the keys that `[policy.value]` replaces."""
    return {key: each for key, each in canonical.items() if key not in _REPLACED}


def _check(value: Value, given: Mapping[str, Any]) -> None:
    """Check the requirements of a single value besides those of each of several values."""
    if not NAME.fullmatch(value.name):
        raise SettingError(f"{VALUE}.name", f"{value.name!r} is not a name", NAME_FIX)
    if value.name == SPEED and value.unit != SPEED_UNIT:
        raise SettingError(
            f"{VALUE}.unit", f"{value.unit!r} is not the unit of {SPEED}", f'write "{SPEED_UNIT}", or use another name'
        )
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
