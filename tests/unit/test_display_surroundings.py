"""What the map's server says of routes, stops and the base map, and the archive in ranges."""

import asyncio
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner
from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import Writer

from hatcast.agents.cli import hatcast
from hatcast.agents.config.tables import DisplayTable, display_settings
from hatcast.agents.demo.defaults import demo_settings
from hatcast.agents.demo.embedded import Addresses
from hatcast.agents.demo.state import DemoOptions
from hatcast.agents.map.surroundings import BadBasemap, Surroundings, read_basemap, read_surroundings
from hatcast.stream.errors import HatcastError
from tests.displaying import feed, release, served
from tests.integration.tables import DEFAULTS, merged, toml
from tests.surroundings import HUB, ROUTES, write_basemap, write_timetable

OSM = ("© OpenStreetMap", "https://www.openstreetmap.org/copyright")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_basemap(tmp_path / "city.pmtiles")


def read(folder: Path, **display: Any) -> Surroundings:
    return read_surroundings(display_settings(DisplayTable(**display), folder))


def ask(surroundings: Surroundings | None, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer, unpacked."""

    async def run() -> tuple[int, Any, bytes]:
        async with served(feed([release(0)]), surroundings) as (url, client):
            return await request(client, method, url + path, headers)

    return asyncio.run(run())


async def request(client: ClientSession, method: str, url: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items() if value}
    async with client.request(method, url, headers={"Accept-Encoding": "identity", **named}) as response:
        body = await response.read()
        packed = response.headers.get("Content-Encoding") == "gzip"
        return response.status, response.headers, gzip.decompress(body) if packed else body


def test_routes_and_stops_are_geojson_packed_and_with_a_tag(tmp_path: Path) -> None:
    write_timetable(tmp_path / "feed.zip")
    found = read(tmp_path, gtfs="feed.zip")
    assert json.loads(ask(found, "/api/v1/surroundings")[2])["timetable"] == {"routes": len(ROUTES), "stops": 89}
    status, headers, body = ask(found, "/api/v1/routes", Accept_Encoding="gzip")
    assert (status, headers["Content-Type"]) == (200, "application/geo+json; charset=utf-8")
    assert headers["Content-Encoding"] == "gzip"
    route = json.loads(body)["features"][0]
    assert route["properties"] == {"route": "1", "name": "Route 1", "color": "#d7263d"}
    assert route["geometry"]["type"] == "MultiLineString"
    assert ask(found, "/api/v1/routes", Accept_Encoding="gzip", If_None_Match=headers["ETag"])[0] == 304
    stops = {each["properties"]["name"]: each for each in json.loads(ask(found, "/api/v1/stops")[2])["features"]}
    assert stops[HUB]["properties"]["routes"] == ["1", "12", "801"]
    assert stops[HUB]["geometry"]["type"] == "Point"


def test_a_map_without_files_says_so_and_has_neither_routes_nor_an_archive() -> None:
    assert json.loads(ask(None, "/api/v1/surroundings")[2]) == {"timetable": None, "basemap": None}
    status, _, body = ask(None, "/api/v1/routes")
    assert (status, json.loads(body)["error"].count("display.gtfs")) == (404, 1)
    assert ask(None, "/basemap.pmtiles")[0] == 404
    assert ask(None, "/api/v1/stops?bbox=1")[0] == 400


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("", 200, slice(None)),
        ("bytes=0-126", 206, slice(0, 127)),
        ("bytes=100-", 206, slice(100, None)),
        ("bytes=-50", 206, slice(-50, None)),
        ("bytes=10-99999999", 206, slice(10, None)),
    ],
)
def test_the_archive_is_served_in_ranges(archive: Path, asked: str, status: int, part: slice) -> None:
    content = archive.read_bytes()
    found = ask(read(archive.parent, basemap=archive.name), "/basemap.pmtiles", Range=asked)
    assert (found[0], found[2]) == (status, content[part])
    assert found[1]["Content-Type"] == "application/vnd.pmtiles"
    assert found[1]["Accept-Ranges"] == "bytes"
    if status == 206:
        first, last, _ = part.indices(len(content))
        assert found[1]["Content-Range"] == f"bytes {first}-{last - 1}/{len(content)}"


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=9-3", "bytes=a-b", "bytes=0-1,5-6"])
def test_a_range_that_the_archive_does_not_have_is_416(archive: Path, asked: str) -> None:
    status, headers, body = ask(read(archive.parent, basemap=archive.name), "/basemap.pmtiles", Range=asked)
    assert (status, body) == (416, b"")
    assert headers["Content-Range"] == f"bytes */{archive.stat().st_size}"


def test_a_range_of_another_version_of_the_archive_gets_the_whole_of_this_one(archive: Path) -> None:
    found = read(archive.parent, basemap=archive.name)
    tag = ask(found, "/basemap.pmtiles", "HEAD")[1]["ETag"]
    wanted = {"Range": "bytes=0-9"}
    assert ask(found, "/basemap.pmtiles", If_Range=tag, **wanted)[0] == 206
    assert ask(found, "/basemap.pmtiles", If_None_Match=tag)[0] == 304
    write_basemap(archive)
    os.utime(archive, (1, 1))
    status, headers, body = ask(found, "/basemap.pmtiles", If_Range=tag, **wanted)
    assert (status, body) == (200, archive.read_bytes())
    assert headers["ETag"] != tag


def test_only_the_named_file_is_served(archive: Path) -> None:
    (archive.parent / "city.pmtiles.gz").write_bytes(gzip.compress(b"another file"))
    (archive.parent / "secret").write_text("private")
    found = read(archive.parent, basemap=archive.name)
    assert ask(found, "/basemap.pmtiles", Accept_Encoding="gzip")[2] == archive.read_bytes()
    for path in ("/city.pmtiles", "/secret", "/basemap.pmtiles/../secret", "/basemap.pmtiles/%2e%2e/secret"):
        assert ask(found, path)[0] == 404
    archive.unlink()
    assert ask(found, "/basemap.pmtiles")[0] == 404


def archive_of(path: Path, *, kind: TileType = TileType.MVT, metadata: object = None, **header: Any) -> Path:
    with path.open("wb") as file:
        writer = Writer(file)  # type: ignore[no-untyped-call]  # pmtiles types its other functions
        writer.write_tile(zxy_to_tileid(0, 0, 0), gzip.compress(b""))  # type: ignore[no-untyped-call]
        made = {"tile_type": kind, "tile_compression": Compression.GZIP} | header
        writer.finalize(made, metadata or {})  # type: ignore[no-untyped-call]
    return path


@pytest.mark.parametrize(
    ("attribution", "credited"),
    [
        ('<a href="https://www.openstreetmap.org/copyright" onclick="x()">© OpenStreetMap</a>', [OSM]),
        ("Our &amp; city <script>alert(1)</script>", [("Our & city", ""), ("alert(1)", "")]),
        (
            '<a href="javascript:alert(1)">A</a> <a href="https://b.example/">B</a> C',
            [("A", ""), ("B", "https://b.example/"), ("C", "")],
        ),
        ("", [("© OpenStreetMap contributors", OSM[1])]),
    ],
)
def test_credits_are_the_texts_and_safe_links_of_the_archives_attribution(
    tmp_path: Path, attribution: str, credited: list[tuple[str, str]]
) -> None:
    path = archive_of(tmp_path / "a.pmtiles", metadata={"attribution": attribution})
    assert list(read_basemap(path).credits) == credited
    answer = json.loads(ask(read(tmp_path, basemap="a.pmtiles"), "/api/v1/surroundings")[2])
    assert answer["basemap"]["url"] == "basemap.pmtiles"
    assert answer["basemap"]["bounds"] == [-180, -90, 180, 90]
    assert [(each["text"], each["link"]) for each in answer["basemap"]["credits"]] == credited


def overwrite_metadata(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = int.from_bytes(content[24:32], "little")
    content[at + 12 : at + 16] = b"\xff" * 4
    path.write_bytes(content)


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(missing_ok=True), "does not exist"),
        (lambda path: path.write_bytes(b""), "is not a PMTiles archive"),
        (lambda path: path.write_bytes(b"PK\3\4" + b"\xff" * 200), "is not a PMTiles archive"),
        (lambda path: path.write_bytes(b"PMTiles\2" + bytes(200)), "is not PMTiles version 3"),
        (lambda path: path.write_bytes(b"PMTiles\3"), "is not a PMTiles archive"),
        (lambda path: archive_of(path, kind=TileType.PNG), "has PNG tiles"),
        (
            lambda path: archive_of(path, tile_compression=Compression.ZSTD),
            "has a compression that browsers cannot read",
        ),
        (
            lambda path: archive_of(path, metadata={"vector_layers": [{"id": "transportation"}]}),
            "has none of the layers",
        ),
        (lambda path: archive_of(path, metadata=["x"]), "metadata are not an object"),
        (lambda path: path.write_bytes(archive_of(path).read_bytes()[:-5]), "is cut off"),
        (lambda path: overwrite_metadata(archive_of(path)), "metadata are not JSON"),
    ],
)
def test_an_archive_that_the_page_cannot_draw_is_one_line(tmp_path: Path, damage: Damage, says: str) -> None:
    path = tmp_path / "city.pmtiles"
    damage(path)
    with pytest.raises(BadBasemap, match=says) as raised:
        read_basemap(path)
    assert "\n" not in str(raised.value)


def test_the_demos_options_are_files_of_its_map() -> None:
    display = DemoOptions(gtfs=Path("feed.zip"), basemap=Path("city.pmtiles")).display
    settings = demo_settings(Addresses("localhost:1", "redis://localhost:1"), None, None, display=display)
    assert (settings.display.gtfs, settings.display.basemap) == (Path("feed.zip"), Path("city.pmtiles"))


@pytest.mark.parametrize(
    ("key", "says"), [("gtfs", "is not a whole zip file"), ("basemap", "is not a PMTiles archive")]
)
def test_the_map_does_not_start_with_a_damaged_file_and_names_the_key(tmp_path: Path, key: str, says: str) -> None:
    (tmp_path / "given").write_bytes(b"PMTilez" * 40)
    config = tmp_path / "hatcast.toml"
    config.write_text(toml(merged(DEFAULTS, {"policy": {"name": "city"}, "display": {key: "given"}})))
    done = CliRunner().invoke(hatcast, ["display", "--config", str(config)])
    assert isinstance(done.exception, HatcastError)
    assert str(done.exception).startswith(f"display.{key}: {tmp_path / 'given'} {says}; ")
