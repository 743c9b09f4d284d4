"""Running means on the map: free ones by name, and those of continual policies, which are no means of a HAT."""

import json
from itertools import permutations
from typing import Any

import pytest

from hatcast.agents.map import history as history_module
from hatcast.agents.map import newest as module
from hatcast.agents.map.events import EventPosition
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.newest import RunningIndex
from hatcast.agents.map.record import RecordKind
from hatcast.stream.records import RUNNING
from tests.asking import answer
from tests.displaying import CELLS, DAY_MS, budget, continual, estimate, feed, filed, publish, release, running
from tests.viewing import Page

WINDOWS = ("24h", "today")
MEANS = [running(hour, cell, name) for hour in range(3) for cell in CELLS[:2] for name in WINDOWS]
RECORDS = [*(release(hour, cell) for hour in range(3) for cell in CELLS[:2]), estimate(2), *MEANS, budget()]
WEEK = [continual(hour, cell, f"{25 + hour}.125") for hour in range(3) for cell in CELLS[:2]]


def body_of(path: str, made: Feed) -> bytes:
    status, _, body = answer(path, made)
    assert status == 200, body
    return body


def names(records: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(each["name"], each["cell"], each["slot"]) for each in records]


def test_the_records_of_these_tests_are_those_of_the_contract() -> None:
    assert [RUNNING.decode(record).name for record in MEANS[:2]] == list(WINDOWS)


def test_running_means_are_the_newest_of_each_name_and_cell_and_the_topics_bytes() -> None:
    made = feed(RECORDS)
    newest = [running(2, cell, name) for name in WINDOWS for cell in sorted(CELLS[:2])]
    assert body_of("/api/v1/running", made) == b'{"policy":"city","running":[' + b",".join(newest) + b"]}"
    today = [each for each in newest if b'"name": "today"' in each]
    assert b'"running":[' + b",".join(today) + b"]" in body_of("/api/v1/running?name=today&policy=city", made)
    of_cell = [each for each in newest if CELLS[1].encode() in each]
    assert b'"running":[' + b",".join(of_cell) + b"]" in body_of(f"/api/v1/cells/{CELLS[1]}/running", made)


def test_the_slots_list_each_running_mean_with_its_hour_cells_and_colours() -> None:
    made = feed([*RECORDS, running(1, CELLS[2], mean=None), running(2, mean=61.0)])
    found = json.loads(body_of("/api/v1/slots", made))["running"]
    assert [(each["name"], each["window"], each["of"]) for each in found] == [
        ("24h", "24h", "estimates"),
        ("today", "today", "estimates"),
    ]
    assert found[1]["slot"] == {
        "slot": "2022-01-02T11:00",
        "start": "2022-01-02T11:00:00+05:30",
        "end": "2022-01-02T12:00:00+05:30",
        "label": "Sun 2 Jan 2022, 11:00 to 12:00",
    }
    assert (found[1]["cells"], found[1]["range"]) == (sorted(CELLS[:3]), [25.0, 65.0])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/running?name=none", 404),
        ("/api/v1/running?name=a%20b", 400),
        (f"/api/v1/cells/{CELLS[3]}/running", 404),
        ("/api/v1/running?slot=2022-01-02T09:00", 400),
    ],
)
def test_a_running_mean_that_is_not_stored_gets_one_line(path: str, status: int) -> None:
    found, _, body = answer(path, feed(RECORDS))
    assert (found, list(json.loads(body))) == (status, ["error"])


@pytest.mark.parametrize("order", permutations(range(3)))
def test_the_newest_slot_holds_in_any_order_and_of_one_slot_the_last_record(order: tuple[int, ...]) -> None:
    settled = running(2, stage="settled", mean=30.0)
    made = feed([*(running(hour) for hour in order), settled])
    assert json.loads(body_of("/api/v1/running", made))["running"] == [json.loads(settled)]


def test_a_name_without_new_records_and_a_cell_that_is_not_driven_on_are_dropped_in_time() -> None:
    stored = RunningIndex(DAY_MS)
    for offset, record in enumerate([running(0, name="24h"), running(5, CELLS[1]), running(23)]):
        assert stored.add(filed(record, 0, offset))
    assert [each["name"] for each in stored.index("city")] == ["24h", "today"]
    assert stored.add(filed(running(29), 0, 3))
    assert names([json.loads(each) for each in stored.policies["city"].records()]) == [("today", CELLS[0], "14:00")]
    assert not stored.add(filed(running(5, CELLS[1]), 0, 4))
    assert stored.policies["city"].count == 1


def test_of_too_many_running_means_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 20)
    stored = RunningIndex(DAY_MS)
    for at in range(50):
        stored.add(filed(running(at // 10, name=f"w{at}"), 0, at))
        assert stored.policies["city"].count == sum(1 for _ in stored.policies["city"]) <= 20
    assert {each.slot for each in stored.policies["city"]} == {"2022-01-02T12:00", "2022-01-02T13:00"}


def test_at_most_eight_policies_have_running_means() -> None:
    stored = RunningIndex(DAY_MS)
    for at in range(module.MAX_POLICIES + 3):
        stored.add(filed(running(at, policy=f"policy-{at}"), 0, at))
    assert len(stored.policies) == module.MAX_POLICIES
    assert "policy-2" not in stored.policies


def test_one_who_comes_back_gets_the_running_means_that_came_meanwhile() -> None:
    page, made = Page(), feed(RECORDS)
    page.take(made.initial_chunk(None, None).plain)
    seen = EventPosition(**{name: getattr(made.position, name) for name in ("log", "means", "budget", "estimates")})
    seen.running = made.position.running[:]
    publish(made, [running(3), running(3, CELLS[1], stage="live")])
    page.take(made.initial_chunk(None, seen).plain)
    assert page.resets == 1
    assert page.running["today", CELLS[0]] == running(3)


def test_a_release_of_a_continual_policy_is_never_among_the_releases() -> None:
    made = feed([*RECORDS, *WEEK, budget(policy="week")])
    for path in ("/api/v1/latest?policy=week", "/api/v1/latest?policy=week&format=csv"):
        assert b"25.125" not in body_of(path, made)
        assert b"continual" not in body_of(path, made)
    assert answer(f"/api/v1/cells/{CELLS[0]}?policy=week", made)[0] == 404
    found = json.loads(body_of("/api/v1/continual?policy=week", made))
    assert (found["slot"]["slot"], found["slot"]["start"]) == ("2022-01-02T11:00", "2022-01-02T11:00:00+05:30")
    assert found["budget"]["policy"] == "week"
    assert b'"continual":[' + b",".join(sorted(WEEK[4:])) + b"]" in body_of("/api/v1/continual?policy=week", made)
    body = body_of(f"/api/v1/cells/{CELLS[0]}/continual?policy=week", made)
    assert b'"continual":[' + b",".join(WEEK[::2]) + b"]" in body
    stored = json.loads(body_of("/api/v1/slots?policy=week", made))
    assert (stored["slots"], len(stored["continual"]["slots"])) == ([], 3)
    assert set(stored["policies"]) == {"city", "week"}


def test_a_map_of_a_continual_policy_alone_shows_it_without_a_choice() -> None:
    made = feed([*WEEK, budget(policy="week")], policy="week")
    assert json.loads(body_of("/api/v1/slots", made))["policy"] == "week"
    page = Page()
    page.take(made.initial_chunk(None, None).plain)
    assert ({*page.continual.values()}, page.releases) == ({*WEEK[4:]}, {})


def test_budgets_of_a_continual_policy_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_BUDGETS", 3)
    made = feed([budget(f"2022-01-{day:02}", policy="week") for day in range(1, 9)], policy="week")
    assert [each.date for each in made.histories[RecordKind.RELEASES].budgets()] == [
        "2022-01-06",
        "2022-01-07",
        "2022-01-08",
    ]
