"""How the map's page is sent and kept up to date, and that a browser may trust it.
The libraries of the page are those of npm, byte for byte, with their licences.
"""

import asyncio
import re
from hashlib import sha256
from pathlib import Path

import h3
import pytest
from aiohttp import ClientSession

from hatcast.agents.map import http
from hatcast.agents.map.events import Hub
from hatcast.agents.map.page import SCRIPT
from hatcast.agents.map.record import RecordKind
from hatcast.agents.map.server import HEADERS
from tests.asking import RECORDS, answer, ask, latest
from tests.displaying import CELLS, budget, estimate, feed, publish, release, running
from tests.viewing import listening

STATIC = Path(__file__).parents[2] / "agents" / "map" / "static"


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


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/v1/latest", "/api/v1/cells/x", "/readyz", "/nothing"])
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


@pytest.mark.parametrize("kind", [RecordKind.RELEASES, RecordKind.ESTIMATES])
def test_all_that_the_page_is_made_of_weighs_less_than_250_kb_as_sent(kind: RecordKind) -> None:
    """With a day of a city of 60 hexagons: the page, and what it asks for until the last hour has been looked at."""
    cells = sorted(h3.grid_disk(CELLS[0], 4))[:60]
    hats = [(hour, at, cell) for hour in range(24) for at, cell in enumerate(cells)]
    day = [release(hour, cell, f"{20 + hour}.370") for hour, _, cell in hats]
    if kind is RecordKind.ESTIMATES:  # with digits that differ, as estimates of neighbours do
        day += [estimate(hour, cell, road=20 + hour + 37 * at % 100 / 100, half=3 + at / 7) for hour, at, cell in hats]
        day += [
            running(23, cell, name, 20 + 37 * at % 100 / 100)
            for at, cell in enumerate(cells)
            for name in ("24h", "today")
        ]
    paths = [
        f"/{path.relative_to(STATIC).as_posix()}"
        for path in STATIC.rglob("*")
        if path.suffix in (".js", ".css", ".svg")
        and path.parent.name != "js"  # in the script
        and path.name != "protomaps-leaflet.js"  # only with a base map
    ] + [SCRIPT]
    records = "latest" if kind is RecordKind.RELEASES else "estimates"
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
    monkeypatch.setattr(http, "PIECE_S", 0.5)
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


def test_no_more_viewers_are_taken_in_than_there_is_room_for() -> None:
    made = feed(RECORDS)
    made.hub = Hub(1)

    async def asking(url: str, client: ClientSession) -> None:
        async with listening(client, url) as first:
            await first.until(b"event: ready")
            async with client.get(f"{url}/api/v1/events") as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "2")

    ask(made, asking)


def test_a_page_loads_all_its_modules_as_one_script() -> None:
    script = answer(SCRIPT)[2].decode()
    assert re.findall(r'<script src="([^"]*)"', answer("/")[2].decode())[-1] == SCRIPT[1:]
    modules = {path.stem for path in (STATIC / "js").glob("*.js")}
    assert {name for name in modules if f"const module_{name} = " not in script} == set()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


VENDOR = Path(__file__).parents[2] / "agents" / "map" / "static" / "vendor"


def test_every_library_is_listed_unchanged_and_has_its_licence() -> None:
    rows = re.findall(r"\| `(\S+)` \| `\S+` \| \S+ \| `([0-9a-f]{64})` \|", (VENDOR / "README.md").read_text())
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.suffix in (".js", ".css")}
    assert {name for name, _ in rows} == files
    for name, digest in rows:
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / name).with_name("LICENSE").stat().st_size > 1_000
