"""Keyword arguments of `hatcast.Policy`: the keys of `[policy]` and of the tables in it."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal, Required, TypedDict


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
