"""Slot progress of a policy under `add_remove`: its first slot, and the last slot committed and published.

Progress is by slot and not by HAT, so that a release round costs only the new slots. It does not replace the ledger: a
record and a charge are looked up before anything is drawn.    [decisions/0007]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hatcast.stream.checksums import with_checksum
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import require_recovered
from hatcast.stream.ledger.view import (
    DamagedRow,
    Decision,
    Draft,
    View,
    number_of,
    text_of,
    value_of,
)
from hatcast.stream.units import INSTANT_DIGITS


class Mark(StrEnum):
    """A step that is done for all HATs of a release partition, in all slots up to the mark."""

    COMMITTED = "committed"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Progress:
    """A policy's progress. Times are ms UTC."""

    # start of the policy's first slot; None if the ledger has lost it, or no worker was ever started
    first_ms: int | None
    marks: Mapping[tuple[Mark, int], int]  # (mark, release partition) -> end of the last slot done

    def through(self, mark: Mark, release_partitions: Iterable[int]) -> int:
        """Return the end of the last slot that all of these partitions have done; 0 for none."""
        return min((self.marks.get((mark, partition), 0) for partition in release_partitions), default=0)


def progress_of(view: View, name: str) -> Progress:
    """Return the stored progress. Raises DamagedRow, Unread."""
    key, first, marks = rows.progress(name), None, dict[tuple[Mark, int], int]()
    for field, value in view.whole(key).items():
        kind, _, partition = field.partition(":")
        try:
            if len(value) > INSTANT_DIGITS:
                raise DamagedRow(key)
            if partition:
                marks[Mark(kind), number_of(key, partition.encode())] = number_of(key, value)
            elif field == "first":
                first = number_of(key, value)
        except ValueError:
            raise DamagedRow(key) from None
    return Progress(first, marks)


def advance(
    view: View, name: str, mark: Mark, release_partitions: Iterable[int], end_ms: int, token: str
) -> Decision[None]:
    """Raise a mark to the end of a slot; a mark never decreases.

    Raises Unrecovered if the ledger is not recovered under this token: the records behind the marks may be lost.
    """
    draft = Draft(view)
    require_recovered(draft, token)
    _raise_marks(draft, name, [mark], release_partitions, end_ms)
    return Decision(None, draft.changes)


def restore(view: View, name: str, first_ms: int, done_ms: int, release_partitions: Iterable[int]) -> Decision[None]:
    """Restore lost progress, as `restore_marks`."""
    draft = Draft(view)
    restore_marks(draft, name, first_ms, done_ms, release_partitions)
    return Decision(None, draft.changes)


def restore_marks(draft: Draft, name: str, first_ms: int, done_ms: int, release_partitions: Iterable[int]) -> None:
    """Restore lost progress: the first slot, and that all slots that end by `done_ms` are published."""
    key = rows.progress(name)
    stored = draft.compare(key, "first")
    if stored is None or first_ms < number_of(key, stored):
        draft.set_number(key, "first", first_ms)
    _raise_marks(draft, name, Mark, release_partitions, done_ms)


def _raise_marks(
    draft: Draft, name: str, marks: Iterable[Mark], release_partitions: Iterable[int], end_ms: int
) -> None:
    key, partitions = rows.progress(name), list(release_partitions)
    for field in [f"{mark}:{r}" for mark in marks for r in partitions]:
        if end_ms > draft.number(key, field):
            draft.raise_to(key, field, str(end_ms))


def state_of(view: View, name: str) -> bytes | None:
    """Return the state after the last day that was settled; None if there is none. Raises DamagedRow."""
    key = rows.tracker(name)
    date, state = view.get(key, "date"), view.get(key, "state")
    if date is None and state is None:
        return None
    if date is None or state is None:
        raise DamagedRow(key)
    return value_of(f"{key}/{text_of(key, date)}", state)


def store_tracker_state(view: View, name: str, date: str, state: bytes, token: str | None) -> Decision[None]:
    """Store the state after a local date, unless that of this date or a later one is stored.

    token   of the finished recovery; None: of a store that only this process writes
    Raises Unrecovered.
    """
    draft, key = Draft(view), rows.tracker(name)
    if token is not None:
        require_recovered(draft, token)
    stored = draft.compare(key, "date")
    if stored is None or stored < date.encode():
        draft.set(key, "date", date.encode())
        draft.set(key, "state", with_checksum(f"{key}/{date}", state))
    return Decision(None, draft.changes)
