"""hatcast: continual private means from a stream of vehicle telemetry.

    import hatcast

    policy = hatcast.Policy("bus-speeds", upper_bound=65.0, timezone="Asia/Kolkata", privacy={"daily_limit": 5.0})
    releases = hatcast.batch("day.jsonl", policy, ledger="day.ledger")
    releases.estimates.to_polars()

Everything else is in `hatcast.stream`, the pure core, in `hatcast.agents`, which talks to Kafka, Redis and people, and
in `hatcast.lab`, the laboratory.
Names here are stable within a minor version.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hatcast.agents.api.batching import HatcastWarning as HatcastWarning
    from hatcast.agents.api.batching import RawMeans as RawMeans
    from hatcast.agents.api.batching import batch as batch
    from hatcast.agents.api.batching import raw_means as raw_means
    from hatcast.agents.api.frames import Answers as Answers
    from hatcast.agents.api.frames import BatchReleases as BatchReleases
    from hatcast.agents.api.frames import BudgetDays as BudgetDays
    from hatcast.agents.api.frames import Estimates as Estimates
    from hatcast.agents.api.frames import Frame as Frame
    from hatcast.agents.api.frames import Records as Records
    from hatcast.agents.api.frames import Releases as Releases
    from hatcast.agents.api.frames import RunningMeans as RunningMeans
    from hatcast.agents.api.policy import Policy as Policy
    from hatcast.agents.api.reading import estimates as estimates
    from hatcast.agents.api.reading import read as read
    from hatcast.agents.api.reading import running_means as running_means
    from hatcast.agents.config.settings import Settings as Settings
    from hatcast.agents.config.settings import load_settings as load_settings
    from hatcast.lab.api import PlannedKind as PlannedKind
    from hatcast.lab.api import PlannedKinds as PlannedKinds
    from hatcast.lab.api import PlannedLimit as PlannedLimit
    from hatcast.lab.api import PlannedLimits as PlannedLimits
    from hatcast.lab.api import plan as plan
    from hatcast.lab.api import plan_continual as plan_continual
    from hatcast.stream.errors import HatcastError as HatcastError
    from hatcast.stream.estimators import ESTIMATORS as ESTIMATORS
    from hatcast.stream.readings.formats import FORMATS as FORMATS
    from hatcast.stream.readings.formats import Columns as Columns
    from hatcast.stream.records import BudgetRecord as BudgetRecord
    from hatcast.stream.records import EstimateRecord as EstimateRecord
    from hatcast.stream.records import QueryRecord as QueryRecord
    from hatcast.stream.records import ReleaseRecord as ReleaseRecord
    from hatcast.stream.records import RunningRecord as RunningRecord


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
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Return a public name, loading its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hatcast' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
