"""The slot that a page without records waits for."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.map.rendering import AwaitedReleases
from tests.integration.tables import DEFAULTS, merged

POLICY = {"name": "city", "timezone": "Asia/Kolkata", "hours": [9, 21], "lateness": "5m"}


def awaited(now: str, retention: str = "72h", **policy: Any) -> dict[str, Any]:
    tables = {"topics": {"telemetry_retention": retention, "prefix": "p."}, "policy": POLICY | policy}
    settings = parse_settings(merged(DEFAULTS, tables), Path(), {})
    found: dict[str, Any] = json.loads(
        AwaitedReleases(settings).view(round(datetime.fromisoformat(now).timestamp() * 1000))
    )
    return found


@pytest.mark.parametrize(
    ("now", "slot", "closes"),
    [
        ("2022-01-02T09:30:00+05:30", "2022-01-02T09:00", "2022-01-02T10:05:00+05:30"),
        ("2022-01-02T10:04:59+05:30", "2022-01-02T09:00", "2022-01-02T10:05:00+05:30"),
        ("2022-01-02T10:05:00+05:30", "2022-01-02T10:00", "2022-01-02T11:05:00+05:30"),
        ("2022-01-02T03:00:00+05:30", "2022-01-02T09:00", "2022-01-02T10:05:00+05:30"),
        ("2022-01-02T21:05:00+05:30", "2022-01-03T09:00", "2022-01-03T10:05:00+05:30"),
        ("2022-01-02T23:59:00+05:30", "2022-01-03T09:00", "2022-01-03T10:05:00+05:30"),
    ],
)
def test_the_next_slot_of_the_policys_hours_is_awaited_until_its_lateness_is_over(
    now: str, slot: str, closes: str
) -> None:
    found = awaited(now)
    assert (found["policy"], found["topic"]) == ("city", "p.hats.means")
    assert (found["slot"]["slot"], found["slot"]["closes"]) == (slot, closes)


def test_a_policy_that_begins_later_is_awaited_from_its_first_date_on() -> None:
    found = awaited("2022-01-02T12:00:00+05:30", replaces="old", **{"from": "2022-03-01"})
    assert found["slot"]["slot"] == "2022-03-01T09:00"


def test_no_hour_is_awaited_by_the_clock_where_telemetry_is_a_recording() -> None:
    assert awaited("2022-01-02T12:00:00+05:30", "none") == {"policy": "city", "topic": "p.hats.means"}
