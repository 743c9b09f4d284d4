"""Delays, the only value besides the speed that some formats have: its name, its unit and the check of a policy."""

from collections.abc import Mapping
from typing import Final

from hatcast.stream.errors import SettingError

DELAY: Final = "delay"
DELAY_UNIT: Final = "s"


def check_delays(feed: str, units: Mapping[str, str]) -> None:
    """Raise SettingError if `policy.values` names another value or unit. feed: name of the format."""
    for name, unit in units.items():
        _check(feed, name, unit, "policy.values")


def check_single_delay(feed: str, name: str, unit: str) -> None:
    """Raise SettingError if `[policy.value]` is another value or in another unit. feed: name of the format."""
    _check(feed, name, unit, "policy.value.name")


def _check(feed: str, name: str, unit: str, key: str) -> None:
    if name != DELAY:
        raise SettingError(key, f"{feed} records have no {name!r}", f"use {DELAY!r}, or format jsonl")
    if unit != DELAY_UNIT:
        raise SettingError(
            "policy.value", f"{feed} gives {DELAY} in {DELAY_UNIT}, not in {unit}", f'write "{DELAY_UNIT}"'
        )
