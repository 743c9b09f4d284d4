"""What the folds of telemetry and of reports share: clock, users, caps, HATs.    [fold.md, rules 1, 2, 10 to 13]

A pure function of the log: `PartitionFold.apply` takes records in offset order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.open_slots import CHUNK_USERS, Contribution, Day, OpenHat, OpenSlot, UserOfDay
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.pseudonyms import Pseudonyms
from hatcast.stream.readings.reading import Outcome, canonical_vehicle

K = TypeVar("K")
V = TypeVar("V")

# Entries of each look-up table. A full one is emptied, so memory stays bounded whatever the feed sends.
_VEHICLES: Final = 200_000
REPEATED: Final = 20_000  # seconds, speeds, minutes

# Plain strings: hashing a member of an Enum runs Python code, for every record.
_ACCEPTED, _TICK, _FUTURE = Outcome.ACCEPTED.value, Outcome.TICK.value, Outcome.ARRIVED_IN_FUTURE.value
_UNDECODABLE, _WRONG = Outcome.UNDECODABLE.value, Outcome.WRONG_PARTITION.value
_DUPLICATE, _OVER_CAP, _LATE = Outcome.DUPLICATE.value, Outcome.OVER_CAP.value, Outcome.LATE.value


@dataclass(slots=True)
class Vehicle:
    """A vehicle id as it was sent: its canonical form, whether it belongs here, its user of the day last seen."""

    canonical: str
    at_home: bool
    user: UserOfDay | None = None


class Earlier(Protocol):
    """What earlier folds have entered into HATs that have their records: it counts against K, and never twice."""

    def entered(self, date: str) -> Mapping[bytes, int]:
        """Return how many HATs of a local date each user (pseudonym) has entered."""
        ...

    def released(self, slot: str) -> Mapping[int, frozenset[bytes]]:
        """Return the users of each HAT of a slot (`date/slot`) that has its record, by H3 cell."""
        ...


class PartitionFold(ABC, Generic[V]):
    """One partition's state: clock, outcomes, open slots, days. V: what a record is handed over as.

    clock      greatest arrival (ms UTC) applied so far; None before the first record
    complete_from   ms UTC: records that arrived before are missing; None: none are
    outcomes   records by what became of them
    slots      by `date/slot`; days by date
    earlier    what was entered and released before; None: nothing. Set before the first record
    too_late   (`date/slot`, cell) of the HATs that had their record already when somebody else's reading came
    State is bounded by the users of open HATs and of unfinished days.
    """

    def __init__(
        self,
        policy: Policy,
        calendar: Calendar,
        pseudonyms: Pseudonyms,
        home: Callable[[bytes], bool] | None,
        greatest: int,
    ) -> None:
        """Args:
        home:      whether an id in UTF-8 belongs to this partition; None skips rule 10 (recordings)
        greatest:  the largest value that counts as itself (rule 13)
        """
        self.policy = policy
        self.calendar = calendar
        self.clock: int | None = None
        self.complete_from: int | None = None
        self.outcomes: dict[str, int] = {outcome.value: 0 for outcome in Outcome}
        self.slots: dict[str, OpenSlot] = {}
        self.days: dict[str, Day] = {}
        self.earlier: Earlier | None = None
        self.too_late: set[tuple[str, int]] = set()
        self._changed: list[tuple[OpenSlot, int, OpenHat]] = []
        self._pseudonyms = pseudonyms
        self._home = home
        self._daily = policy.unit == "user_day"
        self._max_ahead = policy.max_ahead_ms
        self._greatest = greatest
        self._vehicles: dict[str, Vehicle | None] = {}

    def allowed(self, now_ms: int, timestamps: Sequence[int]) -> int:
        """How many records, from the first on, the clock of whoever folds them allows.

        The next one is dated further ahead than `max_ahead`. Of a log it has to wait, since the broker accepted it:
        were it rejected, the state would depend on a clock and not on the log. `timestamps` as for `apply`.
        """
        latest = now_ms + self._max_ahead
        if not timestamps or max(timestamps) <= latest:
            return len(timestamps)
        return next(index for index, timestamp in enumerate(timestamps) if timestamp > latest)

    def apply(self, now_ms: int, timestamps: Iterable[int], values: Iterable[V | None]) -> list[int]:
        """Fold records: `timestamps` are their arrivals in ms UTC, `values` what they hold (empty or None: a tick).

        Records that the clock does not allow are rejected, as recordings need it; of a log, hand over those only that
        `allowed` counts. Returns the indexes of those that ended as undecodable, for the dead letters.
        """
        latest = now_ms + self._max_ahead
        clock = -1 if self.clock is None else self.clock
        outcomes, fold = self.outcomes, self._fold
        undecodable = []
        for index, (timestamp, value) in enumerate(zip(timestamps, values, strict=True)):
            if timestamp > latest:
                outcomes[_FUTURE] += 1
                continue
            if timestamp > clock:
                clock = timestamp
            if timestamp < 0:
                outcome = _UNDECODABLE
            elif value:
                outcome = fold(timestamp, clock, value)
            else:
                outcome = _TICK
            outcomes[outcome] += 1
            if outcome is _UNDECODABLE:
                undecodable.append(index)
        self.clock = None if clock < 0 else clock
        return undecodable

    @abstractmethod
    def _fold(self, timestamp: int, clock: int, value: V) -> str:
        """One record with a value; returns its outcome."""

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        """Rules 10 to 13: the reading's user, its HAT, and whether it counts there."""
        if not vehicle.at_home:
            return _WRONG
        day = slot.day
        user = vehicle.user
        if user is None or user.day is not day:
            user = self._user(vehicle, day)
        hat = slot.hats.get(cell)
        known = None if hat is None else hat.users.get(user.pseudonym)
        value = milli if milli < self._greatest else self._greatest
        if hat is None or known is None:
            refused = self._count(user, slot, cell)
            if refused is not None:
                return refused
            hat, known = _admit(user, slot, cell)
        elif known.seen >> step & 1:
            return _DUPLICATE
        known.count += 1
        known.total += value
        if value > known.maximum:
            known.maximum = value
        known.seen |= 1 << step
        if not hat.changed:
            self._changed.append((slot, cell, hat))
        hat.changed.add(known.ordinal // CHUNK_USERS)
        return _ACCEPTED

    def _count(self, user: UserOfDay, slot: OpenSlot, cell: int) -> str | None:
        """Count a HAT among the K of a user's day, unless an earlier fold has; or the outcome that refuses it.

        Over the cap comes first, so that records which are folded again end as they did before.
        """
        released = slot.released.get(cell)
        if released is not None and user.pseudonym in released:
            return None
        if user.entered >= self.policy.max_hats_per_day:
            return _OVER_CAP
        if released is not None:
            self.too_late.add((slot.slot.key, cell))
            return _LATE
        user.entered += 1
        slot.day.changed.add(user.ordinal // CHUNK_USERS)
        return None

    def _meet(self, sent: str) -> Vehicle | None:
        """A vehicle id seen for the first time in a while (rules 3 and 10)."""
        canonical = canonical_vehicle(sent)
        vehicle = None
        if canonical is not None:
            vehicle = Vehicle(canonical, self._home is None or self._home(canonical.encode()))
        return keep(self._vehicles, sent, vehicle, _VEHICLES)

    def _user(self, vehicle: Vehicle, day: Day) -> UserOfDay:
        pseudonym = self._pseudonyms.of(vehicle.canonical, day.date if self._daily else None)
        user = day.users.get(pseudonym)
        if user is None:
            user = day.users[pseudonym] = UserOfDay(pseudonym, 0, len(day.users), day)
        vehicle.user = user
        return user

    def _open_slot(self, slot: Slot) -> OpenSlot:
        day = self.days.get(slot.date)
        if day is None:
            day = self.days[slot.date] = Day(slot.date)
            if self.earlier is not None:
                for pseudonym, entered in self.earlier.entered(slot.date).items():
                    day.users[pseudonym] = UserOfDay(pseudonym, entered, len(day.users), day)
        opened = self.slots[slot.key] = OpenSlot(slot, closes_at(slot, self.policy), day)
        if self.earlier is not None:
            opened.released = self.earlier.released(slot.key)
        return opened

    def slot_named(self, key: str) -> OpenSlot:
        """The open slot `date/slot`. Raises KeyError where the local clock has no such slot."""
        opened = self.slots.get(key)
        if opened is None:
            slot = self.calendar.named(*key.split("/"))
            if slot is None:
                raise KeyError(key)
            opened = self._open_slot(slot)
        return opened

    def is_over(self, date: str) -> bool:
        """True if the clock has closed the last slot of a local date."""
        return self.clock is not None and self.clock >= self.calendar.days_end(date) + self.policy.lateness_ms

    def take_changed(self) -> list[tuple[OpenSlot, int, OpenHat]]:
        """The HATs (slot, cell, contributions) that changed since the last call. The caller empties their `changed`."""
        changed, self._changed = self._changed, []
        return changed

    def forget_closed(self) -> bool:
        """Drop what no record can change any more: slots that the clock has closed, days that are over.

        True if some were. Call it when all changes are stored: the release reads them there.
        """
        clock = -1 if self.clock is None else self.clock
        closed = [key for key, slot in self.slots.items() if clock >= slot.closes_ms]
        if not closed:
            return False
        for key in closed:
            del self.slots[key]
        for date in [date for date, day in self.days.items() if day.over]:
            del self.days[date]
        self._vehicles.clear()
        return True


def _admit(user: UserOfDay, slot: OpenSlot, cell: int) -> tuple[OpenHat, Contribution]:
    """Let a user into a HAT."""
    hat = slot.hats.get(cell)
    if hat is None:
        hat = slot.hats[cell] = OpenHat()
    contribution = hat.users[user.pseudonym] = Contribution(0, 0, 0, 0, len(hat.users))
    return hat, contribution


def keep(table: dict[K, V], key: K, value: V, entries: int) -> V:
    """Remember `value`; a table that has `entries` already is emptied first."""
    if len(table) >= entries:
        table.clear()
    table[key] = value
    return value
