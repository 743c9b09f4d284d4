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
from hatcast.agents.map.history import PolicyHistory, SlotRecords, slot_view
from hatcast.agents.map.http import Body, RequestError, prefers
from hatcast.agents.map.record import Budget, HatRecord, RecordKind
from hatcast.agents.tables.columns import Layout, Table
from hatcast.agents.tables.lines import csv_of_records, features_of
from hatcast.stream.fold.hats import Calendar, Slot, closes_at

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
        slot = None if self._is_recording else self._next(now_ms)
        return msgspec.json.encode(
            Awaited(self._policy.name, self._topic, None if slot is None else self._rendered(slot))
        )

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

    def _rendered(self, slot: Slot) -> AwaitedSlot:
        start, end, closes = (
            self._calendar.local(each).isoformat(timespec="seconds")
            for each in (slot.start_ms, slot.end_ms, closes_at(slot, self._policy))
        )
        return AwaitedSlot(f"{slot.date}T{slot.name}", start, end, closes)


_ENCODE: Final = msgspec.json.Encoder().encode


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
    return _ENCODE(
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
        "slots": [] if policy is None else [_slot(slot) for slot in policy.in_order()],
        "cells": [] if policy is None else policy.cells(),
        "range": [0.0, 5.0] if policy is None else policy.value_range(),
    }


def releases_view(kind: RecordKind, name: str, slot: SlotRecords | None, budgets: Mapping[str, Budget]) -> bytes:
    """Render the releases of a slot, ordered by cell, and the budget of its day.

    kind      releases, or those of a continual policy
    budgets   of the policy by date
    """
    budget = None if slot is None else budgets.get(slot.slot[:10])
    return _ENCODE(
        {
            **slot_head(name, slot),
            "budget": None if budget is None else msgspec.Raw(budget.record),
            kind: _records(slot),
        }
    )


def estimates_view(name: str, slot: SlotRecords | None) -> bytes:
    """Render the estimates of a slot, ordered by cell."""
    return _ENCODE({**slot_head(name, slot), "estimates": _records(slot)})


def running_view(name: str, records: Iterable[bytes], **head: str) -> bytes:
    """Render running means, in the given order; `head`, further fields, such as the cell."""
    return _ENCODE({"policy": name, **head, "running": [msgspec.Raw(each) for each in records]})


def clusterings_view(name: str, records: Iterable[bytes]) -> bytes:
    """Render the results of a policy's clusterings."""
    return _ENCODE({"policy": name, "clusterings": [msgspec.Raw(record) for record in records]})


def cell_view(kind: RecordKind, name: str, cell: str, records: Iterable[HatRecord]) -> bytes:
    """Render the records of one cell, in the given order."""
    return _ENCODE({"policy": name, "cell": cell, kind: [msgspec.Raw(each.record) for each in records]})


def answers_view(name: str, records: Iterable[bytes], **head: str) -> bytes:
    """Render answers to queries over days, in the given order; `head`, further fields, such as the cell."""
    return _ENCODE({"policy": name, **head, "queries": [msgspec.Raw(each) for each in records]})


def cell_history(policy: PolicyHistory, cell: str, from_ms: int | None, to_ms: int | None) -> list[HatRecord]:
    """Return the stored records of a cell for slots that begin in [from, to), ordered by time."""
    return [
        record
        for slot in policy.in_order()
        if (from_ms is None or slot.start_ms >= from_ms) and (to_ms is None or slot.start_ms < to_ms)
        if (record := slot.records.get(cell)) is not None
    ]


def slot_head(name: str, slot: SlotRecords | None) -> dict[str, Any]:
    """Return the members of a slot's response beside its records."""
    return {"policy": name, "slot": None if slot is None else _slot(slot)}


def slot_records(slot: SlotRecords | None) -> list[bytes]:
    """Return the records of a slot, ordered by cell."""
    return [] if slot is None else [slot.records[cell].record for cell in sorted(slot.records)]


def _slot(slot: SlotRecords) -> dict[str, Any]:
    return slot_view(slot.slot, slot.start, slot.end)


def _records(slot: SlotRecords | None) -> list[msgspec.Raw]:
    return [msgspec.Raw(each) for each in slot_records(slot)]


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


def lenient(table: Table) -> Layout:
    """Return a table that takes any object: the map checks the fields it uses, and shows later versions too."""
    return replace(table, check=msgspec.json.decode)


def records_body(made: ResponseFormat, table: Layout, records: Iterable[bytes], head: Mapping[str, Any]) -> Body:
    """Return records as GeoJSON, with further members, or as CSV."""
    if made is ResponseFormat.CSV:
        return Body(csv_of_records(table, records), CSV, level=GZIP_LEVEL)
    collection = {"type": "FeatureCollection", **head, "features": features_of(table, records)}
    return Body(msgspec.json.encode(collection), GEOJSON, level=GZIP_LEVEL)
