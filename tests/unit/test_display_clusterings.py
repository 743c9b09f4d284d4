"""Clusterings on the map: what is stored, and what the API says of them."""

import asyncio
import json

import msgspec
import pytest

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.newest import MAX_POLICIES, MAX_RESULTS, ClusteringIndex
from tests.displaying import clustered, feed, publish, release, served
from tests.viewing import listening

PLAIN = {"Accept-Encoding": "identity"}
OLD, NEW = (clustered(letter * 32) for letter in "ab")
OF_OTHERS = clustered("c" * 32, policy="other")
OF_ANOTHER_DAY = clustered("d" * 32, date="2022-01-01")


def answer(path: str, made: Feed) -> tuple[int, bytes]:
    async def ask() -> tuple[int, bytes]:
        async with served(made) as (url, client), client.get(f"{url}{path}", headers=PLAIN) as response:
            return response.status, await response.read()

    return asyncio.run(ask())


def test_results_are_served_as_their_bytes_the_newest_first_and_rounds_are_not() -> None:
    made = feed(
        [release(0), OLD, clustered("b" * 32, "round"), NEW, OF_ANOTHER_DAY, clustered("c" * 32, policy="other")]
    )
    status, body = answer("/api/v1/clusterings", made)
    assert status == 200
    assert body == b'{"policy":"city","clusterings":[' + b",".join((NEW, OLD, OF_ANOTHER_DAY)) + b"]}"
    assert json.loads(answer("/api/v1/slots", made)[1])["clusterings"] == [letter * 32 for letter in "bad"]


def test_without_clusterings_the_lists_are_empty() -> None:
    made = feed([release(0), clustered(status="round")])
    assert answer("/api/v1/clusterings", made) == (200, b'{"policy":"city","clusterings":[]}')
    assert json.loads(answer("/api/v1/slots", made)[1])["clusterings"] == []
    assert answer("/api/v1/clusterings?date=2022-01-02", made)[0] == 400


async def test_a_result_that_comes_is_an_event_and_a_new_body() -> None:
    made = feed([release(0), OLD])
    async with served(made) as (url, client), listening(client, url) as viewer:
        await viewer.until(b"event: ready")
        async with client.get(f"{url}/api/v1/clusterings", headers=PLAIN) as before:
            assert NEW not in await before.read()
        publish(made, [NEW])
        await viewer.until(b"b" * 32)
        async with client.get(f"{url}/api/v1/clusterings", headers=PLAIN) as after:
            assert NEW in await after.read()


def test_memory_is_bounded_and_the_newest_results_stay() -> None:
    stored = ClusteringIndex()
    ids = [f"{number:032x}" for number in range(MAX_RESULTS + 3)]
    for each in ids:
        assert stored.add(clustered(each)) == "city"
        assert stored.add(clustered(each)) is None, "the same bytes again change nothing"
    assert stored.ids("city") == ids[:2:-1]
    for number in range(MAX_POLICIES):
        stored.add(clustered(policy=f"policy-{number}"))
        stored.add(clustered(policy=f"rounds-{number}", status="round"))
    assert stored.ids("city") == []
    assert len(stored.ids("policy-0")) == 1


def without(name: str) -> bytes:
    record = json.loads(clustered())
    del record[name]
    return json.dumps(record).encode()


# A result that the page cannot draw would leave the map empty, for everyone.
UNDRAWN = [
    *map(without, ("clusters", "slots", "users", "unit")),
    clustered(clusters=[]),
    clustered(slots=["09:00"]),
    clustered(slots=["<b>", "10:00"]),
    clustered(policy="<script>"),
    clustered("d" * 33),
    clustered(clusters=[{"centre": "fast"}]),
]


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", clustered(status="other"), *UNDRAWN])
def test_other_records_are_errors_that_the_reader_skips(record: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        ClusteringIndex().add(record)
