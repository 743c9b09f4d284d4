"""`hatcast.Policy`: a policy from a file, or from keyword arguments: the keys of `[policy]` and of the tables in it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, Required, Self, TypedDict, Unpack

from hatcast.agents.config.settings import Settings, load_settings, policy_of_keys, settings_of_policy
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy import policy as checked


class PrivacyKeywords(TypedDict, total=False):
    """Keys of `[policy.privacy]`: docs/configuration.md."""

    unit: Literal["user_day", "user", "user_horizon"]
    relation: Literal["replace", "add_remove"]
    epsilon: float
    max_hats_per_day: int
    daily_limit: float | Sequence[float]
    total_limit: float
    delta: float
    min_users: int
    acknowledge_weak_privacy: bool
    local_epsilon: float
    max_coalition: int


class EstimatorKeywords(TypedDict, total=False):
    """Keys of `[policy.estimator]`: docs/configuration.md."""

    name: Required[str]
    grouping: str
    array_length: str | int
    quantiles: str
    weight_threshold: float
    gamma: float
    noise: str
    sigma: float
    sigma_local: float
    mean_gap: float
    groups: str


class TrackerKeywords(TypedDict, total=False):
    """Keys of `[policy.tracker]`: docs/configuration.md."""

    share: float
    objective: str
    price: float
    watch: str | Path
    watch_share: float
    timetable: str | Path


class ContinualKeywords(TypedDict, total=False):
    """Keys of `[policy.continual]`: docs/continual.md. `from_date` is the key `from`."""

    kind: Required[Literal["laplace", "gaussian", "tree", "kary", "toeplitz", "blt", "withhold_release"]]
    horizon_days: Required[int]
    max_slots: Required[int]
    min_separation: int
    max_cells: Required[int]
    noise: Literal["laplace", "gaussian"]
    branching: int
    buffers: int
    at_end: Literal["renew", "stop"]
    from_date: str | date


class QueryKeywords(TypedDict, total=False):
    """Keys of one `[[policy.query]]`: docs/queries.md. `from_date` is the key `from`."""

    name: Required[str]
    kind: Required[str]
    days: Required[int]
    from_date: str | date
    epsilon: float
    scale: float
    min_n: int
    speed_limit: float
    threshold: float
    on_request: bool
    missing_days: str


class ValueKeywords(TypedDict, total=False):
    """Keys of `[policy.value]`, or of one `[[policy.value]]`: docs/configuration.md."""

    name: Required[str]
    unit: Required[str]
    lower: Required[float]
    upper: Required[float]
    grid: float
    missing: Sequence[float]
    usual: Sequence[float]


class RunningKeywords(TypedDict, total=False):
    """Keys of one `[[policy.running]]`: docs/continual.md."""

    name: Required[str]
    window: Required[Literal["today", "24h", "7d", "same_hour", "period"]]
    hours: Sequence[int]
    days: int
    of: Literal["releases", "estimates"]


class PolicyKeywords(TypedDict, total=False):
    """Keys of `[policy]`: docs/configuration.md. `from_date` is the key `from`."""

    name: str  # required, but it may also be the one positional argument
    replaces: str
    from_date: str | date
    upper_bound: float
    reject_above: float | str
    drop_zero: bool
    timezone: Required[str]
    h3_resolution: int
    resolutions: Sequence[int]
    fine_cells: str | Path
    slot_length: str
    hours: Sequence[int]
    lateness: str
    max_ahead: str
    min_interval: str
    cells: str | Path
    grid: float
    values: Sequence[str]
    privacy: Required[PrivacyKeywords]
    estimator: str | EstimatorKeywords
    tracker: TrackerKeywords
    continual: ContinualKeywords
    query: Sequence[QueryKeywords]
    value: ValueKeywords | Sequence[ValueKeywords]
    running: Sequence[RunningKeywords]


_KEY_OF: Final = {"from_date": "from"}  # a Python keyword cannot name an argument


class Policy(checked.Policy):
    """The public parameters of releases, made from the keys of `[policy]` in hatcast.toml.

        Policy("bus-speeds", upper_bound=65.0, timezone="Asia/Kolkata", privacy={"daily_limit": 5.0})

    This is a tracker, as `hatcast init` writes one; the name may also be given as `name`. Tables are dictionaries, and
    `[[policy.query]]` is a list of them under `query`; `estimator` may also be a name, and `from_date` is the key
    `from`. Files of cells are relative to the current folder. The checks are those of the file. Attributes are in the
    units of the releases' code: values in thousandths of their unit, times in milliseconds; `policy_id` is the hash of
    all keys but the name. `keys` are the given keys.

    Raises SettingError: a key is missing, unknown, of a wrong type or out of range.
    """

    keys: Mapping[str, Any]

    def __init__(self, *first: str, **keys: Unpack[PolicyKeywords]) -> None:
        if len(first) + ("name" in keys) > 1:
            raise TypeError("Policy() takes one name, and all other keys as keyword arguments")
        table = _table({"name": first[0], **keys} if first else keys)
        self._fill(table, policy_of_keys(table, Path()))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the policy of a hatcast.toml, without its other tables: a user key, for example, is not part of it.

        Raises HatcastError.
        """
        tables: list[dict[str, Any]] = []

        def keep(table: dict[str, Any]) -> dict[str, Any]:
            tables.append(table)
            return table

        policy = load_settings(path, transform_policy=keep).policy
        return cls._of(tables[0], policy)

    @classmethod
    def _of(cls, table: Mapping[str, Any], policy: checked.Policy) -> Self:
        made = cls.__new__(cls)
        made._fill(table, policy)  # noqa: SLF001 - an object of this class
        return made

    def _fill(self, table: Mapping[str, Any], policy: checked.Policy) -> None:
        for field in fields(policy):
            object.__setattr__(self, field.name, getattr(policy, field.name))
        object.__setattr__(self, "keys", table)

    def __repr__(self) -> str:
        shown = dict(self.keys)
        if isinstance(estimator := shown.get("estimator"), Mapping) and [*estimator] == ["name"]:
            shown["estimator"] = estimator["name"]
        given = (f"{_argument(key)}={_shown(value)}" for key, value in shown.items())
        return f"{type(self).__name__}({', '.join(given)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.keys, plain_policy(self))  # noqa: SLF001 - a method of this class


def plain_policy(policy: checked.Policy) -> checked.Policy:
    """Return the policy as the type of which the releases' code makes copies with other fields."""
    if type(policy) is checked.Policy:
        return policy
    return checked.Policy(**{field.name: getattr(policy, field.name) for field in fields(policy)})


def settings_of(policy: str | Path | checked.Policy | Settings) -> Settings:
    """Return the settings of a policy, or of a file. Raises HatcastError."""
    if isinstance(policy, Settings):
        return policy
    if isinstance(policy, checked.Policy):
        return settings_of_policy(plain_policy(policy))
    if not isinstance(policy, str | os.PathLike):
        raise HatcastError(f"policy: is a {type(policy).__name__}; use hatcast.Policy(...), or a hatcast.toml's path")
    return load_settings(policy)


def _argument(key: str) -> str:
    return next((argument for argument, name in _KEY_OF.items() if name == key), key)


def _shown(value: Any) -> str:
    """Return the repr of a value whose tables have the names of arguments."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_argument(key)!r}: {_shown(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


def _table(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table that a TOML file with these keys has. An argument that is None is not given."""
    table: dict[str, Any] = {
        _KEY_OF.get(key, key): _value(value, f"policy.{key}") for key, value in keys.items() if value is not None
    }
    if isinstance(table.get("estimator"), str):
        table["estimator"] = {"name": table["estimator"]}
    return table


def _value(value: Any, where: str) -> Any:
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {
            _KEY_OF.get(key, key): _value(each, f"{where}.{key}") for key, each in value.items() if each is not None
        }
    if isinstance(value, list | tuple):
        return [_value(each, where) for each in value]
    raise SettingError(where, f"is of the type {type(value).__name__}", "give text, a number, a list or a dictionary")
