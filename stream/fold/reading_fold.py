"""The fold of readings: one partition's records, in offset order, to contributions.    [docs/specification/fold.md]

A pure function of the log. Every record passes through `PartitionFold.apply`, so it is written for speed: values that
recur in records (vehicle, time, speed, minute) are cached in bounded tables.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import h3.api.basic_int as h3

from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.fold.open_slots import Contribution, OpenSlot, PeriodUsers, ValuesContribution, Vehicle
from hatcast.stream.fold.partition_fold import CACHE_SIZE, Belongs, PartitionFold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, ValuesKeys
from hatcast.stream.policy.value_keys import SPEED, Value
from hatcast.stream.readings.reading import (
    Outcome,
    Reading,
    ValuesReading,
    cache,
    in_milli,
    number,
    parse_time,
    to_milli,
)
from hatcast.stream.readings.vehicles import canonical_vehicle
from hatcast.stream.units import MINUTE_MS

V = TypeVar("V")
Decode = Callable[[V], Reading | None]
"""Decodes one record's value; None if undecodable"""

_NO_TIME: Final = 1 << 80  # later than any arrival + max_ahead: an unreadable time ends as bad_time
_REJECTED: Final = -1  # by rule 5
_MISSING: Final = -2  # no value: the record lacks one
_ZERO_VALUE: Final = 1 << 62  # a zero of another value than the speed, if zeros are dropped
_UNOPENED_MAX: Final = 2_000  # slots without HATs, for readings that enter nothing: more than the minutes of a day
_NO_PERIOD: Final = PeriodUsers("")  # that of these slots
_cell_at = h3.latlng_to_cell
_YEARS: Final = (-62_104_060_800_000, 253_370_764_800_000)  # ms; years 2 to 9998: each time zone has a local date

# Plain strings: hashing a member of an Enum runs Python code, for every record.
_UNDECODABLE, _BAD_PLACE, _BAD_VALUE = Outcome.UNDECODABLE.value, Outcome.BAD_PLACE.value, Outcome.BAD_VALUE.value
_BAD_TIME, _ZERO, _LATE = Outcome.BAD_TIME.value, Outcome.ZERO.value, Outcome.LATE.value
_CELLS: Final = Outcome.OUTSIDE_CELLS.value
_ACCEPTED: Final = Outcome.ACCEPTED.value


class ReadingFold(PartitionFold[V], Generic[V]):
    """Fold of readings by rules 1 to 13. See PartitionFold."""

    def __init__(
        self, policy: Policy, calendar: Calendar, users: FoldUsers, decode: Decode[V], belongs: Belongs
    ) -> None:
        super().__init__(policy, calendar, users, belongs, policy.upper_bound)
        self._decode = decode
        self._zero = 0 if policy.value is None else _ZERO_VALUE
        self._resolution = policy.h3_resolution
        self._fine_cell_at = None if policy.fine is None else policy.fine.cell_at
        self._interval = policy.min_interval_ms
        self._times: dict[str | int | float, int] = {}
        self._values: dict[str, dict[float | str, int]] = {}  # by unit: the few of UNITS, or the policy's own
        self._minutes: dict[int, OpenSlot] = {}
        self._unopened: dict[str, OpenSlot] = {}

    def _fold(self, timestamp: int, watermark: int, value: V) -> str:
        """Apply rules 3 to 9 to one record and return its outcome."""
        reading = self._decode(value)
        if reading is None:
            return _UNDECODABLE
        try:
            vehicle = self._vehicles[reading.vehicle]
        except KeyError:
            vehicle = self._add_vehicle(reading.vehicle, canonical_vehicle(reading.vehicle))
        if vehicle is None:
            return _UNDECODABLE
        latitude, longitude = reading.lat, reading.lon
        try:
            if not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 180.0) or latitude == longitude == 0.0:  # type: ignore[operator]  # a text raises
                return _BAD_PLACE
        except TypeError:
            return _BAD_PLACE  # only numbers that are not finite arrive as text
        try:
            milli = self._values[reading.unit][reading.speed]
        except KeyError:
            milli = self._value(reading.speed, reading.unit)
        if milli < 0:
            return _BAD_VALUE
        try:
            instant = self._times[reading.time]
        except KeyError:
            instant = self._time(reading.time)
        if instant > timestamp + self._max_ahead:
            return _BAD_TIME
        if milli == self._zero and self.policy.drop_zero:
            return _ZERO
        try:
            slot = self._minutes[instant // MINUTE_MS]
        except KeyError:
            slot = self._open(instant, watermark)
        outside = slot.slot.outside
        if outside is not None:
            return outside
        cell = None if self._fine_cell_at is None else self._fine_cell_at(latitude, longitude)  # type: ignore[arg-type]  # both are floats
        if cell is None:
            cell = _cell_at(latitude, longitude, self._resolution)
        if self.policy.cells is not None and cell not in self.policy.cells:
            return _CELLS
        if watermark >= slot.closes_ms:
            return _LATE
        return self._enter(vehicle, slot, cell, (instant - slot.slot.start_ms) // self._interval, milli)

    def _value(self, speed: float | str, unit: str) -> int:
        """Convert a value to its distance from the lower bound, in milli-units; `_REJECTED` if rule 5 rejects it.

        A speed is not clipped to the upper bound here.
        """
        as_number = number(speed)
        value, reject_above = self.policy.value, self.policy.reject_above
        milli = _REJECTED
        if as_number - as_number == 0.0:  # it is finite
            milli = to_milli(as_number, unit) if value is None or value.name == SPEED else in_milli(as_number)
            if value is not None and milli in value.missing:
                return cache(self._values.setdefault(unit, {}), speed, _REJECTED, CACHE_SIZE)
            if reject_above is not None and milli > reject_above:
                milli = _REJECTED
            elif value is not None:
                milli = _ZERO_VALUE if milli == 0 and self.policy.drop_zero else _above_lower(milli, value)
        if reject_above is None:
            milli = max(milli, 0)
        return cache(self._values.setdefault(unit, {}), speed, milli, CACHE_SIZE)

    def _time(self, time: str | int | float) -> int:
        """Convert a reading's time to milliseconds UTC; `_NO_TIME` if it is unreadable or without a local date."""
        instant = parse_time(time)
        if instant is None or not _YEARS[0] <= instant <= _YEARS[1]:
            instant = _NO_TIME
        return cache(self._times, time, instant, CACHE_SIZE)

    def _open(self, instant: int, watermark: int) -> OpenSlot:
        """Return the open slot of an instant; open it and its day for their first reading.

        A slot that takes no reading is returned and not opened: a record may name any, and a checkpoint looks at all
        that are open, and at their days.
        """
        slot = self.calendar.slot_at(instant)
        opened = self.slots.get(slot.key)
        if opened is None:
            closes_ms = closes_at(slot, self.policy)
            takes_none = slot.outside is not None or watermark >= closes_ms
            opened = self._unopened_slot(slot, closes_ms) if takes_none else self._open_slot(slot)
        if self.calendar.is_whole_minute(instant):
            cache(self._minutes, instant // MINUTE_MS, opened, CACHE_SIZE)
        return opened

    def _unopened_slot(self, slot: Slot, closes_ms: int) -> OpenSlot:
        """Return a slot for readings that are late or outside, which enter nothing."""
        unopened = self._unopened.get(slot.key)
        if unopened is None:
            if len(self._unopened) >= _UNOPENED_MAX:
                self._minutes.clear()
                self._unopened.clear()
            unopened = self._unopened[slot.key] = OpenSlot(slot, closes_ms, _NO_PERIOD)
        return unopened

    def drop_closed(self) -> bool:
        dropped = super().drop_closed()
        if dropped:
            self._minutes.clear()
            self._unopened.clear()
        return dropped


def _above_lower(milli: int, value: Value) -> int:
    """Return a number of milli-units clipped to the value's range, minus its lower bound."""
    return min(max(milli, value.lower), value.upper) - value.lower


Fold = ReadingFold[bytes]  # of a topic's records; those of a recording are decoded before


class ValuesFold(ReadingFold[V], Generic[V]):
    """Fold of readings whose policy releases several values.    [docs/specification/fold.md, Several values]

    It is the fold of speeds; a reading that counts there adds its other values besides. So the fold of speeds does not
    pay for them.
    """

    def __init__(
        self, policy: Policy, calendar: Calendar, users: FoldUsers, decode: Decode[V], belongs: Belongs
    ) -> None:
        """Args: as of ReadingFold; `decode` returns a `ValuesReading` with each value of the policy but the speed."""
        super().__init__(policy, calendar, users, self._read, belongs)
        self._decode_values = decode
        self._others = policy.released_values[1:]
        self._clipped: list[dict[float | str, int]] = [{} for _ in self._others]
        self._milli: list[int] = []

    def _read(self, value: V) -> Reading | None:
        """Decode a record and note its other values, clipped and counted from their lower ends, in milli-units."""
        reading = self._decode_values(value)
        if not isinstance(reading, ValuesReading):
            return None
        self._milli = milli = []
        for value_keys, clipped in zip(self._others, self._clipped, strict=True):
            sent = reading.others[value_keys.name]
            try:
                milli.append(clipped[sent])
            except KeyError:
                milli.append(cache(clipped, sent, _other_above_lower(sent, value_keys), CACHE_SIZE))
        least = min(milli)
        if least == _MISSING:
            return None
        if least < 0 and self.policy.reject_above is not None:
            # Rule 5 reads all values: a value that is not a number makes the reading's speed not a number.
            return Reading(reading.vehicle, reading.time, reading.lat, reading.lon, "nan", reading.unit)
        return reading

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        outcome = super()._enter(vehicle, slot, cell, step, milli)
        if outcome is _ACCEPTED and vehicle.contribution is not None:
            others = vehicle.contribution.others
            accepted = [max(other, 0) for other in self._milli]
            for at, other in enumerate(accepted):
                others[at] += other
            if self._keeps_rows:
                self._accepted[-1] = (*self._accepted[-1], *accepted)
        return outcome

    def _new_contribution(self, ordinal: int) -> Contribution:
        return ValuesContribution(0, 0, 0, 0, ordinal, [0] * len(self._others))


def reading_fold(
    policy: Policy, calendar: Calendar, users: FoldUsers, decode: Decode[V], belongs: Belongs
) -> ReadingFold[V]:
    """Return the empty fold of a policy's readings. Arguments as of ReadingFold and ValuesFold."""
    kind = ValuesFold if isinstance(policy.method, ValuesKeys) else ReadingFold
    return kind(policy, calendar, users, decode, belongs)


def _other_above_lower(sent: float | str, value: Value) -> int:
    """Return `_above_lower` of another value than the speed.

    `_REJECTED` if it is not finite, `_MISSING` if it says that there is no value.
    """
    as_number = number(sent)
    if as_number - as_number != 0.0:
        return _REJECTED
    milli = in_milli(as_number)
    return _MISSING if milli in value.missing else _above_lower(milli, value)
