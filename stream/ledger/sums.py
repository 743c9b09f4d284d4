"""States of running sums in a ledger: each changes with the record that follows from it, in one apply.

[docs/specification/release.md, Running sums]
A cell's state follows from what was sent of its horizon. Where that is not certain the horizon is closed, for good.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.stream.checksums import with_checksum
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.proposals import StateChange
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.ledger.view import (
    DamagedRow,
    Decision,
    Draft,
    View,
    Wanted,
    text_of,
    value_of,
)
from hatcast.stream.records.fields import Status

INCOMPLETE: Final = Status.INCOMPLETE.value.encode()
NONE: Final = b"none"  # before the first state; not b"": a state that was cut to nothing would count as none


@dataclass(frozen=True, slots=True)
class StoredStates:
    """States of cells in a horizon."""

    closed: Status | None  # status with which the horizon has ended; None: it goes on
    # of each requested cell, in order; None: the cell has had no slot in the horizon, or its state is damaged
    states: Sequence[bytes | None]
    damaged: bool = False  # whether one of these states is damaged: then nothing more of the horizon may be drawn


def states_rows(name: str, horizon: str, cells: Sequence[str]) -> Wanted:
    """Return what `states_of` reads."""
    return {
        rows.horizons(name): {f"closed:{horizon}", f"cells:{horizon}", "lost"},
        rows.states(name, horizon): {*cells, rows.COUNT},
    }


def states_of(view: View, name: str, horizon: str, cells: Sequence[str]) -> StoredStates:
    """Return the states of cells in a horizon (first local date). Raises DamagedRow, Unread.

    The horizon counts as closed too if days of it were sealed that this store lacked, or states are missing.
    """
    draft, key, index = Draft(view), rows.states(name, horizon), rows.horizons(name)
    closed, lost = view.get(index, f"closed:{horizon}"), view.get(index, "lost") or b""
    has_lost = horizon.encode() <= lost or draft.number(index, f"cells:{horizon}") != draft.number(key, rows.COUNT)
    if closed is None and has_lost:
        closed = INCOMPLETE
    status = None if closed is None else _status_of(index, closed)
    try:
        states = [
            None if (stored := view.get(key, cell)) is None else value_of(f"{key}/{cell}", stored) for cell in cells
        ]
    except DamagedRow:
        return StoredStates(status, [None] * len(cells), damaged=True)
    return StoredStates(status, states)


def _status_of(key: str, stored: bytes) -> Status:
    try:
        return Status(text_of(key, stored))
    except ValueError:
        raise DamagedRow(key) from None


def change_rows(name: str, change: StateChange) -> Wanted:
    """Return what `check_state` and `store_sum_state` read."""
    return {rows.horizons(name): {f"closed:{change.horizon}"}, rows.states(name, change.horizon): {change.cell}}


def check_state(draft: Draft, name: str, change: StateChange) -> None:
    """Raise Behind unless the horizon is open and the stored state is the one that the new state was drawn from.

    Raises DamagedRow for a row that `store_sum_state` needs, before anything is changed.
    """
    key, index = rows.states(name, change.horizon), rows.horizons(name)
    closed = draft.get(index, f"closed:{change.horizon}")
    if change.after is None:
        return
    draft.compare(key, change.cell)
    draft.compare(index, f"closed:{change.horizon}")
    before = None if change.before is None else with_checksum(f"{key}/{change.cell}", change.before)
    if closed is not None or draft.get(key, change.cell) != before:
        raise Behind


def store_sum_state(draft: Draft, name: str, change: StateChange, release_id: str | None) -> None:
    """Store the state after a record, or close its horizon.

    release_id   of the record, if it may be discarded: then the state before it is kept too, until it is published
    """
    if change.closes is not None:
        close_horizon(draft, name, change.horizon, change.closes.encode())
    elif change.after is not None:
        key, cell = rows.states(name, change.horizon), change.cell
        known = draft.get(key, cell)
        if known is None:
            counted = rows.horizons(name), f"cells:{change.horizon}"
            draft.changes.add[counted] = draft.changes.add.get(counted, 0) + 1
        draft.set(key, cell, with_checksum(f"{key}/{cell}", change.after))
        if release_id is not None:
            kept = release_id.encode() + b"\n" + (NONE if known is None else known)
            draft.set(rows.states_before(name, change.horizon), cell, kept)


def close_horizon(draft: Draft, name: str, horizon: str, status: bytes) -> None:
    """Close a horizon: no state of it changes any more. The first reason counts."""
    index, field = rows.horizons(name), f"closed:{horizon}"
    draft.compare(index, field)
    if draft.get(index, field) is None:
        draft.set(index, field, status)


def take_back_state(draft: Draft, name: str, horizon: str, cell: str, release_id: str) -> None:
    """Restore the state before an unsent release; close its horizon if that state is not stored."""
    key, before = rows.states(name, horizon), rows.states_before(name, horizon)
    kept = draft.compare(before, cell) or b""
    of, _, state = kept.partition(b"\n")
    if of != release_id.encode() or not state:
        close_horizon(draft, name, horizon, INCOMPLETE)
        return
    draft.compare(key, cell)
    if state == NONE:
        draft.changes.add[rows.horizons(name), f"cells:{horizon}"] = -1
    draft.set(key, cell, None if state == NONE else state)
    draft.set(before, cell, None)


def drop_horizon(view: View, name: str, horizon: str) -> Decision[None]:
    """Delete the states of a horizon of which every day is sealed, or belongs to the next policy."""
    draft = Draft(view)
    draft.delete(rows.states(name, horizon))
    draft.delete(rows.states_before(name, horizon))
    for kind in ("cells", "closed"):
        draft.set(rows.horizons(name), f"{kind}:{horizon}", None)
    return Decision(None, draft.changes)
