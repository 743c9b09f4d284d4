"""Configurations of tests, as nested tables."""

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from tests.services.kafka_server import PARTITIONS

DEFAULTS: Final[dict[str, Any]] = {
    "kafka": {"partitions": PARTITIONS},
    "redis": {},
    "topics": {"telemetry_retention": "none"},
    "worker": {"checkpoint_interval": "200ms", "session_timeout": "6s", "idle_after": "1s"},
    "policy": {
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0, "min_users": 1},
        "estimator": {"name": "baseline"},
    },
}


def golden_table(golden: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The configuration that a golden result was made with; `changes` to `[policy]`."""
    given = golden["policy"]
    policy = {
        "upper_bound": given["U"],
        "reject_above": given["reject_above"],
        "drop_zero": given["drop_zero"],
        "timezone": given["tz"],
        "h3_resolution": given["res"],
        "hours": [given["h0"], given["h1"]],
        "lateness": f"{given['late']}s",
        "max_ahead": f"{given['ahead']}s",
        "min_interval": f"{given['minint']}s",
        "slot_length": f"{given['slot']}m",
        "privacy": {"max_hats_per_day": given["K"]},
    }
    return {"policy": merged(policy, changes)}


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested tables with some keys changed; None removes one."""
    made = copy.deepcopy(dict(table))
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and isinstance(made.get(key), dict)
        made[key] = merged(made[key], value) if inner else value
        if value is None:
            del made[key]
    return made


def toml(table: Mapping[str, Any], where: str = "") -> str:
    """Nested tables of texts, numbers, truth values and lists, also of tables, as TOML."""
    plain = {key: value for key, value in table.items() if not _tables(value)}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in plain.items()]
    for key in table.keys() - plain.keys():
        inside = f"{where}.{key}" if where else key
        if isinstance(table[key], Mapping):
            lines += [f"[{inside}]\n", toml(table[key], inside)]
        else:
            lines += [f"[[{inside}]]\n{toml(each, inside)}" for each in table[key]]
    return "".join(lines)


def _tables(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))
