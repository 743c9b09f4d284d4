"""Formats of the API's records: JSON, GeoJSON and CSV, by `?format=` or by the header Accept."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import msgspec
from aiohttp import web

from hatcast.agents.map.parameters import RequestError
from hatcast.agents.map.responses import Body, prefers
from hatcast.agents.tables.columns import Layout, Table
from hatcast.agents.tables.csv import csv_of_records
from hatcast.agents.tables.geojson import features_of

GZIP_LEVEL: Final = 6
VARY: Final = "Accept, Accept-Encoding"


class Format(StrEnum):
    """Values of the parameter `format`."""

    JSON = "json"
    GEOJSON = "geojson"
    CSV = "csv"


MEDIA_TYPES: Final[Mapping[Format, str]] = {
    Format.JSON: "application/json",
    Format.GEOJSON: "application/geo+json",
    Format.CSV: "text/csv",
}
JSON: Final = f"{MEDIA_TYPES[Format.JSON]}; charset=utf-8"
GEOJSON: Final = f"{MEDIA_TYPES[Format.GEOJSON]}; charset=utf-8"
CSV: Final = f"{MEDIA_TYPES[Format.CSV]}; charset=utf-8; header=present"
ALL: Final = (*Format,)
WITHOUT_PLACES: Final = (Format.JSON, Format.CSV)


def parse_format(request: web.Request, allowed: tuple[Format, ...] = ALL) -> Format:
    """Return the parameter `format`; without it the allowed format that the client prefers to JSON, else JSON.

    Raises RequestError.
    """
    given = request.query.get("format")
    if given is None:
        others = (each for each in allowed if each is not Format.JSON)
        preferred = (each for each in others if prefers(request, MEDIA_TYPES[each], MEDIA_TYPES[Format.JSON]))
        return next(preferred, Format.JSON)
    if given not in allowed:
        raise RequestError(400, f"format: write one of {', '.join(allowed)}")
    return Format(given)


def lenient(table: Table) -> Layout:
    """Return a table that takes any object: the map checks the fields it uses, and shows later versions too."""
    return replace(table, check=msgspec.json.decode)


def records_body(made: Format, table: Layout, records: Iterable[bytes], head: Mapping[str, Any]) -> Body:
    """Return records as GeoJSON, with further members, or as CSV."""
    if made is Format.CSV:
        return Body(csv_of_records(table, records), CSV, level=GZIP_LEVEL)
    collection = {"type": "FeatureCollection", **head, "features": features_of(table, records)}
    return Body(msgspec.json.encode(collection), GEOJSON, level=GZIP_LEVEL)
