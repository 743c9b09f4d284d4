"""What the map answers, byte for byte, and what it says to a question that it cannot answer."""

import asyncio
import csv
import gzip
import io
import json
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h3
import pytest
from aiohttp import ClientSession

from hatcast.agents.map import subscribers as hub_module
from hatcast.agents.map.access import HEADERS
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import Kind
from tests.displaying import CELLS, budget, estimate, feed, listening, publish, release, running, served, values_of

STATIC = Path(__file__).parents[2] / "agents" / "map" / "static"
RECORDS = [
    *(release(hour, cell, f"{20 + hour}.{at}70") for hour in range(3) for at, cell in enumerate(CELLS[:3])),
    release(2, CELLS[3], None),
    budget(),
]

Asking = Callable[[str, ClientSession], Awaitable[None]]


def ask(made: Feed, asking: Asking) -> None:
    async def run() -> None:
        async with served(made) as (url, client):
            await asking(url, client)

    asyncio.run(run())


def answer(path: str, made: Feed | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and the bytes of an answer, unpacked."""
    found: list[Any] = []

    async def asking(url: str, client: ClientSession) -> None:
        async with client.get(url + path, headers=headers) as response:
            body = await response.read()
            packed = response.headers.get("Content-Encoding") == "gzip"
            found.extend((response.status, dict(response.headers), gzip.decompress(body) if packed else body))

    ask(made or feed(RECORDS), asking)
    return found[0], found[1], found[2]


def cell_of(record: bytes) -> str:
    return str(json.loads(record)["cell"])


def latest() -> list[bytes]:
    return [record for record in RECORDS if b"T11:00/" in record]


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


@pytest.mark.parametrize("path", ["/", "/style.css", "/api/v1/latest", "/api/v1/slots", f"/api/v1/cells/{CELLS[0]}"])
def test_one_who_has_an_answer_is_not_sent_it_again(path: str) -> None:
    made = feed(RECORDS)

    async def asking(url: str, client: ClientSession) -> None:
        tags = []
        for coding in ("gzip", "identity"):
            headers = {"Accept-Encoding": coding}
            async with client.get(url + path, headers=headers) as first:
                assert first.headers["Cache-Control"] == "no-cache"
                assert "Accept-Encoding" in first.headers["Vary"]
                tags.append(first.headers["ETag"])
            async with client.get(url + path, headers=headers | {"If-None-Match": f'"x", W/{tags[-1]}'}) as again:
                assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tags[-1])
        publish(made, [release(3, CELLS[0])])
        async with client.get(
            url + path, headers={"Accept-Encoding": "identity", "If-None-Match": tags[-1]}
        ) as changed:
            assert changed.status == (200 if path.startswith("/api") else 304)

    ask(made, asking)


@pytest.mark.parametrize("path", ["/", "/js/main.js", "/api/v1/latest", "/api/v1/cells/x", "/readyz", "/nothing"])
def test_every_answer_has_the_headers_that_keep_a_browser_safe_and_no_cookie(path: str) -> None:
    _, headers, _ = answer(path)
    assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
    assert headers["X-Frame-Options"] == "DENY"
    assert "Set-Cookie" not in headers


def test_the_page_has_no_script_style_or_address_that_the_policy_forbids() -> None:
    text = answer("/")[2].decode()
    assert "<title>A &lt;city&gt;</title>" in text
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("kind", [Kind.RELEASES, Kind.ESTIMATES])
def test_all_that_the_page_is_made_of_weighs_less_than_250_kb_as_sent(kind: Kind) -> None:
    """With a day of a city of 60 hexagons: the page, and what it asks for until the last hour has been looked at."""
    cells = sorted(h3.grid_disk(CELLS[0], 4))[:60]
    hats = [(hour, at, cell) for hour in range(24) for at, cell in enumerate(cells)]
    day = [release(hour, cell, f"{20 + hour}.370") for hour, _, cell in hats]
    if kind is Kind.ESTIMATES:  # with digits that differ, as estimates of neighbours do
        day += [estimate(hour, cell, road=20 + hour + 37 * at % 100 / 100, half=3 + at / 7) for hour, at, cell in hats]
        day += [
            running(23, cell, name, 20 + 37 * at % 100 / 100)
            for at, cell in enumerate(cells)
            for name in ("24h", "today")
        ]
    paths = [
        f"/{path.relative_to(STATIC).as_posix()}"
        for path in STATIC.rglob("*")
        if path.suffix in (".js", ".css", ".svg") and path.name != "protomaps-leaflet.js"  # only with a base map
    ]
    records = "latest" if kind is Kind.RELEASES else "estimates"
    slots = [f"/api/v1/{records}?slot=2022-01-{2 + (9 + hour) // 24:02}T{(9 + hour) % 24:02}:00" for hour in range(24)]
    made, weighed = feed([*day, budget()]), dict[str, int]()

    async def asking(url: str, client: ClientSession) -> None:
        for path in ("/", *paths, *slots):
            async with client.get(url + path, headers={"Accept-Encoding": "gzip"}) as response:
                assert response.status == 200, path
                weighed[path] = len(await response.read())
        weighed["/api/v1/events"] = len(made.initial_chunk(None, None).packed)

    ask(made, asking)
    assert sum(weighed.values()) < 250_000, sorted(weighed.items(), key=lambda each: -each[1])


@pytest.mark.parametrize("packed", [True, False])
def test_a_viewer_gets_a_snapshot_then_the_changes_and_after_a_break_what_it_missed(packed: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    made = feed(RECORDS)

    async def asking(url: str, client: ClientSession) -> None:
        async with listening(client, url, packed=packed) as there:
            await there.until(b"event: ready")
            assert set(there.page.releases.values()) == set(latest())
            publish(made, [release(4)])
            await there.until(b"event: release")
            assert release(4) in there.page.releases.values()
        publish(made, [release(5)])
        async with listening(client, url, there.page.seen, packed=packed) as back:
            await back.until(b"event: ready")
            assert (list(back.page.releases.values()), back.page.resets) == ([release(5)], 0)

    ask(made, asking)


def test_one_who_does_not_read_is_let_go_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "WRITE_TIMEOUT_S", 0.5)
    made = feed([release(0)])

    async def asking(url: str, client: ClientSession) -> None:
        host, port = url.removeprefix("http://").split(":")
        slow, to_slow = await asyncio.open_connection(host, int(port), limit=1024)
        to_slow.write(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await slow.readuntil(b"\r\n\r\n")
        async with listening(client, url) as quick:
            await quick.until(b"event: ready")
            assert len(made.hub) == 2
            hour = 0
            while len(made.hub) == 2:  # in the end neither its system nor ours has room for what it does not read
                hour += 1
                publish(made, [release(hour, filler="x" * 400_000)])
                await quick.until(b"event: release")
            publish(made, [release(hour + 1)])
            await quick.until(release(hour + 1))
            assert len(made.hub) == 1
        to_slow.close()

    ask(made, asking)


def test_no_more_viewers_are_taken_in_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_VIEWERS", 1)

    async def asking(url: str, client: ClientSession) -> None:
        async with listening(client, url) as first:
            await first.until(b"event: ready")
            async with client.get(f"{url}/api/v1/events") as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "2")

    ask(feed(RECORDS), asking)
