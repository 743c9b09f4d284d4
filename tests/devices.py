"""Devices for tests: a policy that takes reports, recordings of buses, and what their reports say."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.device.fold import Rules
from hatcast.stream.policy.policy import Policy

HOUR: Final = 3_600_000
NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
PRIVACY: Final = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0}
EXACT: Final = {"epsilon": 1e7, "max_hats_per_day": 40, "daily_limit": 1e9, "acknowledge_weak_privacy": True}
"""Noise of a hundredth of a grid step: it is 0 but once in e**100 draws."""


def policy_table(**changes: Any) -> dict[str, Any]:
    return {
        "name": "devices",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": PRIVACY,
        "estimator": {"name": "pwh"},
    } | changes


def policy_of(**changes: Any) -> Policy:
    return parse_settings({"policy": policy_table(**changes)}, Path(), {}).policy


def rules_of(most_hats: int | None = None, **changes: Any) -> Rules:
    return Rules(policy_of(**changes), most_hats)


def line(vehicle: str, time_ms: int, speed: float, lat: float = 21.2, **more: Any) -> str:
    return json.dumps({"vehicle": vehicle, "time": time_ms, "lat": lat, "lon": 72.8, "speed": speed} | more)


def recording(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def two_hours(vehicles: Sequence[str]) -> list[str]:
    """Each vehicle in two hexagons in each of two hours, a reading a minute, in order of arrival."""
    return [
        line(vehicle, NOON + minute * 60_000 + number, 20.0 + number + minute / 10, 21.2 + (minute % 2) * 0.1)
        for minute in range(120)
        for number, vehicle in enumerate(vehicles)
    ]
