"""The `[policy]` table as written in hatcast.toml, with its defaults, and the canonical form that is hashed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec

from hatcast.stream.policy.key_errors import such_as
from hatcast.stream.policy.method import Hashed
from hatcast.stream.readings.reading import to_milli

MIN_USERS: Final = 10  # default
WEAK_EPSILON: Final = 10.0  # a larger one gives hardly any privacy, so the policy has to acknowledge it


class PrivacyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.privacy]`. For the default of `min_users` see `min_users_of`."""

    unit: str = "user_day"
    relation: str = "replace"
    epsilon: Annotated[float, such_as(1.0)]
    max_hats_per_day: Annotated[int, such_as(89)]
    daily_limit: Annotated[float, such_as(5.0)]
    total_limit: Annotated[float | None, such_as(1000.0)] = None
    delta: float = 1e-6
    min_users: Annotated[int | None, such_as(10)] = None
    acknowledge_weak_privacy: bool = False
    local_epsilon: Annotated[float | None, such_as(1.0)] = None
    max_coalition: Annotated[int | None, such_as(0)] = None


class EstimatorTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.estimator]`. A key that the estimator does not use stays None."""

    name: Annotated[str, such_as("array_averaging")]
    grouping: Annotated[str | None, such_as("bestfit")] = None
    array_length: Annotated[str | int | None, such_as("median")] = None
    quantiles: Annotated[str | None, such_as("epsilon_dependent")] = None
    weight_threshold: Annotated[float | None, such_as(10.0)] = None
    gamma: Annotated[float | None, such_as(0.2)] = None
    noise: Annotated[str | None, such_as("laplace")] = None
    sigma: Annotated[float | None, such_as(8.0)] = None
    sigma_local: Annotated[float | None, such_as(8.0)] = None
    mean_gap: Annotated[float | None, such_as(2.0)] = None
    groups: Annotated[str | None, such_as("separate")] = None


class TrackerTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.tracker]`: for the defaults of `price` and `watch_share` see `tracker_keys`."""

    share: float = 0.3
    objective: str = "cells"
    price: Annotated[float | None, such_as(1.5)] = None
    watch: Annotated[str | None, such_as("cells.txt")] = None
    watch_share: Annotated[float | None, such_as(0.5)] = None


class ContinualTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.continual]`: for the other defaults see `continual_keys`."""

    kind: Annotated[str, such_as("toeplitz")]
    horizon_days: Annotated[int, such_as(7)]
    max_slots: Annotated[int, such_as(14)]
    min_separation: int = 1
    max_cells: Annotated[int, such_as(20)]
    noise: Annotated[str | None, such_as("gaussian")] = None
    branching: Annotated[int | None, such_as(5)] = None
    buffers: Annotated[int | None, such_as(3)] = None
    at_end: str = "renew"
    from_date: Annotated[str | None, such_as("2022-02-01")] = msgspec.field(default=None, name="from")


class QueryTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.query]]` as written: `scale` in the unit of the answer, `speed_limit` in the unit of readings."""

    name: Annotated[str, such_as("fast-buses")]
    kind: Annotated[str, such_as("over_speed_limit")]
    days: Annotated[int, such_as(31)]
    from_date: Annotated[str | None, such_as("2022-01-01")] = msgspec.field(default=None, name="from")
    epsilon: Annotated[float | None, such_as(0.1)] = None
    scale: Annotated[float | None, such_as(1.0)] = None
    min_n: Annotated[int | None, such_as(310)] = None
    speed_limit: Annotated[float | None, such_as(50.0)] = None
    threshold: Annotated[float | None, such_as(300.0)] = None
    on_request: bool = False
    missing_days: str = "suppress"


class ValueTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.value]]` or the `[policy.value]` as written: `lower`, `upper`, `grid` and `missing` in `unit`."""

    name: Annotated[str, such_as("delay")]
    unit: Annotated[str, such_as("s")]
    lower: Annotated[float, such_as(-600)]
    upper: Annotated[float, such_as(3600)]
    grid: float = 0.001
    missing: tuple[float, ...] = ()


class RunningTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.running]]` as written: for the default of `of` see `read_running`."""

    name: Annotated[str, such_as("today")]
    window: Annotated[str, such_as("today")]
    days: Annotated[int | None, such_as(28)] = None
    of: Annotated[str | None, such_as("estimates")] = None


class PolicyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]` as written: speeds in km/h, durations as text, `from` (a Python keyword) as `from_date`."""

    name: Annotated[str, such_as("bus-speeds")]
    replaces: Annotated[str | None, such_as("old")] = None
    from_date: Annotated[str | None, such_as("2022-02-01")] = msgspec.field(default=None, name="from")
    upper_bound: Annotated[float, such_as(65.0)]
    reject_above: float | str = 150.0
    drop_zero: bool = True
    timezone: Annotated[str, such_as("Asia/Kolkata")]
    h3_resolution: int = 7
    resolutions: Annotated[tuple[int, ...] | None, such_as([7, 8])] = None
    fine_cells: Annotated[str | None, such_as("fine.txt")] = None
    slot_length: str = "1h"
    hours: tuple[int, int] = (9, 21)
    lateness: str = "5m"
    max_ahead: str = "2m"
    min_interval: str = "1s"
    cells: str = "all"
    grid: float = 0.001
    values: Annotated[tuple[str, ...], such_as(["speed", "delay"])] = ()
    privacy: PrivacyTable
    estimator: EstimatorTable
    tracker: dict[str, Any] | None = None
    continual: dict[str, Any] | None = None
    query: tuple[dict[str, Any], ...] = ()
    value: dict[str, Any] | tuple[dict[str, Any], ...] = ()
    running: tuple[dict[str, Any], ...] = ()


def canonical(
    given: PolicyTable,
    durations: Mapping[str, int],
    cells: object,
    method: Hashed,
    queries: Sequence[Mapping[str, str | int | float]],
) -> dict[str, Any]:
    """Return the canonical policy, whose hash is the `policy_id`: every key but the name and `running`.

    method   keys of this method that not all have; a tracker has no epsilon of a HAT
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
            **({"epsilon": given.privacy.epsilon} if "tracker" not in method.policy else {}),
            "max_hats_per_day": given.privacy.max_hats_per_day,
            "daily_limit": given.privacy.daily_limit,
            **({} if given.privacy.total_limit is None else {"total_limit": given.privacy.total_limit}),
            "delta": given.privacy.delta,
            **({} if given.privacy.relation == "add_remove" else {"min_users": min_users_of(given.privacy)}),
            "acknowledge_weak_privacy": given.privacy.acknowledge_weak_privacy,
            **method.privacy,
        },
        "estimator": {"name": given.estimator.name, **method.estimator},
        **method.policy,
        **({"query": list(queries)} if queries else {}),
    }


def epsilon_problem(epsilon: float) -> tuple[str, str]:
    """Return the problem and the fix of an epsilon that is not above 0, or too large for the ledger's sums."""
    problem = "is more than the ledger can count" if epsilon > 0 else "is not above 0"
    return f"{epsilon:g} {problem}", f"use a number above 0 and at most {WEAK_EPSILON:g}, such as 1.0"


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
        if isinstance(value, Mapping) and key not in ("cells", "fine_cells"):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
