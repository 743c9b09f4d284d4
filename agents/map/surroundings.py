"""Surroundings of the hexagons: routes and stops of a timetable, and a base map. Read once, at the start."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from pmtiles.reader import Reader
from pmtiles.tile import Compression, MagicNumberNotFound, SpecVersionUnsupported, TileType

from hatcast.agents.config.tables import DisplaySettings
from hatcast.agents.map.http import Body, RequestError, reject_unknown
from hatcast.agents.map.rendering import GEOJSON, JSON
from hatcast.agents.timetable.network import Network, TimetableRoute, read_network
from hatcast.stream.areas import Point
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

# Base map of the page: one PMTiles archive of vector tiles, checked at the start and served in ranges.
#
# PMTiles version 3: a header of 127 bytes, directories, metadata and tiles; a page fetches the parts that it shows.
# [github.com/protomaps/PMTiles, spec v3]
URL: Final = "basemap.pmtiles"
_HEADER_BYTES: Final = 127
_METADATA_MAX: Final = 16_000_000
_LAYERS: Final = frozenset({"earth", "landuse", "water", "roads"})  # of those that the page draws
_MAKE: Final = "make one with `pmtiles extract`, see docs/map.md"
_FETCH: Final = "fetch it again"
_OPEN_STREET_MAP: Final = ("© OpenStreetMap contributors", "https://www.openstreetmap.org/copyright")


class BadBasemap(HatcastError):
    """A file is not an archive that the page can draw."""

    def __init__(self, path: Path, problem: str, fix: str = _MAKE) -> None:
        super().__init__(f"{path} {problem}; {fix}")


@dataclass(frozen=True, slots=True)
class Basemap:
    """A checked archive."""

    path: Path
    credits: tuple[tuple[str, str], ...]  # whom the page credits, each a text and an address or ""
    bounds: tuple[float, float, float, float]  # west, south, east and north, in degrees

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register its path."""
        router.add_get(f"/{URL}", self._respond)

    async def _respond(self, _: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "application/vnd.pmtiles", "Cache-Control": "no-cache"}
        return _Archive(self.path, headers=headers)


def read_basemap(path: Path) -> Basemap:
    """Check an archive and read its credits. Raises BadBasemap."""
    try:
        with path.open("rb") as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            header = _header(path, Reader(read))  # type: ignore[no-untyped-call]  # pmtiles types its other functions
            size = path.stat().st_size
            if max(header[f"{part}_offset"] + header[f"{part}_length"] for part in ("metadata", "tile_data")) > size:
                raise BadBasemap(path, "is cut off", _FETCH)
            content = read(header["metadata_offset"], header["metadata_length"])
    except FileNotFoundError:
        raise BadBasemap(path, "does not exist", "name a PMTiles archive") from None
    except OSError as error:
        raise BadBasemap(path, f"cannot be read ({error.strerror})", "check the file and its permissions") from None
    west, south, east, north = (header[f"{name}_e7"] / 1e7 for name in ("min_lon", "min_lat", "max_lon", "max_lat"))
    metadata = _metadata(path, content, header["internal_compression"])
    parser = _Attribution()
    parser.feed(str(metadata.get("attribution") or "")[:2_000])
    parser.close()
    # Without an attribution, the source of Protomaps' maps.
    return Basemap(path, tuple(parser.parts) or (_OPEN_STREET_MAP,), (west, south, east, north))


def _header(path: Path, reader: Any) -> Mapping[str, Any]:
    try:
        header: Mapping[str, Any] = reader.header()
    except SpecVersionUnsupported:
        raise BadBasemap(path, "is not PMTiles version 3", "convert it with `pmtiles convert`") from None
    except (MagicNumberNotFound, ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        raise BadBasemap(path, "is not a PMTiles archive") from None
    if header["tile_type"] is not TileType.MVT:
        raise BadBasemap(path, f"has {header['tile_type'].name} tiles, and the map draws vector tiles (MVT)")
    if {header["internal_compression"], header["tile_compression"]} - {Compression.GZIP, Compression.NONE}:
        raise BadBasemap(path, "has a compression that browsers cannot read", "write it with gzip")
    if header["metadata_length"] > _METADATA_MAX:
        raise BadBasemap(path, "is damaged: its metadata are too long", _FETCH)
    return header


def _metadata(path: Path, content: bytes, compression: Compression) -> Mapping[str, Any]:
    try:
        metadata = json.loads(_unpacked(content) if compression is Compression.GZIP else content)
    except (ValueError, EOFError, OSError, zlib.error, RecursionError):
        raise BadBasemap(path, "is damaged: its metadata are not JSON", _FETCH) from None
    if not isinstance(metadata, dict):
        raise BadBasemap(path, "is damaged: its metadata are not an object", _FETCH)
    layers = metadata.get("vector_layers")
    if isinstance(layers, list):
        names = {str(each.get("id")) for each in layers if isinstance(each, dict)}
        if not names & _LAYERS:
            raise BadBasemap(path, f"has none of the layers {', '.join(sorted(_LAYERS))} of Protomaps' maps")
    return metadata


def _unpacked(content: bytes) -> bytes:
    """Decompress; a small file cannot fill the memory."""
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(content, _METADATA_MAX)
    if not unpacker.eof:
        raise EOFError
    return text


class _Attribution(HTMLParser):
    """Texts and links of an attribution in HTML. Nothing else of it reaches the page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, str]] = []
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href") or ""
        if tag == "a":
            self._link = link if link.startswith("https://") else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = ""

    def handle_data(self, data: str) -> None:
        if text := " ".join(data.split()):
            self.parts.append((text, self._link))


class _Archive(web.FileResponse):
    """The file, or the requested range of it.    [RFC 9110, 14]

    aiohttp knows If-Range with a date only, and would send a packed file that lies beside the archive in its place.
    """

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the headers and the content."""
        headers = request.headers.copy()
        headers.pop(hdrs.ACCEPT_ENCODING, None)
        wanted = headers.get(hdrs.IF_RANGE, "")
        if '"' in wanted:  # an entity tag
            del headers[hdrs.IF_RANGE]
            if wanted != self._tag():
                headers.pop(hdrs.RANGE, None)
        return await super().prepare(request.clone(headers=headers))

    def _tag(self) -> str:
        try:
            status = self._path.stat()
        except OSError:
            return ""
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'  # as aiohttp writes it


_GZIP_LEVEL: Final = 6
_NO_TIMETABLE: Final = "this map has no timetable: its operator names one with display.gtfs"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Responses about the surroundings: which ones the map has, and its routes and stops."""

    overview: Body
    routes: Body | None = None
    stops: Body | None = None
    basemap: Basemap | None = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the paths."""
        router.add_get("/api/v1/surroundings", lambda request: _respond(request, self.overview))
        router.add_get("/api/v1/routes", lambda request: _respond(request, self.routes))
        router.add_get("/api/v1/stops", lambda request: _respond(request, self.stops))
        if self.basemap is not None:
            self.basemap.add_to(router)


async def _respond(request: web.Request, body: Body | None) -> web.StreamResponse:
    reject_unknown(request.query)
    if body is None:
        raise RequestError(404, _NO_TIMETABLE)
    return body.respond(request)


def read_surroundings(settings: DisplaySettings) -> Surroundings:
    """Read the files that `[display]` names. Raises HatcastError, which names the key."""
    network = basemap = None
    key = ""
    try:
        key = "display.gtfs"
        if settings.gtfs is not None:
            network = read_network(settings.gtfs, lambda hint: log.warning("stops left out", hint=hint))
        key = "display.basemap"
        if settings.basemap is not None:
            basemap = read_basemap(settings.basemap)
    except HatcastError as error:
        raise HatcastError(f"{key}: {error}") from None
    if network is not None:
        log.info("timetable read", routes=len(network.routes), stops=len(network.stops))
    return render_surroundings(network, basemap)


def render_surroundings(network: Network | None = None, basemap: Basemap | None = None) -> Surroundings:
    """Render the responses."""
    drawn = sizes = None
    if basemap is not None:
        credit = [{"text": text, "link": link} for text, link in basemap.credits]
        drawn = {"url": URL, "bounds": basemap.bounds, "credits": credit}
    if network is not None:
        sizes = {"routes": len(network.routes), "stops": len(network.stops)}
    overview = {"timetable": sizes, "basemap": drawn}
    if network is None:
        return Surroundings(_body(overview, JSON), basemap=basemap)
    stops = (("Point", _position(each.place), {"name": each.name, "routes": each.routes}) for each in network.stops)
    return Surroundings(_body(overview, JSON), _features(map(_route, network.routes)), _features(stops), basemap)


def _body(content: object, kind: str) -> Body:
    return Body(msgspec.json.encode(content), kind, level=_GZIP_LEVEL)


def _features(features: Iterable[tuple[str, object, dict[str, Any]]]) -> Body:
    """Return (type, coordinates, properties) as a collection of features."""
    listed = [
        {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}
        for kind, coordinates, properties in features
    ]
    return _body({"type": "FeatureCollection", "features": listed}, GEOJSON)


def _route(route: TimetableRoute) -> tuple[str, object, dict[str, Any]]:
    lines = [[_position(place) for place in line] for line in route.lines]
    names = {"route": route.name, "name": route.long_name, "color": route.colour and f"#{route.colour}"}
    return "MultiLineString", lines, names


def _position(place: Point) -> tuple[float, float]:
    return place[1], place[0]  # GeoJSON has the longitude first
