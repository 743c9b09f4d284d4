"""Surroundings of the hexagons: routes and stops of a timetable, and a base map. Read once, at the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from hatcast.agents.config.display_table import DisplaySettings
from hatcast.agents.map.basemap import URL, Basemap, read_basemap
from hatcast.agents.map.formats import GEOJSON, JSON
from hatcast.agents.map.parameters import RequestError, reject_unknown
from hatcast.agents.map.responses import Body
from hatcast.agents.timetable.network import Network, Route, Stop, read_network
from hatcast.stream.areas import Point
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

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
        network = (
            None
            if settings.gtfs is None
            else read_network(settings.gtfs, lambda hint: log.warning("stops left out", hint=hint))
        )
        key = "display.basemap"
        basemap = None if settings.basemap is None else read_basemap(settings.basemap)
    except HatcastError as error:
        raise HatcastError(f"{key}: {error}") from None
    if network is not None:
        log.info("timetable read", routes=len(network.routes), stops=len(network.stops))
    return render_surroundings(network, basemap)


def render_surroundings(network: Network | None = None, basemap: Basemap | None = None) -> Surroundings:
    """Render the responses."""
    overview = {
        "timetable": None if network is None else {"routes": len(network.routes), "stops": len(network.stops)},
        "basemap": None if basemap is None else _basemap(basemap),
    }
    if network is None:
        return Surroundings(_body(overview, JSON), basemap=basemap)
    routes = _collection([_route(each) for each in network.routes])
    stops = _collection([_stop(each) for each in network.stops])
    return Surroundings(_body(overview, JSON), _body(routes, GEOJSON), _body(stops, GEOJSON), basemap)


def _body(content: object, kind: str) -> Body:
    return Body(msgspec.json.encode(content), kind, level=_GZIP_LEVEL)


def _basemap(basemap: Basemap) -> dict[str, Any]:
    credited = [{"text": text, "link": link} for text, link in basemap.credits]
    return {"url": URL, "bounds": basemap.bounds, "credits": credited}


def _collection(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": features}


def _route(route: Route) -> dict[str, Any]:
    lines = [[_position(place) for place in line] for line in route.lines]
    names = {"route": route.name, "name": route.long_name, "color": route.colour and f"#{route.colour}"}
    return _feature("MultiLineString", lines, names)


def _stop(stop: Stop) -> dict[str, Any]:
    return _feature("Point", _position(stop.place), {"name": stop.name, "routes": stop.routes})


def _feature(kind: str, coordinates: object, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def _position(place: Point) -> tuple[float, float]:
    return place[1], place[0]  # GeoJSON has the longitude first
