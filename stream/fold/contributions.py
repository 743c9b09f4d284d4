"""The fold: one partition's records, in offset order, to contributions.    [fold.md, rules 1 to 13]

A pure function of the log. `Fold.apply` is the loop that every record crosses, so it is written for speed: what a
record repeats (its vehicle, its second, its speed, its minute) is looked up, not computed, in bounded tables.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import h3.api.basic_int as h3

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.open_slots import OpenSlot
from hatcast.stream.fold.partition_fold import REPEATED, PartitionFold, keep
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.pseudonyms import Pseudonyms
from hatcast.stream.readings.reading import Outcome, Reading, number, parse_time, to_milli
from hatcast.stream.units import MINUTE_MS

V = TypeVar("V")

_NO_TIME: Final = 1 << 80  # later than any clock + max_ahead: a time that says no instant ends as bad_time
_BAD_VALUE: Final = -1
_cell_at = h3.latlng_to_cell
_YEARS: Final = (-62_104_060_800_000, 253_370_764_800_000)  # ms of the years 2 to 9998: inside, any zone has a date

# Plain strings: hashing a member of an Enum runs Python code, for every record.
_UNDECODABLE, _BAD_PLACE, _BAD_SPEED = Outcome.UNDECODABLE.value, Outcome.BAD_PLACE.value, Outcome.BAD_VALUE.value
_BAD_TIME, _ZERO, _LATE = Outcome.BAD_TIME.value, Outcome.ZERO.value, Outcome.LATE.value
_CELLS: Final = Outcome.OUTSIDE_CELLS.value


class FoldOf(PartitionFold[V], Generic[V]):
    """The fold of readings. See PartitionFold."""

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
        super().__init__(policy, calendar, pseudonyms, home, policy.upper_bound)
        self._decode = decode
        self._resolution = policy.h3_resolution
        self._interval = policy.min_interval_ms
        self._times: dict[str | int | float, int] = {}
        self._values: dict[tuple[float | str, str], int] = {}
        self._minutes: dict[int, OpenSlot] = {}

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
        return keep(self._values, (speed, unit), milli, REPEATED)

    def _time(self, time: str | int | float) -> int:
        """A reading's time in ms UTC; `_NO_TIME` where it says no instant, or one without a local date."""
        instant = parse_time(time)
        if instant is None or not _YEARS[0] <= instant <= _YEARS[1]:
            instant = _NO_TIME
        return keep(self._times, time, instant, REPEATED)

    def _open(self, instant: int) -> OpenSlot:
        """The slot of an instant, and its day, opened if this is their first reading."""
        slot = self.calendar.slot_at(instant)
        opened = self.slots.get(slot.key) or self._open_slot(slot)
        if self.calendar.is_whole_minute(instant):
            keep(self._minutes, instant // MINUTE_MS, opened, REPEATED)
        return opened

    def forget_closed(self) -> bool:
        """See PartitionFold."""
        dropped = super().forget_closed()
        if dropped:
            self._minutes.clear()
        return dropped


Fold = FoldOf[bytes]  # of records as they stand on a topic; those of a recording have been read already
