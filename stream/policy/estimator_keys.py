"""`[policy.estimator]`, checked against the relations that the estimator is proved for and the keys that it uses.

The estimators define the names of groupings, rules and quantiles; `EstimatorKeys` passes them in.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from hatcast.stream.errors import SettingError, name_fix
from hatcast.stream.policy.hybrid_keys import HybridKeys, HybridUse, hybrid_keys
from hatcast.stream.policy.method import Hashed, MethodKeys
from hatcast.stream.policy.table import EstimatorTable, PrivacyTable

_OWN: Final = ("grouping", "array_length", "quantiles", "weight_threshold", "gamma")
_NAMED: Final = ("grouping", "array_length", "quantiles")  # keys of [policy.estimator] whose value is a name
ARRAY_LENGTH_MAX: Final = 10**9
GAMMA_MIN: Final = 1e-9
_WHERE: Final = "policy.estimator"


class Relation(StrEnum):
    """Neighbouring relation.    [docs/specification/estimators.md, section 1]"""

    REPLACE = "replace"
    ADD_REMOVE = "add_remove"


@dataclass(frozen=True, slots=True)
class EstimatorKeys:
    """Relations that an estimator is proved for, and the keys of [policy.estimator] that it uses."""

    # by key; a key that is absent here is rejected, one with default None is required
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    # allowed names by key; `array_length` may also be an integer
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: frozenset[Relation] = frozenset({Relation.REPLACE})
    # (array_length, epsilon) -> default of that key; None: the estimator does not use the key
    weight_threshold: Callable[[int, float], float] | None = None
    hybrid: HybridUse | None = None  # inputs of a hybrid estimator; None: the estimator does not use devices' reports
    # whether it is proved for several values of a reading (hatcast.stream.estimators.values)
    several_values: bool = False
    gamma: float | None = None  # default of that key; None: the estimator does not use it
    # of epsilon, by purpose, of an estimator for trusted users alone; empty: of another one
    shares: Mapping[str, Fraction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeansKeys(MethodKeys):
    """Keys of an estimator that publishes a mean of each HAT, with its defaults filled in; None: not used.

    array_length is the name of a rule or a number of places, weight_threshold counts readings. gamma is None if it is
    the default: policies from before it was a key keep their id.
    """

    grouping: str | None = None
    array_length: str | int | None = None
    quantiles: str | None = None
    weight_threshold: float | None = None
    gamma: float | None = None

    def hashed(self) -> Hashed:
        return Hashed(estimator={key: value for key in _OWN if (value := getattr(self, key)) is not None})


def check_name(policy: Mapping[str, Any], estimators: Mapping[str, EstimatorKeys]) -> None:
    """Raise SettingError if the [policy] table as written names an unknown estimator.

    Before all other checks: which keys of [policy.privacy] are required and used depends on the estimator.
    """
    table = policy.get("estimator")
    name = table.get("name") if isinstance(table, Mapping) else None
    if isinstance(name, str) and name not in estimators:
        raise SettingError(f"{_WHERE}.name", f"{name!r} is not an estimator", name_fix(name, estimators))


def chosen_keys(
    table: EstimatorTable, privacy: PrivacyTable, estimators: Mapping[str, EstimatorKeys]
) -> MeansKeys | HybridKeys:
    """Return the keys of the configured estimator; its name and `privacy` are already checked. Raises SettingError."""
    keys = estimators[table.name]
    if privacy.relation not in keys.relations:
        proved = [name for name, other in estimators.items() if privacy.relation in other.relations]
        fix = f"use one of {', '.join(proved)}" if proved else 'use relation = "replace"'
        raise SettingError("policy.privacy.relation", f"{table.name} is not proved for {privacy.relation!r}", fix)
    chosen: dict[str, str | int | None] = dict(keys.defaults)
    for key in _NAMED:
        value: str | int | None = getattr(table, key)
        if value is None:
            continue
        if key not in keys.defaults:
            raise SettingError(f"{_WHERE}.{key}", f"is not used by {table.name}", "remove it")
        _check(key, value, keys.choices[key])
        chosen[key] = value
    for key, missing in chosen.items():
        if missing is None:
            raise SettingError(f"{_WHERE}.{key}", f"is missing, and {table.name} has no default", f"write {key} = 20")
    grouping, array_length, quantiles = map(chosen.get, _NAMED)
    means = MeansKeys(
        grouping if isinstance(grouping, str) else None,
        array_length,
        quantiles if isinstance(quantiles, str) else None,
        _threshold(table, keys, array_length, privacy.epsilon),
        _gamma(table, keys),
    )
    return hybrid_keys(table, privacy, keys.hybrid) or means


def _threshold(
    table: EstimatorTable, keys: EstimatorKeys, array_length: str | int | None, epsilon: float
) -> float | None:
    """Return `weight_threshold`, or its default."""
    given = table.weight_threshold
    if keys.weight_threshold is None or not isinstance(array_length, int):
        if given is not None:
            raise SettingError(f"{_WHERE}.weight_threshold", f"is not used by {table.name}", "remove it")
        return None
    if given is not None and not 0 < given < math.inf:
        raise SettingError(
            f"{_WHERE}.weight_threshold",
            f"{given:g} is not a number of readings",
            "use a number above 0, or leave it out",
        )
    return keys.weight_threshold(array_length, epsilon) if given is None else given


def _gamma(table: EstimatorTable, keys: EstimatorKeys) -> float | None:
    """Return `gamma`; None if it is the default, or not used."""
    if table.gamma is None or table.gamma == keys.gamma:
        return None
    if keys.gamma is None:
        raise SettingError(f"{_WHERE}.gamma", f"is not used by {table.name}", "remove it")
    check_gamma(table.gamma)
    return table.gamma


def check_gamma(gamma: float) -> None:
    """Raise SettingError unless LEVY's tau is above 0 and finite for every number of arrays."""
    if not GAMMA_MIN <= gamma <= 1:
        raise SettingError(f"{_WHERE}.gamma", f"{gamma:g} is out of range", f"use {GAMMA_MIN:g} to 1, such as 0.2")


def _check(key: str, value: str | int, names: tuple[str, ...]) -> None:
    if isinstance(value, int):
        if not 1 <= value <= ARRAY_LENGTH_MAX:
            raise SettingError(f"{_WHERE}.{key}", f"{value} is not a valid length", "use 1 or more")
    elif not names:
        raise SettingError(f"{_WHERE}.{key}", f"{value!r} depends on counts, which are private here", "use an integer")
    elif value not in names:
        fix = name_fix(value, names) if key != "array_length" else f"{name_fix(value, names)} or an integer"
        raise SettingError(f"{_WHERE}.{key}", f"{value!r} is unknown", fix)
