"""Response bodies of the API as JSON, GeoJSON and CSV. Records are embedded unchanged, with their own decimals.

A page without records shows the next slot to be released, `Awaited`, which follows from the policy and the time alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from aiohttp import web

from hatcast.agents.config.settings import Settings
from hatcast.agents.map.history import PolicyHistory
from hatcast.agents.map.http import Body, RequestError, prefers
from hatcast.agents.map.record import RecordKind
from hatcast.agents.tables.columns import Layout
from hatcast.agents.tables.lines import csv_of_records, features_of
from hatcast.agents.tables.records import ANSWERS, CLUSTERINGS, ESTIMATES, RELEASES, RUNNING_MEANS
from hatcast.stream.fold.calendar import Calendar, Slot, closes_at

_DAYS: Final = 10  # more than the local clock ever skips


class AwaitedSlot(msgspec.Struct, frozen=True):
    """A slot, and the instant from which its releases are due: its end plus the policy's lateness."""

    slot: str
    start: str
    end: str
    closes: str


class Awaited(msgspec.Struct, frozen=True, omit_defaults=True):
    """The next slot of a policy, for its map.

    topic   on which releases appear
    slot    that closes next; None where telemetry is a recording, whose time is not that of a clock
    """

    policy: str
    topic: str
    slot: AwaitedSlot | None = None


class AwaitedReleases:
    """Finds the next slot of the configured policy."""

    def __init__(self, settings: Settings) -> None:
        self._policy = settings.policy
        self._topic = settings.topics.means
        self._is_recording = settings.retention_ms is None
        self._calendar = Calendar(settings.policy)

    def view(self, now_ms: int) -> bytes:
        """Render the awaited slot as JSON."""
        slot, shown = None if self._is_recording else self._next(now_ms), None
        if slot is not None:
            instants = slot.start_ms, slot.end_ms, closes_at(slot, self._policy)
            texts = (self._calendar.local(each).isoformat(timespec="seconds") for each in instants)
            shown = AwaitedSlot(f"{slot.date}T{slot.name}", *texts)
        return msgspec.json.encode(Awaited(self._policy.name, self._topic, shown))

    def _next(self, now_ms: int) -> Slot | None:
        """Return the first slot in the policy's hours that closes after an instant."""
        closed_ms = now_ms - self._policy.lateness_ms
        today = self._calendar.local(closed_ms).date()
        first = max(today, date.fromisoformat(self._policy.from_date or today.isoformat()))
        for day in range(_DAYS):
            for slot in self._calendar.slots_of((first + timedelta(days=day)).isoformat()):
                if slot.outside is None and slot.end_ms > closed_ms:
                    return slot
        return None


def slots_view(
    policies: Sequence[str],
    name: str,
    stored: Mapping[RecordKind, PolicyHistory | None],
    more: Mapping[str, Sequence[Any]],
) -> bytes:
    """Render the slots, cells and colour range of a policy: those of releases, and under their names those of others.

    policies   names of all policies
    more       lists beside them: its running means, the stored periods of its queries over days, and its clusterings
    """
    return msgspec.json.encode(
        {
            "policies": policies,
            "policy": name,
            **_slots(stored[RecordKind.RELEASES]),
            "estimates": _slots(stored[RecordKind.ESTIMATES]),
            "continual": _slots(stored[RecordKind.CONTINUAL]),
            **more,
        }
    )


def _slots(policy: PolicyHistory | None) -> dict[str, Any]:
    return {
        "slots": [] if policy is None else [slot.view() for slot in policy.in_order()],
        "cells": [] if policy is None else policy.cells(),
        "range": [0.0, 5.0] if policy is None else policy.value_range(),
    }


GZIP_LEVEL: Final = 6
VARY: Final = "Accept, Accept-Encoding"


class ResponseFormat(StrEnum):
    """Values of the parameter `format`."""

    JSON = "json"
    GEOJSON = "geojson"
    CSV = "csv"


MEDIA_TYPES: Final[Mapping[ResponseFormat, str]] = {
    ResponseFormat.JSON: "application/json",
    ResponseFormat.GEOJSON: "application/geo+json",
    ResponseFormat.CSV: "text/csv",
}
JSON: Final = f"{MEDIA_TYPES[ResponseFormat.JSON]}; charset=utf-8"
GEOJSON: Final = f"{MEDIA_TYPES[ResponseFormat.GEOJSON]}; charset=utf-8"
CSV: Final = f"{MEDIA_TYPES[ResponseFormat.CSV]}; charset=utf-8; header=present"
ALL: Final = (*ResponseFormat,)
WITHOUT_PLACES: Final = (ResponseFormat.JSON, ResponseFormat.CSV)


def parse_format(request: web.Request, allowed: tuple[ResponseFormat, ...] = ALL) -> ResponseFormat:
    """Return the parameter `format`; without it the allowed format that the client prefers to JSON, else JSON.

    Raises RequestError.
    """
    given = request.query.get("format")
    if given is None:
        others = (each for each in allowed if each is not ResponseFormat.JSON)
        preferred = (each for each in others if prefers(request, MEDIA_TYPES[each], MEDIA_TYPES[ResponseFormat.JSON]))
        return next(preferred, ResponseFormat.JSON)
    if given not in allowed:
        raise RequestError(400, f"format: write one of {', '.join(allowed)}")
    return ResponseFormat(given)


# The tables of the lists, by their names in JSON. They take any object: the map checks the fields that it uses, and
# shows records of later versions too.
_TABLES: Final[Mapping[str, Layout]] = {
    name: replace(table, check=msgspec.json.decode)
    for name, table in (
        ("releases", RELEASES),
        ("estimates", ESTIMATES),
        ("continual", RELEASES),
        ("running", RUNNING_MEANS),
        ("queries", ANSWERS),
        ("clusterings", CLUSTERINGS),
    )
}


def list_body(
    wanted: ResponseFormat, name: str, records: Iterable[bytes], head: Mapping[str, Any], more: Mapping[str, Any]
) -> Body:
    """Render records as the list `name` of a JSON object, as GeoJSON or as CSV.

    head   members beside the list, in JSON and GeoJSON
    more   further members, in JSON only
    """
    if wanted is ResponseFormat.CSV:
        return Body(csv_of_records(_TABLES[name], records), CSV, level=GZIP_LEVEL)
    if wanted is ResponseFormat.GEOJSON:
        collection = {"type": "FeatureCollection", **head, "features": features_of(_TABLES[name], records)}
        return Body(msgspec.json.encode(collection), GEOJSON, level=GZIP_LEVEL)
    listed = {**head, **more, name: [msgspec.Raw(each) for each in records]}
    return Body(msgspec.json.encode(listed), JSON, level=GZIP_LEVEL)
