"""State of a partition's open slots: contributions by HAT, and users by local date.

Users are numbered in order of entry and stored in chunks of `CHUNK_USERS`: a change of one user rewrites a few hundred
bytes, and a HAT of a million users is read in thousands of steps instead of millions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hatcast.stream.fold.calendar import Slot
from hatcast.stream.fold.packing import ChunkUsers, Row

FEW_SLOTS: Final = 2
_LEAST_SLOTS: Final = 6  # of a day: with fewer of them most buses are in few, whatever their ids are
_LEAST_VEHICLES: Final = 20  # of a day
_SHARE: Final = 0.9
CHUNK_USERS: Final = 64
_NEVER: Final = -(1 << 62)  # ms


@dataclass(slots=True)
class IdSpans:
    """Numbers of vehicles with few and with many timeslots a day: ids that change each trip make one bus many users.

    Counts of vehicles of days that are over, a day with few vehicles or few timeslots left out. Only these leave the
    fold: for hints to the operator, and a metric.
    """

    few: int = 0  # vehicles that were in one or two timeslots of their day
    many: int = 0  # all others

    def add(self, slots_of_vehicles: Iterable[int], slots_of_day: int) -> None:
        """Add a day. slots_of_vehicles: the number of timeslots of each vehicle; 0: not seen in this run."""
        seen = [slots for slots in slots_of_vehicles if slots]
        if slots_of_day >= _LEAST_SLOTS and len(seen) >= _LEAST_VEHICLES:
            few = sum(slots <= FEW_SLOTS for slots in seen)
            self.few += few
            self.many += len(seen) - few

    def merge(self, other: "IdSpans") -> None:
        """Add the days of another partition."""
        self.few += other.few
        self.many += other.many

    def hint(self) -> str | None:
        """Return a line for the operator if nearly all ids live in one or two timeslots of a day, else None."""
        vehicles = self.few + self.many
        if not self.few or self.few < _SHARE * vehicles:
            return None
        return (
            f"{self.few:,} of {vehicles:,} vehicle ids are in one or two timeslots of their day: if ids change from"
            " trip to trip, one bus has many budgets; use a feed whose ids last (docs/limits.md)"
        )


class Contribution(msgspec.Struct, gc=False):
    """Contribution of one user to one HAT. Untracked by the garbage collector: there are millions, without cycles."""

    count: int  # number of readings
    total: int  # milli-units: sum of their values, each clipped to [0, U]
    maximum: int  # milli-units
    seen: int  # bit i is set if a reading of step i of `min_interval` was counted
    ordinal: int  # position of the user in the HAT, in order of entry: its chunk is ordinal // CHUNK_USERS

    @property
    def others(self) -> list[int]:
        """Totals of the values besides the speed; none without `[policy] values`."""
        return []

    def row(self, pseudonym: bytes) -> Row:
        """Return the row to pack."""
        return Row(pseudonym, self.count, self.total, self.maximum, self.seen)


class ValuesContribution(Contribution, gc=False):
    """Contribution with several values."""

    others: list[int]  # for each value besides the speed the sum of its distances from `lower`, milli-units: 0 or more

    def row(self, pseudonym: bytes) -> Row:
        """Return the row to pack."""
        return Row(pseudonym, self.count, self.total, self.maximum, self.seen, (*self.others,))


def contribution_of(row: Row, ordinal: int) -> Contribution:
    """Return the contribution of an unpacked row."""
    if row.others:
        return ValuesContribution(row.count, row.total, row.maximum, row.seen, ordinal, [*row.others])
    return Contribution(row.count, row.total, row.maximum, row.seen, ordinal)


def contributions_of(users: ChunkUsers, first: int) -> Iterator[Contribution]:
    """Return the contributions of the users of a chunk. first: the ordinal of the first of them."""
    fields = (users.counts, users.totals, users.maxima, users.seen, range(first, first + len(users.counts)))
    return map(ValuesContribution, *fields, map(list, users.others)) if users.others else map(Contribution, *fields)


class OpenHat(msgspec.Struct, gc=False):
    """Contributions of one HAT from one partition. Untracked by the garbage collector, as contributions are."""

    slot: str  # `date/slot`
    cell: int
    end_ms: int = 0  # ms UTC: end of the slot
    users: dict[bytes, Contribution] = msgspec.field(default_factory=dict)
    changed: int = 0  # bit i is set if chunk i has changed since it was last written
    number: int = 0  # in the journal; set if `changed` is not 0

    def change(self, ordinal: int) -> None:
        """Mark the chunk of the user with this ordinal as changed."""
        self.changed |= 1 << ordinal // CHUNK_USERS

    def changed_chunks(self) -> Iterator[int]:
        """Yield the indexes of the changed chunks, ascending."""
        left = self.changed
        while left:
            lowest = left & -left
            yield lowest.bit_length() - 1
            left ^= lowest


class UserOfDay(msgspec.Struct, gc=False):
    """Number of HATs that a user entered on a local date. Retained after their release: K caps the whole day.

    Untracked by the garbage collector: so a user has its day's date, not the day, which has the user.
    """

    pseudonym: bytes
    entered: int
    ordinal: int
    period: str  # the local date; of a horizon the first one
    slots: int = 0  # number of timeslots in which it sent, entered or not; after a restart at least some of them
    latest_ms: int = _NEVER

    def see(self, start_ms: int) -> None:
        """Count a timeslot that begins after all that were seen: readings may be out of order."""
        self.latest_ms = start_ms
        self.slots += 1


class UserOfHorizon(UserOfDay, gc=False):
    """Cells and slots that a user entered in a horizon. Retained until the horizon is over. entered: HATs."""

    # H3 cell -> numbers of slots in the horizon, ascending
    cell_slots: dict[int, list[int]] = msgspec.field(default_factory=dict)
    packed: bytes | None = None  # its part of a chunk; None: not packed since it has changed


@dataclass(slots=True)
class PeriodUsers:
    """Users of a local date, or of a horizon, and the indexes of the changed chunks."""

    name: str  # the local date; of a horizon the first one
    users: dict[bytes, UserOfDay] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    over: bool = False  # no record can count on this date any more, and the checkpoint deletes it from the store
    slots: set[int] = field(default_factory=set)  # the timeslots in which users sent, by their starts

    def add_to(self, spans: IdSpans) -> None:
        """Add its users to the counts of how long ids live."""
        spans.add((user.slots for user in self.users.values()), len(self.slots))


@dataclass(slots=True)
class OpenSlot:
    """A slot and its HATs by H3 cell."""

    slot: Slot
    closes_ms: int  # watermark from which a reading is late
    period: PeriodUsers
    hats: dict[int, OpenHat] = field(default_factory=dict)
    # users of each HAT that was released before this fold began, by H3 cell: no other user can enter it
    released: Mapping[int, frozenset[bytes]] = field(default_factory=dict)


class Vehicle(msgspec.Struct, gc=False):
    """A vehicle id as sent: its canonical form, whether it belongs to this partition, its user on the latest date."""

    canonical: str
    belongs: bool
    user: UserOfDay | None = None
    # slot, cell, hat, contribution: the HAT that it entered last, and its user's contribution there. Most readings are
    # in the HAT of the reading before them, and so need no look-up
    slot: OpenSlot | None = None
    cell: int = 0
    hat: OpenHat | None = None
    contribution: Contribution | None = None
    marked: object = None  # mark of the fold when it marked the chunk of `contribution` as changed; None: not yet
