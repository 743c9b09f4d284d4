"""Checkpoints of a partition's state, and its restoration.    [docs/specification/release.md, State in Redis]

A checkpoint holds absolute values, never differences, so writing it twice changes nothing. It is written in one step
with the watermark and the offset, so the stored state always belongs to one offset.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import h3.api.basic_int as h3

from hatcast.stream.fold.journal import apply_blocks
from hatcast.stream.fold.open_slots import CHUNK_USERS, OpenHat, OpenSlot, PeriodUsers, contributions_of
from hatcast.stream.fold.packing import pack, unpack_users
from hatcast.stream.fold.partition_fold import PartitionFold
from hatcast.stream.fold.users import UserLimit

T = TypeVar("T")


@dataclass(slots=True)
class FoldChanges:
    """Changes since the last call of `take_changes`."""

    watermark: int | None  # ms UTC; None before the first record
    outcomes: dict[str, int]  # number of records by outcome, of all outcomes
    slots: dict[str, int] = field(default_factory=dict)  # `date/slot` -> end (ms UTC), of the changed slots
    hats: dict[str, dict[str, int]] = field(default_factory=dict)  # `date/slot` -> {cell: number of users}
    # (`date/slot`, cell, chunk) -> packed contributions
    chunks: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)  # date -> number of users; of a horizon its first date
    # (date, chunk) -> packed users of the day or horizon
    day_chunks: dict[tuple[str, int], bytes] = field(default_factory=dict)
    # date -> number of chunks to delete: no record can count on these days or in these horizons any more
    days_over: dict[str, int] = field(default_factory=dict)
    complete_from: int | None = None  # ms UTC or None, as in the fold
    # number and bytes of the next block of the journal; None: no row has changed, or they are in chunks
    block: tuple[int, bytes] | None = None
    ends_journal: bool = False  # all blocks are to be deleted: the chunks have their rows
    # local date -> its rules, of all dates that have opened in the partition, if one opens now; else empty
    rules: Mapping[str, str] = field(default_factory=dict)


def take_changes(fold: PartitionFold[T], *, journal: bool = False) -> FoldChanges:
    """Return the changes, packed, and mark the fold as unchanged.

    journal   if possible return changed rows as a block of the journal, instead of the chunks that have changed since
              they were last written
    """
    changes = FoldChanges(fold.watermark, dict(fold.outcomes), complete_from=fold.complete_from)
    rows, entrants = fold.take_rows()
    if journal and fold.journal.has_room(len(rows)) and not fold.needs_chunks():
        if rows:
            changes.block = fold.journal.take_block(rows, entrants)
        for hat in {id(rows[first][0]): rows[first][0] for first, _ in entrants}.values():
            _index(hat, changes)
    else:
        changes.ends_journal = fold.journal.end()
        for hat in fold.take_changed():
            _take_chunks(hat, changes)
    for period in fold.periods.values():
        _take_period(period, changes, fold.limit, is_over=fold.is_over(period.name))
    if opened := {slot.partition("/")[0] for slot in changes.slots} - fold.rules.keys():
        fold.rules |= {date: fold.calendar.rules_of(date) for date in sorted(opened)}
        changes.rules = dict(fold.rules)
    return changes


def _index(hat: OpenHat, changes: FoldChanges) -> str:
    """Add a HAT with its number of users to the changes of the index; return the name of its cell."""
    name: str = h3.int_to_str(hat.cell)
    changes.slots[hat.slot] = hat.end_ms
    changes.hats.setdefault(hat.slot, {})[name] = len(hat.users)
    return name


def _take_chunks(hat: OpenHat, changes: FoldChanges) -> None:
    name = _index(hat, changes)
    rows = list(hat.users.items())  # in order of entry, so row i has ordinal i
    for chunk in hat.changed_chunks():
        changes.chunks[hat.slot, name, chunk] = pack([each.row(user) for user, each in _slice(rows, chunk)])
    hat.changed = 0


def _take_period(period: PeriodUsers, changes: FoldChanges, limit: UserLimit, *, is_over: bool) -> None:
    """Add a period's changed users to the changes, or that it is over."""
    if is_over:
        changes.days_over[period.name] = -(-len(period.users) // CHUNK_USERS)
        period.over = True
    elif period.changed:
        changes.days[period.name] = len(period.users)
        users = list(period.users.values())
        for chunk in period.changed:
            changes.day_chunks[period.name, chunk] = limit.pack(_slice(users, chunk))
    period.changed.clear()


def _slice(rows: list[T], chunk: int) -> list[T]:
    return rows[chunk * CHUNK_USERS : (chunk + 1) * CHUNK_USERS]


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """State of a partition as read from the store."""

    watermark: int | None
    outcomes: Mapping[str, int]
    hats: Mapping[tuple[str, str], Iterable[bytes]]  # (`date/slot`, cell) -> chunks in order
    days: Mapping[str, Iterable[bytes]]  # date -> chunks in order; of a horizon its first date
    complete_from: int | None = None  # ms UTC or None, as in the fold
    # records before the stored offset were deleted unread, and no record after them has been folded
    missing: bool = False
    journal: Sequence[bytes] = ()  # blocks in order
    # number of users of a HAT, and of a day, as the store's indexes have them; empty: not known
    users: Mapping[tuple[str, str], int] = field(default_factory=dict)
    users_of_days: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)  # as in the fold

    def open_hats(self) -> dict[tuple[str, int], OpenHat]:
        """Return the stored HATs by slot (`date/slot`) and cell, in the order in which users entered them.

        Raises ValueError if users are missing, or for another format version.
        """
        found: dict[tuple[str, int], OpenHat] = {}
        for (slot, name), chunks in self.hats.items():
            cell = h3.str_to_int(name)
            hat = found[slot, cell] = OpenHat(slot, cell)
            for users in map(unpack_users, chunks):
                contributions = contributions_of(users, len(hat.users))
                hat.users.update(zip(users.pseudonyms, contributions, strict=True))
        apply_blocks(self.journal, found)
        for (slot, name), number in self.users.items():
            if len(found[slot, h3.str_to_int(name)].users) != number:
                raise ValueError("a stored HAT lacks users")
        return found


def restore(fold: PartitionFold[T], stored: StoredPartition) -> None:
    """Load a stored state into a new fold, except slots that its watermark has closed: no record can change them.

    Raises ValueError if users are missing, or for another format version.
    """
    fold.watermark = stored.watermark
    fold.complete_from = stored.complete_from
    fold.outcomes.update(stored.outcomes)
    fold.rules.update(stored.rules)
    for date, chunks in stored.days.items():
        if not fold.is_over(date):
            period = fold.periods[date] = PeriodUsers(date)
            for chunk in chunks:
                fold.limit.unpack(chunk, period)
            if len(period.users) != stored.users_of_days.get(date, len(period.users)):
                raise ValueError("a stored day lacks users")
    for (key, _), hat in stored.open_hats().items():
        slot = fold.slot_named(key)
        if fold.watermark is None or fold.watermark < slot.closes_ms:
            fold.add_restored(slot, hat)
    if stored.journal:
        fold.journal.restored(len(stored.journal))


def totals(slots: Iterable[OpenSlot]) -> dict[str, tuple[int, int, int, int]]:
    """Return (users, count, sum, max) by HAT `cell/date/slot`, as `batch --contributions` prints it. Not private."""
    totals_by_hat = {}
    for slot in slots:
        for cell, hat in slot.hats.items():
            users = hat.users.values()
            totals_by_hat[f"{h3.int_to_str(cell)}/{slot.slot.key}"] = (
                len(users),
                sum(user.count for user in users),
                sum(user.total for user in users),
                max(user.maximum for user in users),
            )
    return totals_by_hat
