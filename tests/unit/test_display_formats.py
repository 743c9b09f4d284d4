"""The API's records as GeoJSON and CSV: the bytes and digits of the topics, in every format."""

import csv
import io
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from hatcast.agents.map.record import RecordKind
from tests.asking import answer
from tests.displaying import CELLS, answered, clustered, continual, estimate, feed, publish, release, running, served

RECORDS = [
    *(release(hour, cell, f"{20 + hour}.{at}70") for hour in range(3) for at, cell in enumerate(CELLS[:3])),
    release(2, CELLS[3], None),
    *(estimate(hour, cell) for hour in range(3) for cell in CELLS[:2]),
    *(running(2, cell, name) for cell in CELLS[:2] for name in ("24h", "today")),
    *(continual(hour, cell, policy="city") for hour in range(3) for cell in CELLS[:2]),
]
ANSWERS = [answered(slot, cell) for slot in ("09:00", "10:00") for cell in CELLS[:2]]
CLUSTERED = clustered()
PATHS = [
    "/api/v1/latest",
    "/api/v1/latest?slot=2022-01-02T09:00",
    "/api/v1/estimates",
    f"/api/v1/cells/{CELLS[0]}",
    f"/api/v1/cells/{CELLS[0]}/estimates",
    "/api/v1/running",
    "/api/v1/running?name=today",
    f"/api/v1/cells/{CELLS[0]}/running",
    "/api/v1/continual",
    f"/api/v1/cells/{CELLS[0]}/continual",
    "/api/v1/queries",
    "/api/v1/queries?slot=09:00",
    f"/api/v1/cells/{CELLS[0]}/queries",
]


def made() -> Any:
    """A map with releases, estimates, answers to a query and a clustering."""
    stored = feed(RECORDS)
    with stored.batch() as changes:
        for record in ANSWERS:
            changes.listed(stored.answers, record)
        changes.listed(stored.clusterings, CLUSTERED)
    return stored


def with_format(path: str, name: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}format={name}"


def records_of(path: str) -> list[dict[str, Any]]:
    """The records of the JSON response."""
    body = json.loads(answer(path, made())[2])
    [records] = [value for name, value in body.items() if name in (*RecordKind, "queries", "clusterings")]
    assert records
    return list(records)


@pytest.mark.parametrize("path", PATHS)
def test_geojson_has_a_feature_for_each_record(path: str) -> None:
    status, headers, body = answer(with_format(path, "geojson"), made())
    assert (status, headers["Content-Type"]) == (200, "application/geo+json; charset=utf-8")
    found = json.loads(body)
    assert found["type"] == "FeatureCollection"
    assert found["policy"] == "city"
    assert [each["properties"] for each in found["features"]] == records_of(path)
    assert all(each["geometry"]["type"] == "Polygon" for each in found["features"])
    names = [each["id"] for each in found["features"]]
    assert len({*names}) == len(names)
    for record in (*RECORDS, *ANSWERS):
        properties = json.loads(record)
        if properties in [each["properties"] for each in found["features"]]:
            assert b'"properties":' + record in body


@pytest.mark.parametrize("path", [*PATHS, "/api/v1/clusterings"])
def test_csv_has_a_line_for_each_record_and_its_digits(path: str) -> None:
    status, headers, body = answer(with_format(path, "csv"), made())
    assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8; header=present")
    rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    assert [json.loads(row["record"]) for row in rows] == records_of(path)
    known = {*RECORDS, *ANSWERS, CLUSTERED}
    assert all(row["record"].encode() in known for row in rows)
    if path == "/api/v1/latest":
        assert [row["mean"] for row in rows if row["mean"]] == ["22.270", "22.070", "22.170"]


def test_the_format_goes_before_the_header_accept() -> None:
    for path in PATHS:
        for name, kind in (("json", "application/json"), ("csv", "text/csv")):
            headers = answer(with_format(path, name), made(), Accept="application/geo+json")[1]
            assert headers["Content-Type"].startswith(kind)
        assert answer(path, made(), Accept="text/csv")[1]["Content-Type"].startswith("text/csv")
        assert answer(path, made(), Accept="application/geo+json")[1]["Vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/v1/latest?format=xml", "format: write one of json, geojson, csv"),
        ("/api/v1/latest?format=", "format: write one of json, geojson, csv"),
        ("/api/v1/clusterings?format=geojson", "format: write one of json, csv"),
        ("/api/v1/slots?format=csv", "allowed are policy"),
        ("/api/v1/status?format=csv", "unknown parameter: none is allowed here"),
    ],
)
def test_a_format_that_there_is_not_gets_one_line(path: str, says: str) -> None:
    status, headers, body = answer(path, made())
    assert (status, headers["Content-Type"]) == (400, "application/json; charset=utf-8")
    assert says in json.loads(body)["error"]


def test_nothing_published_is_a_header_or_an_empty_collection() -> None:
    assert answer("/api/v1/latest?format=csv", feed())[2].startswith(b"release_id,status,")
    assert answer("/api/v1/latest?format=csv", feed())[2].count(b"\n") == 1
    assert json.loads(answer("/api/v1/latest?format=geojson", feed())[2])["features"] == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["json", "geojson", "csv"])
async def test_a_client_that_has_the_response_gets_304_until_a_record_comes(path: str, name: str) -> None:
    url_path = with_format(path, name)
    stored = made()

    async with served(stored) as (url, client):
        tag = await tag_of(client, url + url_path)
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            async with client.get(url + url_path, headers={"If-None-Match": known}) as response:
                assert (response.status, await response.read()) == (304, b"")
                assert response.headers["ETag"] == tag
                assert "Accept-Encoding" in response.headers["Vary"]
        publish(stored, [release(5, CELLS[0], "19.000")])
        again = await tag_of(client, url + url_path)
        if path == "/api/v1/latest":
            assert again != tag
            async with client.get(url + url_path, headers={"If-None-Match": tag}) as response:
                assert response.status == 200


async def tag_of(client: ClientSession, url: str) -> str:
    async with client.get(url) as response:
        assert response.status == 200
        return response.headers["ETag"]


async def test_formats_have_tags_of_their_own() -> None:
    async with served(made()) as (url, client):
        paths = [with_format("/api/v1/latest", name) for name in ("json", "geojson", "csv")]
        assert len({await tag_of(client, url + path) for path in paths}) == 3
