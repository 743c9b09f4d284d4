"""What the map answers, byte for byte, and what it says to a question that it cannot answer."""

import csv
import io
import json
from itertools import pairwise

import h3
import pytest
from aiohttp import ClientSession

from tests.asking import RECORDS, answer, ask, latest
from tests.displaying import CELLS, estimate, feed, release, values_of


def cell_of(record: bytes) -> str:
    return str(json.loads(record)["cell"])


def test_the_latest_hour_is_the_topics_bytes() -> None:
    status, headers, body = answer("/api/v1/latest")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    records = sorted(latest(), key=cell_of)
    assert b'"releases":[' + b",".join(records) + b"]" in body
    assert b'"budget":' + RECORDS[-1] in body
    assert json.loads(body)["slot"] == {
        "slot": "2022-01-02T11:00",
        "start": "2022-01-02T11:00:00+05:30",
        "end": "2022-01-02T12:00:00+05:30",
        "label": "Sun 2 Jan 2022, 11:00 to 12:00",
    }


def test_an_earlier_hour_can_be_asked_for() -> None:
    found = values_of(answer("/api/v1/latest?slot=2022-01-02T09:00&policy=city")[2])
    assert [each["mean"] for each in found["releases"]] == [
        f"20.{CELLS.index(each['cell'])}70" for each in found["releases"]
    ]


def test_a_feature_is_a_record_and_the_hexagon_that_h3_says() -> None:
    _, headers, body = answer("/api/v1/latest", Accept="application/geo+json")
    assert headers["Content-Type"] == "application/geo+json; charset=utf-8"
    found = json.loads(body)
    assert found["type"] == "FeatureCollection"
    for feature in found["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        cell = feature["properties"]["cell"]
        assert {tuple(place) for place in ring} == {(lon, lat) for lat, lon in h3.cell_to_boundary(cell)}
        assert feature["id"] == feature["properties"]["release_id"]
        area = sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))
        assert area > 0, "RFC 7946 wants counterclockwise"
    for record in latest():
        assert b'"properties":' + record in body


def test_a_hexagon_across_the_date_line_does_not_go_around_the_world() -> None:
    cell = h3.latlng_to_cell(-17.0, 180.0, 5)
    found = json.loads(answer("/api/v1/latest", feed([release(0, cell)]), Accept="application/geo+json")[2])
    parts = found["features"][0]["geometry"]["coordinates"]
    assert len(parts) == 2
    for [ring] in parts:
        longitudes = [place[0] for place in ring]
        assert -180 <= min(longitudes) <= max(longitudes) <= 180
        assert max(longitudes) - min(longitudes) < 1


def test_the_csv_of_an_hour_has_all_its_records_with_their_digits_also_those_of_later_versions() -> None:
    later = release(0, CELLS[1], "20.170").replace(b'"status": "released"', b'"status": "released_by_a_later_version"')
    made = feed([release(0, CELLS[0], "20.070"), later, release(0, CELLS[2], None)])
    status, headers, body = answer("/api/v1/latest?format=csv", made)
    assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8; header=present")
    rows = {each["cell"]: each for each in csv.DictReader(io.StringIO(body.decode()))}
    assert {cell: rows[cell]["mean"] for cell in CELLS[:3]} == {CELLS[0]: "20.070", CELLS[1]: "20.170", CELLS[2]: ""}
    (estimated,) = csv.DictReader(
        io.StringIO(answer("/api/v1/estimates?format=csv", feed([release(0), estimate(0)]))[2].decode())
    )
    assert (estimated["road"], estimated["stage"]) == ("24.5", "live")


def test_the_format_that_is_requested_comes_before_the_accepted_one() -> None:
    assert answer("/api/v1/latest?format=geojson")[2] == answer("/api/v1/latest", Accept="application/geo+json")[2]
    assert answer("/api/v1/latest?format=json", Accept="application/geo+json")[2] == answer("/api/v1/latest")[2]
    status, _, body = answer("/api/v1/latest?format=xml")
    assert (status, json.loads(body)["error"]) == (
        400,
        "format: write one of json, geojson, csv",
    )


@pytest.mark.parametrize(
    ("span", "hours"),
    [
        ("", [9, 10, 11]),
        ("?from=2022-01-02T10:00:00%2B05:30", [10, 11]),
        ("?to=2022-01-02T05:30:00Z", [9, 10]),
        ("?from=2022-01-02T04:30Z&to=2022-01-02T04:30:00.001Z", [10]),
        ("?from=2030-01-01T00:00:00Z", []),
    ],
)
def test_a_cells_hours_are_those_that_begin_from_then_until_then(span: str, hours: list[int]) -> None:
    status, _, body = answer(f"/api/v1/cells/{CELLS[0]}{span}")
    assert status == 200
    wanted = [
        each for each in RECORDS if f'"{CELLS[0]}"'.encode() in each and int(json.loads(each)["slot"][:2]) in hours
    ]
    assert b'"releases":[' + b",".join(wanted) + b"]" in body


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/v1/cells/87608b0d2fffff", 400, "15 hexadecimal digits"),
        ("/api/v1/cells/87608B0D2FFFFFF", 400, "lower case"),
        ("/api/v1/cells/fffffffffffffff", 400, "not an H3 cell"),
        ("/api/v1/cells/..%2f..%2fetc", 400, "not an H3 cell"),
        ("/api/v1/cells/8a2a1072b59ffff", 404, "no release of this cell"),
        (f"/api/v1/cells/{CELLS[0]}?from=yesterday", 400, "from: write an instant"),
        (f"/api/v1/cells/{CELLS[0]}?from=2022-01-02T10:00:00", 400, "offset"),
        (f"/api/v1/cells/{CELLS[0]}?to=2022-13-02T10:00:00Z", 400, "to: write an instant"),
        (f"/api/v1/cells/{CELLS[0]}?to=0000-01-01T00:00:00Z", 400, "to: write an instant"),
        (f"/api/v1/cells/{CELLS[0]}?from=2022-01-02T10:00Z&to=2022-01-02T10:00Z", 400, "not before"),
        (f"/api/v1/cells/{CELLS[0]}?until=1", 400, "allowed are policy, from, to, format"),
        (f"/api/v1/cells/{CELLS[0]}/estimates", 404, "no estimate of this cell"),
        ("/api/v1/cells/x/estimates", 400, "not an H3 cell"),
        ("/api/v1/estimates?slot=2022-01-02T09:00", 404, "not stored"),
        ("/api/v1/estimates?kind=releases", 400, "allowed are policy, slot, format"),
        ("/api/v1/events?kind=release", 400, "releases, estimates"),
        ("/api/v1/latest?slot=9", 400, "local start"),
        ("/api/v1/latest?slot=1999-01-01T09:00", 404, "not stored"),
        ("/api/v1/latest?policy=other", 404, "no release of this policy"),
        ("/api/v1/latest?policy=a%20b", 400, "not a policy name"),
        (f"/api/v1/cells/{CELLS[0]}?from=2022-01-02T09:00Z&from=2022-01-02T10:00Z", 400, "twice"),
        ("/api/v1/nothing", 404, "not found"),
        ("/../../etc/passwd", 404, "not found"),
        ("/js/", 404, "not found"),
        ("/metrics", 404, "not found"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_one_line_that_says_why(path: str, status: int, says: str) -> None:
    found, headers, body = answer(path)
    assert (found, headers["Cache-Control"]) == (status, "no-store")
    assert says in json.loads(body)["error"]
    assert body.count(b"\n") == 1


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/geo+json", "application/geo+json"),
        ("Application/GEO+json; q=0.9, text/html;q=0.1, */*", "application/geo+json"),
        ("application/json;q=0.5, application/geo+json", "application/geo+json"),
        ("application/geo+json;q=0.1, application/json", "application/json"),
        ("application/geo+json;q=0", "application/json"),
        ("application/geo+json;q=much", "application/json"),
        ("text/html, */*", "application/json"),
        ("", "application/json"),
    ],
)
def test_the_form_that_is_wanted_most_is_answered(accept: str, kind: str) -> None:
    assert answer("/api/v1/latest", Accept=accept)[1]["Content-Type"].startswith(f"{kind};")


def test_nothing_can_be_changed() -> None:
    async def asking(url: str, client: ClientSession) -> None:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with client.request(method, f"{url}/api/v1/latest") as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")

    ask(feed(RECORDS), asking)


def test_a_map_without_releases_says_so_and_one_that_still_reads_is_not_ready() -> None:
    assert json.loads(answer("/api/v1/latest", feed())[2]) == {
        "policy": "city",
        "slot": None,
        "budget": None,
        "releases": [],
    }
    reading = feed(ready=False)
    for path in ("/api/v1/latest", "/api/v1/slots", "/api/v1/events", "/readyz"):
        assert answer(path, reading)[0] == 503
    assert answer("/livez", reading)[0] == 200
    assert json.loads(answer("/readyz", feed())[2]) == {"ready": True, "parts": {"topics": "ok", "kafka": "ok"}}


def test_the_configured_policy_is_shown_and_while_it_has_nothing_the_newest() -> None:
    records = [release(5, policy="old"), release(2, policy="older")]
    assert json.loads(answer("/api/v1/slots", feed(records))[2])["policy"] == "old"
    found = json.loads(answer("/api/v1/slots", feed([*records, release(1)]))[2])
    assert (found["policy"], found["policies"]) == ("city", ["old", "older", "city"])


def test_fields_that_are_not_known_here_are_passed_on() -> None:
    record = release(0, weight={"central": 0.750}, device_epsilon=2)
    assert record in answer("/api/v1/latest", feed([record]))[2]
