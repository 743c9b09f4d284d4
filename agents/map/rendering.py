"""Response bodies of the API, as bytes. They embed records unchanged: no number is decoded and encoded again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.agents.map.history import History, PolicyHistory, SlotRecords
from hatcast.agents.map.record import HatRecord, Kind
from hatcast.agents.tables.columns import Layout
from hatcast.agents.tables.csv import csv_of_records
from hatcast.agents.tables.records import ESTIMATES, RELEASES

_ENCODE: Final = msgspec.json.Encoder().encode
# The map has checked what it needs of a record, and shows those of later versions too: none is left out of a file.
_TABLES: Final[Mapping[Kind, Layout]] = {
    Kind.RELEASES: replace(RELEASES, check=msgspec.json.decode),
    Kind.ESTIMATES: replace(ESTIMATES, check=msgspec.json.decode),
}


def slots_view(releases: History, estimates: History, more: Mapping[str, Sequence[Any]], name: str) -> bytes:
    """Render the slots, cells and colour range of a policy: those of releases, and under `estimates` its estimates'.

    more   lists beside them: the stored periods of its queries over days, and its clusterings
    """
    return _ENCODE(
        {
            "policies": releases.names(),
            "policy": name,
            **_slots(releases.policies.get(name)),
            "estimates": _slots(estimates.policies.get(name)),
            **more,
        }
    )


def _slots(policy: PolicyHistory | None) -> dict[str, Any]:
    return {
        "slots": [] if policy is None else [_slot(slot) for slot in policy.in_order()],
        "cells": [] if policy is None else policy.cells(),
        "range": [0.0, 5.0] if policy is None else policy.value_range(),
    }


def releases_view(policy: PolicyHistory | None, name: str, slot: SlotRecords | None) -> bytes:
    """Render the releases of a slot, ordered by cell, and the budget of its day."""
    budget = None if policy is None or slot is None else policy.budgets.get(slot.slot[:10])
    return _ENCODE(
        {
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "budget": None if budget is None else msgspec.Raw(budget.record),
            "releases": _records(slot),
        }
    )


def estimates_view(name: str, slot: SlotRecords | None) -> bytes:
    """Render the estimates of a slot, ordered by cell."""
    return _ENCODE({"policy": name, "slot": None if slot is None else _slot(slot), "estimates": _records(slot)})


def clusterings_view(name: str, records: Iterable[bytes]) -> bytes:
    """Render the results of a policy's clusterings."""
    return _ENCODE({"policy": name, "clusterings": [msgspec.Raw(record) for record in records]})


def geojson_view(name: str, slot: SlotRecords | None) -> bytes:
    """Render a slot as a GeoJSON FeatureCollection: the properties of a feature are the record.    [RFC 7946]"""
    return _ENCODE(
        {
            "type": "FeatureCollection",
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "features": [] if slot is None else [_feature(each) for each in _by_cell(slot)],
        }
    )


def csv_view(kind: Kind, slot: SlotRecords | None) -> bytes:
    """Render a slot as CSV, ordered by cell, with the records' digits."""
    return csv_of_records(_TABLES[kind], () if slot is None else (each.record for each in _by_cell(slot)))


def cell_view(kind: Kind, name: str, cell: str, records: Iterable[HatRecord]) -> bytes:
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


def _slot(slot: SlotRecords) -> dict[str, Any]:
    return {"slot": slot.slot, "start": slot.start, "end": slot.end}


def _records(slot: SlotRecords | None) -> list[msgspec.Raw]:
    return [] if slot is None else [msgspec.Raw(each.record) for each in _by_cell(slot)]


def _by_cell(slot: SlotRecords) -> Sequence[HatRecord]:
    return [slot.records[cell] for cell in sorted(slot.records)]


def _feature(record: HatRecord) -> dict[str, Any]:
    ring = [_ring(record.cell)] if h3.is_valid_cell(record.cell) else None
    return {
        "type": "Feature",
        "id": record.cell,
        "geometry": None if ring is None else {"type": "Polygon", "coordinates": ring},
        "properties": msgspec.Raw(record.record),
    }


def _ring(cell: str) -> list[tuple[float, float]]:
    """Return a closed, counterclockwise ring. A cell across the antimeridian has longitudes above 180 degrees."""
    places = [(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]
    if max(longitude for longitude, _ in places) - min(longitude for longitude, _ in places) > 180:
        places = [(longitude % 360, latitude) for longitude, latitude in places]
    return [*places, places[0]]
