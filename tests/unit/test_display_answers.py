"""Answers to queries over days on the map: what is stored, and what the API says of them.
The slot that a page without records waits for.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.map import newest as module
from hatcast.agents.map.newest import AnswerIndex
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.stream.records import QUERY
from tests.asking import answer
from tests.displaying import CELLS, answered, feed, publish, release
from tests.integration.tables import DEFAULTS, merged
from tests.viewing import Page

BEFORE: dict[str, Any] = {"first_date": "2021-11-02", "last_date": "2021-12-02"}
OVER: dict[str, Any] = {
    "query": "over-50",
    "kind": "over_speed_limit",
    "speed_limit": 50.0,
    "mean": 3.125,
    "unit": "vehicles/day",
}
RECORDS = [
    answered("09:00", CELLS[0]),
    answered("10:00", CELLS[0]),
    answered("09:00", CELLS[1]),
    answered("09:00", CELLS[0], **OVER),
    answered("09:00", CELLS[0], **BEFORE),
    answered("09:00", CELLS[0], policy="other"),
]


def made(*more: bytes) -> module.AnswerIndex:
    found = AnswerIndex()
    for record in (*RECORDS, *more):
        found.add(record)
    return found


def test_the_records_of_these_tests_are_those_of_the_contract() -> None:
    assert [QUERY.decode(record).query for record in RECORDS] == ["month-speed"] * 3 + ["over-50"] + ["month-speed"] * 2


def test_the_index_lists_each_querys_periods_the_newest_first_and_how_many_answers_a_slot_has() -> None:
    both = {"query": "month-speed", "kind": "mean_speed", "days": 31}
    body = answer("/api/v1/slots", feed([release(0), *RECORDS]))[2]
    assert json.loads(body)["queries"] == [
        both | {"first_date": "2021-12-03", "last_date": "2022-01-02", "slots": {"09:00": 2, "10:00": 1}},
        both | BEFORE | {"slots": {"09:00": 1}},
        {"query": "over-50", "kind": "over_speed_limit", "speed_limit": 50.0, "days": 31}
        | {"first_date": "2021-12-03", "last_date": "2022-01-02", "slots": {"09:00": 1}},
    ]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [0, 2, 1, 3]),
        ("?query=month-speed", [0, 2, 1]),
        ("?query=over-50&policy=city", [3]),
        ("?slot=09:00", [0, 2, 3]),
        ("?period=2021-11-02", [4]),
        ("?query=month-speed&period=2021-12-03&slot=10:00", [1]),
        ("?policy=other", [5]),
    ],
)
def test_answers_are_the_topics_bytes_of_the_newest_period_or_as_requested(query: str, numbers: list[int]) -> None:
    made = feed([release(0), release(0, policy="other"), *RECORDS])
    status, headers, body = answer(f"/api/v1/queries{query}", made)
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert body.endswith(b'"queries":[' + b",".join(RECORDS[at] for at in numbers) + b"]}")


def test_a_cells_answers_are_of_all_periods_and_slots() -> None:
    status, _, body = answer(f"/api/v1/cells/{CELLS[0]}/queries", feed([release(0), *RECORDS]))
    assert status == 200
    assert body.endswith(b'"queries":[' + b",".join(RECORDS[at] for at in (0, 1, 4, 3)) + b"]}")


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/v1/queries?query=a/b", 400, "query: write the name of a query"),
        ("/api/v1/queries?period=yesterday", 400, "period: write the first date of a period"),
        ("/api/v1/queries?slot=2022-01-02T09:00", 400, "slot: write the local start of a slot, such as"),
        ("/api/v1/queries?cell=x", 400, "allowed are policy, query, period, slot"),
        ("/api/v1/queries?query=none", 404, "no such answer is stored"),
        ("/api/v1/queries?policy=none", 404, "no release of this policy"),
        (f"/api/v1/cells/{CELLS[3]}/queries", 404, "no answer about this cell"),
        ("/api/v1/cells/x/queries", 400, "not an H3 cell"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(path: str, status: int, says: str) -> None:
    found = answer(path, feed([release(0), *RECORDS]))
    assert found[0] == status
    assert says in json.loads(found[2])["error"]


def test_without_queries_the_lists_are_empty() -> None:
    assert json.loads(answer("/api/v1/queries", feed([release(0)]))[2]) == {"policy": "city", "queries": []}
    assert json.loads(answer("/api/v1/slots", feed([release(0)]))[2])["queries"] == []


def test_viewers_are_sent_the_index_when_an_answer_comes_and_not_for_one_that_comes_twice() -> None:
    made = feed([release(0)])
    with made.hub.viewer() as viewer:
        publish(made, [RECORDS[0]])
        text = viewer._queue.get_nowait().plain
        assert text.startswith(b"event: slots\n")
        assert b'"queries":[{"query":"month-speed"' in text
        publish(made, [RECORDS[0]])
        assert viewer._queue.empty()
    page = Page()
    page.take(made.initial_chunk(None, None).plain)
    assert page.releases.keys() == {"city/2022-01-02T09:00/87608b0d2ffffff"}, "an answer is not a release"


def test_only_the_newest_periods_and_so_many_answers_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PERIODS", 2)
    days = [answered("09:00", first_date=f"2022-01-0{day}", last_date=f"2022-01-0{day}") for day in range(1, 6)]
    found = AnswerIndex()
    assert [found.add(record) for record in (*days, days[0])] == [*["city"] * 5, None]
    assert [each["first_date"] for each in found.index("city")] == ["2022-01-05", "2022-01-04"]
    assert found.policies["city"].count == 2
    monkeypatch.setattr(module, "MAX_ANSWERS", 2)
    found.add(answered("10:00", first_date="2022-01-05", last_date="2022-01-05"))
    assert [each["first_date"] for each in found.index("city")] == ["2022-01-05"]
    assert found.policies["city"].count == 2


def test_of_many_policies_those_with_the_newest_periods_are_stored() -> None:
    found = AnswerIndex()
    for day in range(1, module.MAX_POLICIES + 3):
        found.add(answered(policy=f"policy-{day}", last_date=f"2022-01-{day:02}"))
    assert {*found.policies} == {f"policy-{day}" for day in range(3, module.MAX_POLICIES + 3)}


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
