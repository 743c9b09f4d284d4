"""What `hatcast status --why` says of an hour, and the page that draws it."""

import html
from typing import Any

import pytest

from hatcast.agents.cli.status_page import page
from hatcast.agents.cli.status_why import NEXT, StoredHour, explain, lines, slot_asked
from hatcast.agents.config.settings import Settings, settings_of_policy
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from tests.replayed import policy_of
from tests.unit.test_policy_add_remove import policy as hidden_policy

HOUR = 3_600_000
NINE = 1_641_114_000_000  # 2022-01-02T09:00Z
CLOSES = NINE + HOUR + 300_000
LATER = CLOSES + HOUR
TEN_O_TWO = NINE + HOUR + 131_000


def settings(**changes: Any) -> Settings:
    return settings_of_policy(policy_of(**{"timezone": "UTC", "hours": [6, 22], "lateness": "5m"} | changes), {})


def stored(**changes: Any) -> StoredHour:
    given: dict[str, Any] = {
        "pending": 3,
        "published": 0,
        "sealed": False,
        "first_ms": None,
        "next_policy": None,
        "spent": 2_000_000_000,
        "limit": 5_000_000_000,
        "last": ("p/2022-01-02T08:00/87608b0d2ffffff", "2022-01-02T09:05:20Z"),
    }
    return StoredHour(**given | changes)


def row(partition: int, clock: int | None, offset: int | None = 7, end: int = 7) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "end": end, "clock": clock}


def why(
    rows: list[dict[str, Any]],
    now_ms: int = LATER,
    hour: str = "2022-01-02T09:00",
    of: Settings | None = None,
    **changes: Any,
) -> dict[str, Any]:
    made = of or settings()
    calendar = Calendar(made.policy)
    slot = slot_asked(calendar, made.policy, hour, [each["clock"] for each in rows], now_ms)
    return explain(made, calendar, slot, stored(**changes), {made.topics.telemetry: rows}, now_ms)


PAST = [row(0, CLOSES), row(1, CLOSES + 5)]


def test_a_partition_to_which_nothing_is_sent_is_named_with_its_last_moment() -> None:
    found = why([*PAST, row(3, TEN_O_TWO)])
    assert found["state"] == "waiting"
    assert found["stages"] == ["feed"]
    assert found["waits_for"] == ["partition 3: nothing since 10:02:11"]
    assert "2022-01-02T09:00 is open; it waits for:\n  partition 3: nothing since 10:02:11\n" in "\n".join(lines(found))


def test_a_partition_that_nobody_folds_is_told_from_one_that_is_silent() -> None:
    found = why([*PAST, row(2, TEN_O_TWO, 7, 19), row(3, None, None, 2)])
    assert found["stages"] == ["fold"]
    assert found["waits_for"] == [
        "partition 2: 12 records since 10:02:11 are not folded: no worker reads it, or too slowly",
        "partition 3: no record of it is folded yet",
    ]


def test_an_hour_that_runs_waits_for_the_time_and_one_that_has_just_ended_for_its_next_records() -> None:
    live = [row(0, TEN_O_TWO), row(1, TEN_O_TWO - 40_000, 7, 30)]
    assert why(live, TEN_O_TWO + 1_000)["waits_for"] == ["the time: it closes at 10:05:00"]
    almost = [row(0, CLOSES), row(1, CLOSES - 1_000)]
    found = why(almost, CLOSES + 2_000)
    assert (found["state"], found["stages"]) == ("waiting", [])
    assert found["waits_for"] == ["partition 1: at 10:04:59"]


def test_a_feed_that_stalls_is_named_while_the_hour_runs() -> None:
    found = why([row(0, TEN_O_TWO), row(1, NINE)], TEN_O_TWO + 1_000)
    assert found["waits_for"] == ["partition 1: nothing since 09:00:00"]


def test_an_hour_that_is_final_and_not_published_waits_for_the_release() -> None:
    found = why(PAST)
    assert (found["state"], found["stages"]) == ("final", ["release"])
    assert found["waits_for"][0].startswith("3 releases are not published")
    assert why(PAST, pending=0)["state"] == "released"
    assert why([row(0, None, None)], sealed=True)["waits_for"] == []


def test_under_add_remove_the_releases_wait_for_their_minute() -> None:
    hidden = settings_of_policy(hidden_policy(timezone="UTC", lateness="5m"), {})
    found = why(PAST, CLOSES + 1_000, of=hidden, first_ms=NINE)
    assert found["waits_for"] == ["the releases are sent from 10:05:15 on"]
    assert why(PAST, of=hidden, first_ms=LATER)["state"] == "outside"


@pytest.mark.parametrize(
    ("hour", "changes", "reason"),
    [
        ("2022-01-02T05:00", {}, "it is outside of the hours of policy"),
        ("2022-01-02T09:00", {"next_policy": "newer"}, "it belongs to the policy newer"),
    ],
)
def test_an_hour_that_this_policy_never_releases_is_no_fault(hour: str, changes: dict[str, Any], reason: str) -> None:
    found = why(PAST, hour=hour, **changes)
    assert (found["state"], found["stages"]) == ("outside", [])
    assert found["waits_for"][0].startswith(reason)


def test_an_hour_is_asked_for_by_name_by_time_of_day_or_as_the_next_to_close() -> None:
    assert why(PAST, hour="09:00")["slot"] == "2022-01-02T09:00"
    assert why([row(0, NINE + HOUR)], hour=NEXT)["slot"] == "2022-01-02T09:00"
    assert why([row(0, CLOSES)], hour=NEXT)["slot"] == "2022-01-02T10:00"
    assert why([row(0, CLOSES + 13 * HOUR)], hour=NEXT)["slot"] == "2022-01-03T06:00"
    with pytest.raises(HatcastError, match=r"--why 9 o'clock: no slot starts then; write a local start"):
        why(PAST, hour="9 o'clock")


def test_budget_and_the_freshness_of_the_last_release_are_beside_it() -> None:
    found = why(PAST)
    assert found["budget"] == {"date": "2022-01-02", "limit": 5.0, "left": 3.0}
    assert found["last_release"]["after_end_s"] == 320.0
    assert any("320 s after its end" in line for line in lines(found))
    assert why(PAST, last=None)["last_release"] is None


def test_the_page_marks_the_step_that_waits_and_names_the_partition_first() -> None:
    rows = [*(row(number, CLOSES) for number in range(70)), row(70, TEN_O_TWO)]
    shown = page({"policy": "<b>", "open_hats": 3, "closed_through": None, "why": why(rows)})
    assert shown.index("<li class=stalled><h2>Feeds</h2>") > 0
    assert shown.count("class=stalled") == 1
    assert shown.index("partition 70") < shown.index('scope="row">partition 0<')
    assert "and 11 more partitions" in shown
    assert html.escape("<b>") in shown
    assert "<b>" not in shown
    assert "<script" not in shown
