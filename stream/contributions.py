"""The fold: one partition's records, in offset order, to contributions.    [fold.md, rules 1 to 13]

A pure function of the log. `Fold.apply` is the loop that every record crosses, so it is written for speed: what a
record repeats (its vehicle, its second, its speed, its minute) is looked up, not computed, in bounded tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import h3.api.basic_int as h3

from stream.clock import closes_at
from stream.hats import Calendar, Slot
from stream.open_slots import CHUNK_USERS, Contribution, Day, OpenHat, OpenSlot, UserOfDay
from stream.policy import Policy
from stream.pseudonyms import Pseudonyms
from stream.reading import Outcome, Reading, canonical_vehicle, number, parse_time, to_milli
from stream.units import MINUTE_MS

K = TypeVar("K")
V = TypeVar("V")

# Entries of each look-up table. A full one is emptied, so memory stays bounded whatever the feed sends.
_VEHICLES: Final = 200_000
_REPEATED: Final = 20_000  # seconds, speeds, minutes
_NO_TIME: Final = 1 << 80  # later than any clock + max_ahead: a time that says no instant ends as bad_time
_BAD_VALUE: Final = -1
_cell_at = h3.latlng_to_cell
_YEARS: Final = (-62_104_060_800_000, 253_370_764_800_000)  # ms of the years 2 to 9998: inside, any zone has a date

# Plain strings: hashing a member of an Enum runs Python code, for every record.
_ACCEPTED, _TICK, _FUTURE = Outcome.ACCEPTED.value, Outcome.TICK.value, Outcome.ARRIVED_IN_FUTURE.value
_UNDECODABLE, _BAD_PLACE, _BAD_SPEED = Outcome.UNDECODABLE.value, Outcome.BAD_PLACE.value, Outcome.BAD_VALUE.value
_BAD_TIME, _ZERO, _LATE = Outcome.BAD_TIME.value, Outcome.ZERO.value, Outcome.LATE.value
_CELLS, _WRONG = Outcome.OUTSIDE_CELLS.value, Outcome.WRONG_PARTITION.value
_DUPLICATE, _OVER_CAP = Outcome.DUPLICATE.value, Outcome.OVER_CAP.value


@dataclass(slots=True)
class Vehicle:
    """A vehicle id as it was sent: its canonical form, whether it belongs here, its user of the day last seen."""

    canonical: str
    at_home: bool
    user: UserOfDay | None = None


class FoldOf(Generic[V]):
    """One partition's state: clock, outcomes, open slots, days. V: what a record is handed over as.

    clock      greatest arrival (ms UTC) applied so far; None before the first record
    complete_from   ms UTC: records that arrived before are missing; None: none are
    outcomes   records by what became of them
    slots      by `date/slot`; days by date
    State is bounded by the users of open HATs and of unfinished days.
    """

    def __init__(
        self,
        policy: Policy,
        calendar: Calendar,
        pseudonyms: Pseudonyms,
        decode: Callable[[V], Reading | None],
        home: Callable[[bytes], bool] | None,
    ) -> None:
        """Args:
        decode: one record's value to a Reading; None if undecodable
        home:   whether a vehicle id in UTF-8 belongs to this partition; None skips rule 10 (recordings)
        """
        self.policy = policy
        self.calendar = calendar
        self.clock: int | None = None
        self.complete_from: int | None = None
        self.outcomes: dict[str, int] = {outcome.value: 0 for outcome in Outcome}
        self.slots: dict[str, OpenSlot] = {}
        self.days: dict[str, Day] = {}
        self._changed: list[tuple[OpenSlot, int, OpenHat]] = []
        self._pseudonyms = pseudonyms
        self._decode = decode
        self._home = home
        self._daily = policy.unit == "user_day"
        self._max_ahead = policy.max_ahead_ms
        self._resolution = policy.h3_resolution
        self._interval = policy.min_interval_ms
        self._upper_bound = policy.upper_bound
        self._vehicles: dict[str, Vehicle | None] = {}
        self._times: dict[str | int | float, int] = {}
        self._values: dict[tuple[float | str, str], int] = {}
        self._minutes: dict[int, OpenSlot] = {}

    def apply(self, now_ms: int, timestamps: Iterable[int], values: Iterable[V | None]) -> list[int]:
        """Fold records: `timestamps` are their arrivals in ms UTC, `values` what they hold (empty or None: a tick).

        Returns the indexes of those that ended as undecodable, for the dead letters.
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

    def _fold(self, timestamp: int, clock: int, value: V) -> str:
        """Rules 3 to 9 for one record; returns its outcome."""
        reading = self._decode(value)
        if reading is None:
            return _UNDECODABLE
        try:
            vehicle = self._vehicles[reading.vehicle]
        except KeyError:
            vehicle = self._meet(reading.vehicle)
        if vehicle is None:
            return _UNDECODABLE
        latitude, longitude = reading.lat, reading.lon
        if latitude.__class__ is str or longitude.__class__ is str:
            return _BAD_PLACE  # the texts name numbers that are not finite
        if not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 180.0) or latitude == longitude == 0.0:  # type: ignore[operator]  # both are floats: the line above
            return _BAD_PLACE
        try:
            milli = self._values[reading.speed, reading.unit]
        except KeyError:
            milli = self._value(reading.speed, reading.unit)
        if milli < 0:
            return _BAD_SPEED
        try:
            instant = self._times[reading.time]
        except KeyError:
            instant = self._time(reading.time)
        if instant > timestamp + self._max_ahead:
            return _BAD_TIME
        if milli == 0 and self.policy.drop_zero:
            return _ZERO
        try:
            slot = self._minutes[instant // MINUTE_MS]
        except KeyError:
            slot = self._open(instant)
        outside = slot.slot.outside
        if outside is not None:
            return outside
        cell = _cell_at(latitude, longitude, self._resolution)
        if self.policy.cells is not None and cell not in self.policy.cells:
            return _CELLS
        if clock >= slot.closes_ms:
            return _LATE
        return self._enter(vehicle, slot, cell, (instant - slot.slot.start_ms) // self._interval, milli)

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
        value = milli if milli < self._upper_bound else self._upper_bound
        if hat is None or known is None:
            if user.entered >= self.policy.max_hats_per_day:
                return _OVER_CAP
            hat, known = self._admit(user, slot, cell)
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

    def _admit(self, user: UserOfDay, slot: OpenSlot, cell: int) -> tuple[OpenHat, Contribution]:
        """Let a user into a HAT: one more of the K of its day."""
        hat = slot.hats.get(cell)
        if hat is None:
            hat = slot.hats[cell] = OpenHat()
        contribution = hat.users[user.pseudonym] = Contribution(0, 0, 0, 0, len(hat.users))
        user.entered += 1
        slot.day.changed.add(user.ordinal // CHUNK_USERS)
        return hat, contribution

    def _meet(self, sent: str) -> Vehicle | None:
        """A vehicle id seen for the first time in a while (rules 3 and 10)."""
        canonical = canonical_vehicle(sent)
        vehicle = None
        if canonical is not None:
            vehicle = Vehicle(canonical, self._home is None or self._home(canonical.encode()))
        return _keep(self._vehicles, sent, vehicle, _VEHICLES)

    def _user(self, vehicle: Vehicle, day: Day) -> UserOfDay:
        pseudonym = self._pseudonyms.of(vehicle.canonical, day.date if self._daily else None)
        user = day.users.get(pseudonym)
        if user is None:
            user = day.users[pseudonym] = UserOfDay(pseudonym, 0, len(day.users), day)
        vehicle.user = user
        return user

    def _value(self, speed: float | str, unit: str) -> int:
        """A speed in milli-units; `_BAD_VALUE` where rule 5 ends the record."""
        as_number = number(speed)
        finite = as_number - as_number == 0.0
        milli = to_milli(as_number, unit) if finite else _BAD_VALUE
        reject_above = self.policy.reject_above
        if reject_above is None:
            milli = max(milli, 0)
        elif milli > reject_above:
            milli = _BAD_VALUE
        return _keep(self._values, (speed, unit), milli, _REPEATED)

    def _time(self, time: str | int | float) -> int:
        """A reading's time in ms UTC; `_NO_TIME` where it says no instant, or one without a local date."""
        instant = parse_time(time)
        if instant is None or not _YEARS[0] <= instant <= _YEARS[1]:
            instant = _NO_TIME
        return _keep(self._times, time, instant, _REPEATED)

    def _open(self, instant: int) -> OpenSlot:
        """The slot of an instant, and its day, opened if this is their first reading."""
        slot = self.calendar.slot_at(instant)
        opened = self.slots.get(slot.key) or self._open_slot(slot)
        if self.calendar.is_whole_minute(instant):
            _keep(self._minutes, instant // MINUTE_MS, opened, _REPEATED)
        return opened

    def _open_slot(self, slot: Slot) -> OpenSlot:
        day = self.days.get(slot.date)
        if day is None:
            day = self.days[slot.date] = Day(slot.date)
        opened = self.slots[slot.key] = OpenSlot(slot, closes_at(slot, self.policy), day)
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

    def forget_closed(self) -> None:
        """Drop what no record can change any more: slots that the clock has closed, days that are over.

        Call it when all changes are stored: the release reads them there.
        """
        clock = -1 if self.clock is None else self.clock
        closed = [key for key, slot in self.slots.items() if clock >= slot.closes_ms]
        if not closed:
            return
        for key in closed:
            del self.slots[key]
        self._minutes.clear()
        for date in [date for date, day in self.days.items() if day.over]:
            del self.days[date]
        self._vehicles.clear()


Fold = FoldOf[bytes]  # of records as they stand on a topic; those of a recording have been read already


def _keep(table: dict[K, V], key: K, value: V, entries: int) -> V:
    """Remember `value`; a table that has `entries` already is emptied first."""
    if len(table) >= entries:
        table.clear()
    table[key] = value
    return value
