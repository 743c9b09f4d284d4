"""Whether the map is up to date: a broker that does not answer is not a topic without new records."""

import json

import pytest

from hatcast.agents.clock import now_ms
from hatcast.agents.map.feed import TIMEOUT_MS, Freshness
from tests.displaying import feed, release, served
from tests.viewing import listening

START = 1_789_997_600_000  # 2026-09-21T13:33:20Z


def viewed(freshness: Freshness, now: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(freshness.view(now))
    return found


def test_a_quiet_topic_is_live_and_says_how_old_its_newest_record_is() -> None:
    freshness = Freshness(START)
    freshness.record(START)
    freshness.answered([START + 3_600_000, START + 3_599_500])
    assert viewed(freshness, START + 3_600_000) == {
        "live": True,
        "kafka": "ok",
        "answered_at": "2026-09-21T14:33:19Z",
        "newest_record_at": "2026-09-21T13:33:20Z",
        "now": "2026-09-21T14:33:20Z",
    }


@pytest.mark.parametrize(
    ("answers", "part"),
    [
        ([0, 500], "no Kafka broker answers since 2026-09-21T13:33:20Z"),
        ([0, TIMEOUT_MS], "no Kafka broker answers for 1 of 2 partitions since 2026-09-21T13:33:20Z"),
        ([None, TIMEOUT_MS], "no Kafka broker answers for 1 of 2 partitions since 2026-09-21T13:33:20Z"),
        ([1, TIMEOUT_MS], "ok"),
        ([], "ok"),
    ],
)
def test_brokers_that_are_silent_are_named_with_since_when(answers: list[int | None], part: str) -> None:
    freshness = Freshness(START)
    freshness.answered([None if each is None else START + each for each in answers])
    now = START + TIMEOUT_MS + (500 if answers == [0, 500] else 0)
    assert freshness.part(now) == part
    assert freshness.live(now) is (part == "ok")


def test_a_record_from_the_future_is_as_new_as_now() -> None:
    freshness = Freshness(START)
    freshness.record(START + 60_000)
    assert viewed(freshness, START)["newest_record_at"] == "2026-09-21T13:33:20Z"
    assert viewed(Freshness(START), START)["newest_record_at"] is None


@pytest.mark.parametrize("packed", [True, False])
async def test_a_viewer_hears_of_an_outage_once_and_of_its_end_once(packed: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    made = feed([release(0)])

    async with served(made) as (url, client), listening(client, url, packed=packed) as there:
        await there.until(b'event: status\ndata: {"live":true')
        made.freshness.answered([now_ms() - TIMEOUT_MS])
        for _ in range(2):
            made.send_status_if_changed()
        await there.until(b'event: status\ndata: {"live":false,"kafka":"no Kafka broker answers since ')
        async with client.get(f"{url}/readyz") as response:
            assert response.status == 503
            assert (await response.json())["parts"]["kafka"].startswith("no Kafka broker answers since ")
        async with client.get(f"{url}/api/v1/status") as response:
            assert (await response.json())["live"] is False
        async with client.get(f"{url}/api/v1/latest") as response:
            assert response.status == 200, "what was published is served on"
        made.freshness.answered([now_ms()])
        for _ in range(2):
            made.send_status_if_changed()
        await there.until(b'event: status\ndata: {"live":true')
        async with client.get(f"{url}/readyz") as response:
            assert response.status == 200


async def test_a_viewer_hears_of_the_first_record_before_the_next_keepalive() -> None:
    made = feed([])

    async with served(made) as (url, client), listening(client, url, packed=False) as there:
        await there.until(b'"newest_record_at":null')
        made.freshness.record(now_ms())
        made.send_status_if_changed()
        await there.until(b'"newest_record_at":"')
