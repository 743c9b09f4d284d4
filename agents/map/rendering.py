"""Response bodies of the API, as bytes. They embed records unchanged: no number is decoded and encoded again."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.agents.map.history import History, PolicyHistory, SlotReleases
from hatcast.agents.map.record import Release

_ENCODE: Final = msgspec.json.Encoder().encode


def slots_view(history: History, policy: PolicyHistory | None, name: str) -> bytes:
    """Render the slots, cells and colour range of a policy."""
    return _ENCODE(
        {
            "policies": history.names(),
            "policy": name,
            "slots": [] if policy is None else [_slot(slot) for slot in policy.in_order()],
            "cells": [] if policy is None else policy.cells(),
            "range": [0.0, 5.0] if policy is None else policy.value_range(),
        }
    )


def slot_view(policy: PolicyHistory | None, name: str, slot: SlotReleases | None) -> bytes:
    """Render the releases of a slot, ordered by cell, and the budget of its day."""
    budget = None if policy is None or slot is None else policy.budgets.get(slot.slot[:10])
    return _ENCODE(
        {
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "budget": None if budget is None else msgspec.Raw(budget.record),
            "releases": [] if slot is None else [msgspec.Raw(each.record) for each in _by_cell(slot)],
        }
    )


def geojson_view(name: str, slot: SlotReleases | None) -> bytes:
    """Render a slot as a GeoJSON FeatureCollection: the properties of a feature are the record.    [RFC 7946]"""
    return _ENCODE(
        {
            "type": "FeatureCollection",
            "policy": name,
            "slot": None if slot is None else _slot(slot),
            "features": [] if slot is None else [_feature(each) for each in _by_cell(slot)],
        }
    )


def cell_view(name: str, cell: str, releases: Iterable[Release]) -> bytes:
    """Render the releases of one cell, in the given order."""
    return _ENCODE({"policy": name, "cell": cell, "releases": [msgspec.Raw(each.record) for each in releases]})


def cell_history(policy: PolicyHistory, cell: str, from_ms: int | None, to_ms: int | None) -> list[Release]:
    """Return the stored releases of a cell for slots that begin in [from, to), ordered by time."""
    return [
        release
        for slot in policy.in_order()
        if (from_ms is None or slot.start_ms >= from_ms) and (to_ms is None or slot.start_ms < to_ms)
        if (release := slot.releases.get(cell)) is not None
    ]


def _slot(slot: SlotReleases) -> dict[str, Any]:
    return {"slot": slot.slot, "start": slot.start, "end": slot.end}


def _by_cell(slot: SlotReleases) -> Sequence[Release]:
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
    """Return a closed, counterclockwise ring. A cell across the antimeridian has longitudes above 180 degrees."""
    places = [(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]
    if max(longitude for longitude, _ in places) - min(longitude for longitude, _ in places) > 180:
        places = [(longitude % 360, latitude) for longitude, latitude in places]
    return [*places, places[0]]
