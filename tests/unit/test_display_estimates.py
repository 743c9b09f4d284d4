"""Estimates on the map: what the API and the stream say of them, beside the releases and without them."""

import asyncio
import json
from collections.abc import Iterable

import pytest

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import RecordKind
from tests.asking import answer
from tests.displaying import CELLS, budget, continual, estimate, feed, publish, release, running, served, values_of
from tests.viewing import Page, listening

ESTIMATES = [
    *(estimate(hour, cell, "settled", road=20 + hour) for hour in range(2) for cell in CELLS[:3]),
    *(estimate(2, cell, "predicted", road=30) for cell in CELLS),
]
RECORDS = [*(release(hour, cell) for hour in range(3) for cell in CELLS[:2]), *ESTIMATES, budget()]


def of_hour(hour: int) -> list[bytes]:
    """The estimates of an hour, ordered by cell."""
    slot = f"T{9 + hour:02}:00/".encode()
    return sorted((each for each in ESTIMATES if slot in each), key=lambda each: str(json.loads(each)["cell"]))


def stored() -> Feed:
    return feed(RECORDS)


def test_the_latest_estimates_are_the_topics_bytes() -> None:
    status, headers, body = answer("/api/v1/estimates", stored())
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert b'"estimates":[' + b",".join(of_hour(2)) + b"]" in body
    found = json.loads(body)
    assert found["slot"]["slot"] == "2022-01-02T11:00"
    assert found.keys() == {"policy", "slot", "estimates"}


def test_estimates_of_an_earlier_hour_can_be_asked_for() -> None:
    body = answer("/api/v1/estimates?policy=city&slot=2022-01-02T09:00", stored())[2]
    assert b'"estimates":[' + b",".join(of_hour(0)) + b"]" in body


def test_estimates_are_geojson_too() -> None:
    found = json.loads(answer("/api/v1/estimates", stored(), Accept="application/geo+json")[2])
    assert {each["properties"]["stage"] for each in found["features"]} == {"predicted"}
    assert {each["properties"]["cell"] for each in found["features"]} == set(CELLS)


def test_a_cells_estimates_are_by_time_and_a_cell_without_a_release_has_them_too() -> None:
    body = answer(f"/api/v1/cells/{CELLS[0]}/estimates?to=2022-01-02T11:00%2B05:30", stored())[2]
    mine = [each for each in ESTIMATES if CELLS[0].encode() in each]
    assert b'"estimates":[' + b",".join(mine[:2]) + b"]" in body
    never_released = CELLS[3]
    assert answer(f"/api/v1/cells/{never_released}", stored())[0] == 404
    assert json.loads(answer(f"/api/v1/cells/{never_released}/estimates", stored())[2])["estimates"] == [
        json.loads(each) for each in ESTIMATES if never_released.encode() in each
    ]


def test_the_slots_cells_and_colours_of_both_kinds_are_listed() -> None:
    found = values_of(answer("/api/v1/slots", stored())[2])
    assert found["cells"] == sorted(CELLS[:2])
    assert found["estimates"]["cells"] == sorted(CELLS)
    assert [each["slot"] for each in found["estimates"]["slots"]] == [each["slot"] for each in found["slots"]]
    assert (found["range"], found["estimates"]["range"]) == (["20.0", "25.0"], ["20.0", "30.0"])


def test_the_colours_span_what_the_map_shows_the_means_and_without_one_the_roads() -> None:
    mean = {"value": 52.0, "sd": 1.0, "interval95": [50.0, 54.0]}
    made = feed([estimate(0, CELLS[0], road=20, mean=mean), estimate(0, CELLS[1], "predicted", road=33)])
    assert values_of(answer("/api/v1/slots", made)[2])["estimates"]["range"] == ["30.0", "55.0"]


def test_paths_of_releases_say_nothing_of_estimates() -> None:
    releases = [each for each in RECORDS if each not in ESTIMATES]
    for path in ("/api/v1/latest", "/api/v1/latest?slot=2022-01-02T09:00", f"/api/v1/cells/{CELLS[0]}"):
        assert answer(path, stored())[2] == answer(path, feed(releases))[2]


def test_estimates_of_a_policy_are_those_of_no_other() -> None:
    made = feed([*RECORDS, release(2, policy="other"), estimate(2, policy="other", road=50)])
    found = values_of(answer("/api/v1/estimates?policy=other", made)[2])
    assert [each["estimate_id"].split("/")[0] for each in found["estimates"]] == ["other"]
    assert {
        each["estimate_id"].split("/")[0] for each in values_of(answer("/api/v1/estimates", made)[2])["estimates"]
    } == {"city"}


def test_a_settled_estimate_is_answered_in_place_of_the_live_one() -> None:
    made = feed([release(0), estimate(0)])
    publish(made, [estimate(0, stage="settled", road=22)])
    assert [each["stage"] for each in values_of(answer("/api/v1/estimates", made)[2])["estimates"]] == ["settled"]


def followed(kind: str, before: Iterable[bytes], after: Iterable[bytes]) -> Page:
    """What a page knows that follows some kinds, of what was there before and of what came after."""
    page = Page()

    async def run() -> None:
        made = feed(before)
        async with served(made) as (url, client), listening(client, url, kind=kind) as there:
            there.page = page
            await there.until(b"event: ready")
            publish(made, after)
            made.send_keepalive()
            await there.until(b"event: alive")

    asyncio.run(run())
    return page


@pytest.mark.parametrize("kind", ["", *RecordKind])
def test_a_viewer_gets_the_kinds_that_it_wants_in_the_snapshot_and_later(kind: str) -> None:
    week = [continual(hour, policy="city") for hour in (2, 3)]
    changes = [release(3), estimate(3), running(3), week[1], budget(seq=2)]
    page = followed(kind, [*RECORDS, running(2), running(2, CELLS[1]), week[0]], changes)
    wanted = {
        RecordKind.RELEASES: {release(2, CELLS[0]), release(2, CELLS[1]), release(3)},
        RecordKind.ESTIMATES: {*of_hour(2), estimate(3)},
        RecordKind.RUNNING: {running(3), running(2, CELLS[1])},
        RecordKind.CONTINUAL: {*week},
    }
    found = {each: set(getattr(page, each).values()) for each in wanted}
    assert found == {each: records if kind in ("", each) else set() for each, records in wanted.items()}
    assert list(page.budgets.values()) == [budget(seq=2)]
    assert page.slots[-1] == "2022-01-02T12:00"


def test_one_who_comes_back_gets_the_estimates_that_were_replaced_meanwhile() -> None:
    page = Page()
    made = feed(RECORDS)
    page.take(made.initial_chunk(None, None).plain)
    settled = estimate(2, CELLS[0], "settled", road=31)
    publish(made, [estimate(2, CELLS[0], "live"), settled])
    page.take(made.initial_chunk(None, made.position).plain)
    assert page.resets == 1
    assert settled not in page.estimates.values(), "nothing was missed since that position"
    away = feed(RECORDS).position
    page.take(made.initial_chunk(None, away).plain)
    assert (settled in page.estimates.values(), page.resets) == (True, 1)


def test_without_a_topic_of_estimates_ids_and_answers_are_as_before() -> None:
    made = feed([release(0)], estimates=False, running=False)
    assert str(made.position).count("-") == 2
    page = Page()
    page.take(made.initial_chunk(None, None).plain)
    assert (list(page.releases.values()), page.estimates) == ([release(0)], {})
    assert json.loads(answer("/api/v1/estimates", made)[2]) == {"policy": "city", "slot": None, "estimates": []}
    publish(made, [release(1)])
    page.take(made.initial_chunk(None, made.position).plain)
    assert page.resets == 1


def test_one_whose_id_is_from_before_the_topic_of_estimates_starts_anew() -> None:
    seen = feed([release(0)], estimates=False).position
    assert not feed([release(0), estimate(0)]).position.reaches(seen)
