"""The `[policy]` table as written in hatcast.toml, with its defaults, and the canonical form that is hashed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from hatcast.stream.readings.reading import to_milli

MIN_USERS: Final = 10  # default
WEAK_EPSILON: Final = 10.0  # a larger one gives hardly any privacy, so the policy has to acknowledge it


class PrivacyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.privacy]`. For the default of `min_users` see `min_users_of`."""

    unit: str = "user_day"
    relation: str = "replace"
    epsilon: float
    max_hats_per_day: int
    daily_limit: float
    total_limit: float | None = None
    delta: float = 1e-6
    min_users: int | None = None
    acknowledge_weak_privacy: bool = False
    local_epsilon: float | None = None
    max_coalition: int | None = None


class EstimatorTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.estimator]`. A key that the estimator does not use stays None."""

    name: str
    grouping: str | None = None
    array_length: str | int | None = None
    quantiles: str | None = None
    weight_threshold: float | None = None
    noise: str | None = None
    sigma: float | None = None
    sigma_local: float | None = None
    mean_gap: float | None = None
    groups: str | None = None


class TrackerTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.tracker]`: for the defaults of `price` and `watch_share` see `tracker_keys`."""

    share: float = 0.3
    objective: str = "cells"
    price: float | None = None
    watch: str | None = None
    watch_share: float | None = None


class QueryTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.query]]` as written: `scale` in the unit of the answer, `speed_limit` in km/h."""

    name: str
    kind: str
    days: int
    from_date: str | None = msgspec.field(default=None, name="from")
    epsilon: float | None = None
    scale: float | None = None
    min_n: int | None = None
    speed_limit: float | None = None
    missing_days: str = "suppress"


class PolicyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]` as written: speeds in km/h, durations as text, `from` (a Python keyword) as `from_date`."""

    name: str
    replaces: str | None = None
    from_date: str | None = msgspec.field(default=None, name="from")
    upper_bound: float
    reject_above: float | str = 150.0
    drop_zero: bool = True
    timezone: str
    h3_resolution: int = 7
    slot_length: str = "1h"
    hours: tuple[int, int] = (9, 21)
    lateness: str = "5m"
    max_ahead: str = "2m"
    min_interval: str = "1s"
    cells: str = "all"
    grid: float = 0.001
    privacy: PrivacyTable
    estimator: EstimatorTable
    tracker: dict[str, Any] | None = None
    query: tuple[dict[str, Any], ...] = ()


def canonical(
    given: PolicyTable,
    durations: Mapping[str, int],
    cells: object,
    keys: tuple[Mapping[str, Any], Mapping[str, Any]],
    queries: Sequence[Mapping[str, str | int | float]],
    tracker: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the canonical policy, whose hash is the `policy_id`: every key with its value, except the name.

    keys      the keys of [policy.privacy] and of [policy.estimator] that this estimator uses and not all do
    tracker   the keys of [policy.tracker]; None unless it is the estimator: then there is no epsilon of a HAT
    Durations are in ms, speeds in milli-units, `cells` is the file's content: "300s" and "5m" give the same policy.
    `query` is left out if empty, so that a policy made before queries existed keeps its id.
    """
    transition = {} if given.replaces is None else {"replaces": given.replaces, "from": given.from_date}
    return {
        **transition,
        "upper_bound": to_milli(given.upper_bound, "km/h"),
        "reject_above": given.reject_above
        if isinstance(given.reject_above, str)
        else to_milli(given.reject_above, "km/h"),
        "drop_zero": given.drop_zero,
        "timezone": given.timezone,
        "h3_resolution": given.h3_resolution,
        **durations,
        "hours": list(given.hours),
        "cells": cells,
        "grid": float(Decimal(repr(given.grid)) * 1000),
        "privacy": {
            "unit": given.privacy.unit,
            "relation": given.privacy.relation,
            **({"epsilon": given.privacy.epsilon} if tracker is None else {}),
            "max_hats_per_day": given.privacy.max_hats_per_day,
            "daily_limit": given.privacy.daily_limit,
            **({} if given.privacy.total_limit is None else {"total_limit": given.privacy.total_limit}),
            "delta": given.privacy.delta,
            **({} if given.privacy.relation == "add_remove" else {"min_users": min_users_of(given.privacy)}),
            "acknowledge_weak_privacy": given.privacy.acknowledge_weak_privacy,
            **keys[0],
        },
        "estimator": {"name": given.estimator.name, **keys[1]},
        **({} if tracker is None else {"tracker": tracker}),
        **({"query": list(queries)} if queries else {}),
    }


def min_users_of(privacy: PrivacyTable) -> int:
    """Return `min_users` or its default; 0 under `add_remove`, where nothing may depend on the number of users."""
    if privacy.relation == "add_remove":
        return 0
    return MIN_USERS if privacy.min_users is None else privacy.min_users


def differing_keys(stored: bytes, given: bytes) -> str:
    """Return the dotted keys in which two canonical policies (RFC 8785) differ, separated by commas."""
    old, new = _flatten(msgspec.json.decode(stored)), _flatten(msgspec.json.decode(given))
    return ", ".join(f"policy.{key}" for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and key != "cells":
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
