"""Response bodies of the API as JSON. They embed records unchanged: no number is decoded and encoded again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hatcast.agents.map.history import History, PolicyHistory, SlotRecords
from hatcast.agents.map.record import HatRecord, Kind

_ENCODE: Final = msgspec.json.Encoder().encode


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
            **slot_head(name, slot),
            "budget": None if budget is None else msgspec.Raw(budget.record),
            "releases": _records(slot),
        }
    )


def estimates_view(name: str, slot: SlotRecords | None) -> bytes:
    """Render the estimates of a slot, ordered by cell."""
    return _ENCODE({**slot_head(name, slot), "estimates": _records(slot)})


def clusterings_view(name: str, records: Iterable[bytes]) -> bytes:
    """Render the results of a policy's clusterings."""
    return _ENCODE({"policy": name, "clusterings": [msgspec.Raw(record) for record in records]})


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


def slot_head(name: str, slot: SlotRecords | None) -> dict[str, Any]:
    """Return the members of a slot's response beside its records."""
    return {"policy": name, "slot": None if slot is None else _slot(slot)}


def slot_records(slot: SlotRecords | None) -> list[bytes]:
    """Return the records of a slot, ordered by cell."""
    return [] if slot is None else [slot.records[cell].record for cell in sorted(slot.records)]


def _slot(slot: SlotRecords) -> dict[str, Any]:
    return {"slot": slot.slot, "start": slot.start, "end": slot.end}


def _records(slot: SlotRecords | None) -> list[msgspec.Raw]:
    return [msgspec.Raw(each) for each in slot_records(slot)]
