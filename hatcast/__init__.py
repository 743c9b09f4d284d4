"""hatcast: continual private means from a stream of vehicle telemetry.

    from hatcast import ESTIMATORS, FORMATS, ReleaseRecord, load_settings

    policy = load_settings("hatcast.toml").policy

Everything else is in `hatcast.stream`, the pure core, and in `hatcast.agents`, which talks to Kafka, Redis and people.
Names here are stable within a minor version.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hatcast.agents.config.settings import Settings, load_settings
    from hatcast.stream.errors import HatcastError
    from hatcast.stream.estimators import ESTIMATORS
    from hatcast.stream.policy.policy import Policy
    from hatcast.stream.readings.formats import FORMATS
    from hatcast.stream.records import BudgetRecord, QueryRecord, ReleaseRecord

__all__ = [
    "ESTIMATORS",
    "FORMATS",
    "BudgetRecord",
    "HatcastError",
    "Policy",
    "QueryRecord",
    "ReleaseRecord",
    "Settings",
    "load_settings",
]

# Loaded at first use: `hatcast --help` must not wait for numpy.
_MODULES: Final = {
    "BudgetRecord": "hatcast.stream.records",
    "ESTIMATORS": "hatcast.stream.estimators",
    "FORMATS": "hatcast.stream.readings.formats",
    "HatcastError": "hatcast.stream.errors",
    "Policy": "hatcast.stream.policy.policy",
    "QueryRecord": "hatcast.stream.records",
    "ReleaseRecord": "hatcast.stream.records",
    "Settings": "hatcast.agents.config.settings",
    "load_settings": "hatcast.agents.config.settings",
}


def __getattr__(name: str) -> Any:
    """Return a public name, loading its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hatcast' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
