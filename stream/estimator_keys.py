"""`[policy.estimator]`, checked against what the chosen estimator is proved for and uses.    [design 6]

Names of groupings, rules and quantiles are those of the estimators' own tables: they come in with `EstimatorKeys`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from stream.errors import BadSetting
from stream.policy_table import EstimatorTable

ESTIMATOR_OPTIONS: Final = ("grouping", "array_length", "quantiles")  # the keys of [policy.estimator] but the name
MOST_PLACES: Final = 10**9
_WHERE: Final = "policy.estimator"


class Relation(StrEnum):
    """Which inputs are neighbours, so what is hidden.    [estimators.md, section 1]"""

    REPLACE = "replace"
    ADD_REMOVE = "add_remove"


@dataclass(frozen=True, slots=True)
class EstimatorKeys:
    """What an estimator is proved for, and the keys of [policy.estimator] that it uses.

    defaults   by key; a key that is not there is refused
    choices    the names that may stand there, by key; `array_length` may be a number of places too
    """

    relations: frozenset[Relation]
    defaults: Mapping[str, str]
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


def chosen_keys(table: EstimatorTable, relation: str, estimators: Mapping[str, EstimatorKeys]) -> dict[str, str | int]:
    """The estimator's own keys with its defaults filled in. Raises BadSetting."""
    if table.name not in estimators:
        raise BadSetting(f"{_WHERE}.name", f"{table.name!r} is no estimator", f"use one of {', '.join(estimators)}")
    keys = estimators[table.name]
    if relation not in keys.relations:
        proved = [name for name, other in estimators.items() if relation in other.relations]
        mend = f"use one of {', '.join(proved)}" if proved else 'use relation = "replace"'
        raise BadSetting("policy.privacy.relation", f"{table.name} is not proved for {relation!r}", mend)
    chosen: dict[str, str | int] = dict(keys.defaults)
    for key in ESTIMATOR_OPTIONS:
        value: str | int | None = getattr(table, key)
        if value is None:
            continue
        if key not in keys.defaults:
            raise BadSetting(f"{_WHERE}.{key}", f"is not used by {table.name}", "remove it")
        _check(key, value, keys.choices[key])
        chosen[key] = value
    return chosen


def _check(key: str, value: str | int, names: tuple[str, ...]) -> None:
    if isinstance(value, int):
        if not 1 <= value <= MOST_PLACES:
            raise BadSetting(f"{_WHERE}.{key}", f"{value} is no number of places", "use 1 or more places")
    elif value not in names:
        listed = [*names, "an integer"] if key == "array_length" else [*names]
        mend = f"use {', '.join(listed[:-1])} or {listed[-1]}"
        raise BadSetting(f"{_WHERE}.{key}", f"{value!r} is unknown", mend)
