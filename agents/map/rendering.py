"""What the API answers, as bytes. Records stand in them as they stand on the topic: no number is read and written."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.agents.map.history import Kept, PolicyOf, SlotOf
from hatcast.agents.map.record import Release

_ENCODE: Final = msgspec.json.Encoder().encode


def slots_view(kept: Kept, policy: PolicyOf | None, name: str) -> bytes:
    """Which slots there are of a policy, which cells, and what range their colours span."""
    return _ENCODE(
        {
            "policies": kept.names(),
            "policy": name,
            "slots": [] if policy is None else [_slot(slot) for slot in policy.in_order()],
            "cells": [] if policy is None else policy.cells(),
            "range": [0.0, 5.0] if policy is None else policy.value_range(),
        }
    )


def slot_view(policy: PolicyOf | None, name: str, slot: SlotOf | None) -> bytes:
    """The releases of a slot, by cell, and the budget of its day."""
    budget = None if policy is None or slot is None else policy.budgets.get(slot.slot[:10])
    return _ENCODE(
        {
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "budget": None if budget is None else msgspec.Raw(budget.record),
            "releases": [] if slot is None else [msgspec.Raw(each.record) for each in _by_cell(slot)],
        }
    )


def geojson_view(name: str, slot: SlotOf | None) -> bytes:
    """The same as a FeatureCollection: the properties of a feature are the record.    [RFC 7946]"""
    return _ENCODE(
        {
            "type": "FeatureCollection",
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "features": [] if slot is None else [_feature(each) for each in _by_cell(slot)],
        }
    )


def cell_view(name: str, cell: str, releases: Iterable[Release]) -> bytes:
    """The releases of a cell by time."""
    return _ENCODE({"policy": name, "cell": cell, "releases": [msgspec.Raw(each.record) for each in releases]})


def history(policy: PolicyOf, cell: str, from_ms: int | None, to_ms: int | None) -> list[Release]:
    """What is kept of a cell, of slots that begin in [from, to)."""
    return [
        found
        for slot in policy.in_order()
        if (from_ms is None or slot.start_ms >= from_ms) and (to_ms is None or slot.start_ms < to_ms)
        if (found := slot.releases.get(cell)) is not None
    ]


def _slot(slot: SlotOf) -> dict[str, Any]:
    return {"slot": slot.slot, "start": slot.start, "end": slot.end}


def _by_cell(slot: SlotOf) -> Sequence[Release]:
    return [slot.releases[cell] for cell in sorted(slot.releases)]


def _feature(release: Release) -> dict[str, Any]:
    return {
        "type": "Feature",
        "id": release.cell,
        "geometry": {"type": "Polygon", "coordinates": [_ring(release.cell)]}
        if h3.is_valid_cell(release.cell)
        else None,
        "properties": msgspec.Raw(release.record),
    }


def _ring(cell: str) -> list[tuple[float, float]]:
    """Closed, counterclockwise. A cell across the date line goes beyond 180 degrees rather than around the world."""
    places = [(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]
    if max(longitude for longitude, _ in places) - min(longitude for longitude, _ in places) > 180:
        places = [(longitude % 360, latitude) for longitude, latitude in places]
    return [*places, places[0]]
