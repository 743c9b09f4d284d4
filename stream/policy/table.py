"""The `[policy]` table as written in hatcast.toml, with its defaults, and the canonical form that is hashed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.method import Hashed
from hatcast.stream.policy.toml_tables import Duration, such_as
from hatcast.stream.readings.reading import to_milli

MIN_USERS: Final = 10  # default
WEAK_EPSILON: Final = 10.0  # a larger one gives hardly any privacy, so the policy has to acknowledge it


class PrivacyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.privacy]`. For the default of `min_users` see `min_users_of`."""

    unit: Annotated[str, such_as("user_day", default='`"user_day"`; with `[policy.continual]` `"user_horizon"`')] = (
        "user_day"
    )
    """one vehicle's readings of one local day; `user`: of all time; `user_horizon`: of one horizon
    ([privacy.md](privacy.md))"""
    relation: str = "replace"
    """neighbouring relation: [privacy.md](privacy.md). `add_remove` hides presence too; needs `capped_ratio` and
    public `cells`"""
    epsilon: Annotated[float, such_as(1.0, default="required; not for `tracker`")]
    """of one release: [choosing.md](choosing.md)"""
    max_hats_per_day: Annotated[int, such_as(89, default="required; `tracker`: 500; not with `[policy.continual]`")]
    """K: further HATs of that vehicle and day are not counted"""
    daily_limit: Annotated[float, such_as(5.0, default="required; `[policy.continual]`: `max_cells` x `epsilon`")]
    """limit of one vehicle's day, over all releases and queries of all policies of the telemetry topic; if several
    policies charge a day, the smallest limit applies. Under `add_remove` at least min(K, cells x slots) x epsilon.
    Or `[epsilon, delta]`, for a policy alone on its telemetry: [choosing.md](choosing.md#a-limit-as-epsilon-delta)"""
    total_limit: Annotated[float | None, such_as(1000.0, default="required for unit `user`")] = None
    """limit of one vehicle over all days; when it is spent, nothing more is released"""
    delta: float = 1e-6
    """of the reported (epsilon, delta); with Gaussian noise it is part of the guarantee"""
    min_users: Annotated[int | None, such_as(10, default="10; `tracker`: 3")] = None
    """a HAT with fewer users is `suppressed`; `clipped_sum` needs 2 / epsilon of them. Not allowed under
    `add_remove`, where `weight_threshold` suppresses"""
    acknowledge_weak_privacy: bool = False
    """required above epsilon 10, and for a `daily_limit` above 10 of `tracker`"""
    local_epsilon: Annotated[float | None, such_as(1.0, default="`epsilon`")] = None
    """epsilon of each report of a device: [hybrid.md](hybrid.md)"""
    max_coalition: Annotated[int | None, such_as(0)] = None
    """number of devices that may share their noise with each other, with Gaussian noise; without it [no
    amplification](hybrid.md#amplification) is published"""


class EstimatorTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.estimator]`. A key that the estimator does not use stays None."""

    name: Annotated[str, such_as("array_averaging")]
    """[estimators.md](estimators.md); those that take devices' reports too: [hybrid.md](hybrid.md)"""
    grouping: Annotated[str | None, such_as("bestfit", default='`"bestfit"`')] = None
    """or `wraparound`, if the estimator has arrays"""
    array_length: Annotated[str | int | None, such_as("median", default="by estimator")] = None
    """`median`, `sensitivity`, `minimax`, `minimax_sqrt2`, `minimax_convex`, `worst_case` or a number of places.
    `capped_ratio`: a number, required"""
    quantiles: Annotated[str | None, such_as("epsilon_dependent", default='`"fixed"`')] = None
    """only `quantile`: the 1/10 and 9/10 quantiles, `epsilon_dependent`, or `smoothed` for means that are often
    equal ([estimators.md](estimators.md#quantiles))"""
    weight_threshold: Annotated[float | None, such_as(10.0, default="20 x `array_length` / `epsilon`")] = None
    """only `capped_ratio`: with less noisy weight, in readings, a HAT is `suppressed`
    ([estimators.md](estimators.md#when-presence-is-private))"""
    gamma: Annotated[float | None, such_as(0.2, default="0.2")] = None
    """only `levy`: how likely a mean of independent readings may be outside of what is kept, 1e-9 to 1; a smaller
    one keeps a wider interval, with more noise"""
    noise: Annotated[str | None, such_as("laplace", default='`"laplace"`')] = None
    """only hybrid estimators: or `gaussian`, whose guarantee is [(epsilon, delta)](proofs.md#gaussian-noise)"""
    sigma: Annotated[float | None, such_as(8.0, default="required where used")] = None
    """only `kvh` and `kvh_heterogeneous`, in the unit of readings: standard deviation of users' means, from public
    knowledge ([hybrid.md](hybrid.md#estimators))"""
    sigma_local: Annotated[float | None, such_as(8.0, default="`sigma`")] = None
    """only `kvh_heterogeneous`: the same for buses with devices, if it differs"""
    mean_gap: Annotated[float | None, such_as(2.0, default="0")] = None
    """only `kvh_heterogeneous`: how much larger the values of buses with devices are"""
    groups: Annotated[str | None, such_as("separate")] = None
    """only hybrid estimators that read both groups: or `separate`, which also publishes [each group's own
    mean](hybrid.md#each-groups-own-mean)"""


class PolicyTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]` as written: speeds in km/h, durations as text, `from` (a Python keyword) as `from_date`."""

    name: Annotated[str, such_as("bus-speeds")]
    """ASCII letters, digits, `-`, `_`, `.`"""
    replaces: Annotated[str | None, such_as("old")] = None
    """the previous policy: [below](#a-new-policy)"""
    from_date: Annotated[str | None, such_as("2022-02-01")] = msgspec.field(default=None, name="from")
    """the local date (`"2022-02-01"`) from which it counts and releases; required with `replaces` and not allowed
    without it"""
    upper_bound: Annotated[float, such_as(65.0)]
    """U, km/h; larger values count as U. Not with `[policy.value]`"""
    reject_above: float | str = 150.0
    """km/h; larger values are rejected as a broken sensor's. `"none"`: never, the default with `[policy.value]`,
    whose unit it then has"""
    drop_zero: bool = True
    """drop readings of exactly 0: the mean is the *speed while moving*. `false`: the *journey speed*
    ([choosing.md](choosing.md#which-speed)), which is the default with `[policy.value]`"""
    timezone: Annotated[str, such_as("Asia/Kolkata")]
    """such as `Asia/Kolkata`; days and slots are local there"""
    h3_resolution: int = 7
    """resolution of the hexagons, 0 to 15"""
    resolutions: Annotated[tuple[int, ...] | None, such_as([7, 8])] = None
    """instead of `h3_resolution`, coarse to fine, such as `[7, 8]`: [fine hexagons where they are
    listed](#hexagons-of-several-sizes)"""
    fine_cells: Annotated[str | None, such_as("fine.txt")] = None
    """a file as for `cells`, of cells of the finer resolutions; required with `resolutions`"""
    slot_length: Duration = "1h"
    """a number of whole minutes that divides a day"""
    hours: tuple[int, int] = (9, 21)
    """local slots that start in [9, 21) are released"""
    lateness: Duration = "5m"
    """how long after its end a slot accepts readings"""
    max_ahead: Duration = "2m"
    """a record dated further ahead of a worker's clock waits; feeds do not send it"""
    min_interval: Duration = "1s"
    """one reading per user, HAT and interval counts; at most 86,400 intervals per slot"""
    cells: str = "all"
    """or a file: first line `source = "public"`, `"survey"` or `"private"`, then one H3 index per line; comment
    lines start with `#` ([`hatcast survey`](choosing.md#a-list-of-cells) writes such files; a private one also has
    its charge, `epsilon = 1.0`, `days = "FIRST,LAST"` and their `timezone`). Under `add_remove` a file with `source
    = "public"` is required"""
    grid: float = 0.001
    """km/h; releases are multiples of it. Not with `[policy.value]`, which has its own"""
    values: Annotated[tuple[str, ...], such_as(["speed", "delay"])] = ()
    """`["speed", "delay"]`: values of each reading that are released together, for one `epsilon`
    ([estimators.md](estimators.md#several-values)). Without it the speed alone. Each but `speed` has a table
    `[[policy.value]]`"""
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


def check_weak(epsilon: float, key: str, privacy: PrivacyTable) -> None:
    """Raise SettingError for an epsilon that gives hardly any privacy, unless the policy acknowledges it."""
    if epsilon > WEAK_EPSILON and not privacy.acknowledge_weak_privacy:
        raise SettingError(
            key,
            f"{epsilon:g} gives hardly any privacy",
            f"use at most {WEAK_EPSILON:g}, or set acknowledge_weak_privacy = true",
        )


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
