"""hatcast: continual private means from a stream of vehicle telemetry.

    import hatcast

    policy = hatcast.Policy("bus-speeds", upper_bound=65.0, timezone="Asia/Kolkata", privacy={"daily_limit": 5.0})
    releases = hatcast.batch("day.jsonl", policy, ledger="day.ledger")
    releases.estimates.to_polars()

Everything else is in `hatcast.stream`, the pure core, and in `hatcast.agents`, which talks to Kafka, Redis and people.
Names here are stable within a minor version.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hatcast.agents.api.batching import HatcastWarning, RawMeans, batch, raw_means
    from hatcast.agents.api.frames import (
        Answers,
        BatchReleases,
        BudgetDays,
        Estimates,
        Frame,
        Records,
        Releases,
        RunningMeans,
    )
    from hatcast.agents.api.policy import Policy
    from hatcast.agents.api.reading import estimates, read, running_means
    from hatcast.agents.config.settings import Settings, load_settings
    from hatcast.lab.api import PlannedKind, PlannedKinds, PlannedLimit, PlannedLimits, plan, plan_continual
    from hatcast.stream.errors import HatcastError
    from hatcast.stream.estimators import ESTIMATORS
    from hatcast.stream.readings.formats import FORMATS, Columns
    from hatcast.stream.records import BudgetRecord, EstimateRecord, QueryRecord, ReleaseRecord, RunningRecord

__all__ = [
    "ESTIMATORS",
    "FORMATS",
    "Answers",
    "BatchReleases",
    "BudgetDays",
    "BudgetRecord",
    "Columns",
    "EstimateRecord",
    "Estimates",
    "Frame",
    "HatcastError",
    "HatcastWarning",
    "PlannedKind",
    "PlannedKinds",
    "PlannedLimit",
    "PlannedLimits",
    "Policy",
    "QueryRecord",
    "RawMeans",
    "Records",
    "ReleaseRecord",
    "Releases",
    "RunningMeans",
    "RunningRecord",
    "Settings",
    "batch",
    "estimates",
    "load_settings",
    "plan",
    "plan_continual",
    "raw_means",
    "read",
    "running_means",
]

_NAMES: Final = {
    "hatcast.agents.api.batching": ("HatcastWarning", "RawMeans", "batch", "raw_means"),
    "hatcast.lab.api": (*("PlannedKind", "PlannedKinds", "PlannedLimit", "PlannedLimits"), *("plan", "plan_continual")),
    "hatcast.agents.api.policy": ("Policy",),
    "hatcast.agents.api.reading": ("estimates", "read", "running_means"),
    "hatcast.agents.api.frames": (
        *("Answers", "BatchReleases", "BudgetDays", "Estimates", "Frame", "Records", "Releases"),
        "RunningMeans",
    ),
    "hatcast.agents.config.settings": ("Settings", "load_settings"),
    "hatcast.stream.errors": ("HatcastError",),
    "hatcast.stream.estimators": ("ESTIMATORS",),
    "hatcast.stream.readings.formats": ("FORMATS", "Columns"),
    "hatcast.stream.records": ("BudgetRecord", "EstimateRecord", "QueryRecord", "ReleaseRecord", "RunningRecord"),
}
# Loaded at first use: `hatcast --help` must not wait for numpy.
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Return a public name, loading its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hatcast' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
