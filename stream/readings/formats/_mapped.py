"""Readings of records with foreign columns, whatever encodes them: the cells of a record in, a reading out."""

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final, NamedTuple, TypeVar

from hatcast.stream.errors import SettingError
from hatcast.stream.readings.formats._columns import (
    ARRIVAL_AT,
    LAT,
    LAT_AT,
    LON,
    LON_AT,
    REQUIRED,
    SPEED,
    TIME,
    TIME_AT,
    VALUE,
    VALUE_AT,
    VEHICLE,
    VEHICLE_AT,
    Columns,
    is_utc,
    unit_in_name,
)
from hatcast.stream.readings.formats._times import Repeated, RepeatedHours, TimeReader, time_reader, zone_of
from hatcast.stream.readings.formats._values import finite, parse_number
from hatcast.stream.readings.formats.interface import Recorded
from hatcast.stream.readings.reading import MISSING, UNITS, Reading, ValueReading, ValuesReading, ValueUnits, is_empty
from hatcast.stream.readings.vehicles import EXACT, canonical_vehicle, vehicle_text

Cells = Sequence[Any]
"""Fields numbered as in `_columns`, the further values, and the arrival: texts of CSV, or values of JSON.

None or "": the cell is missing."""

R = TypeVar("R")
ReadCells = Callable[[Cells], Reading | None]
_UNITS: Final = "km/h, m/s, mph or kn"
_NOT_NUMBER: Final = "is not a number such as {}: no unit, no separator of thousands, no text"
_OBJECT: Final = "{0} is an object or an array: name what is in it with `--columns {0}=COLUMN.KEY`"
_NOT_TIME: Final = "is not a time of this format: name it with `--time-format`, such as '%d.%m.%Y %H:%M:%S'"
_GROUPED: Final = re.compile(r"[-+]?[0-9]{1,3}(\.[0-9]{3})+")  # 1.030: a thousand and thirty, or little more than 1
NO_VALUE: Final = "value is missing"
_DECIMAL_COMMA: Final = re.compile(r"\s*[-+]?[0-9]+,[0-9]+\s*")


@dataclass(frozen=True, slots=True)
class WantedValues:
    """Values that a policy needs from records with columns of other names."""

    zone: tzinfo  # of times without an offset, unless the columns name one
    units: ValueUnits  # of the values that readings carry
    # a record without a speed is a reading with the speed `MISSING`: see `Format.without_speed`
    without_speed: bool = False

    @property
    def value(self) -> str:
        """The value's own name, which a record may have instead of `value`."""
        return SPEED if self.units.single is None else self.units.single[0]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a reading, in the order of `Cells`."""
        return (*REQUIRED, *self.units.others)

    @property
    def required(self) -> tuple[str, ...]:
        """The fields that need a column."""
        return tuple(name for name in self.fields if not (name == VALUE and self.without_speed))

    def target(self, columns: Columns) -> "CellsTarget":
        """Return how cells are read. Raises SettingError: the unit is unknown or another one, or the time zone is."""
        zone = UTC if is_utc(columns.names.get(TIME, TIME)) else self.zone
        if columns.times_in is not None:
            zone = zone_of(columns.times_in)
        read_time = time_reader(columns.time_format, zone)
        if self.units.single is None:
            others = tuple(self.units.others)
            return CellsTarget(read_time, self._speed_unit(columns), Reading, others, self.without_speed)
        name, unit = self.units.single
        if columns.unit not in (None, unit):
            raise SettingError("unit", f"{columns.unit!r} is not the unit of {name} in the policy, {unit}", "remove it")
        return CellsTarget(read_time, unit, ValueReading)

    def _speed_unit(self, columns: Columns) -> str:
        column = columns.names.get(VALUE)
        unit = columns.unit or unit_in_name(column or "") or ("km/h" if self.without_speed and column is None else None)
        if unit is None:
            problem = "the unit of " + ("the speeds" if column is None else f"column {column}") + " is unknown"
            raise SettingError("unit", problem, f"name it with `--unit` (in Python `unit`): {_UNITS}")
        if unit not in UNITS:
            raise SettingError("unit", f"{unit!r} is not a unit of speed", f"use {_UNITS}")
        return unit


class CellsTarget(NamedTuple):
    """Reading of one row's cells, or the problem with them."""

    instant: TimeReader  # reads the time
    unit: str  # of the value
    kind: type[Reading]  # of readings without further values
    others: tuple[str, ...] = ()  # names of the further values
    without_speed: bool = False  # as in `WantedValues`


def cells_reader(target: CellsTarget, repeated: RepeatedHours | None = None) -> ReadCells:
    """Return a function that converts cells to a reading; None if one of them is missing or not of its kind.

    repeated   for the records of one recording, in their order; None: for single records
    """
    instant, unit, kind, others, without_speed = target
    first = len(REQUIRED)

    def read(cells: Cells) -> Reading | None:
        text = cells[VEHICLE_AT]
        if text.__class__ is not str:
            text = vehicle_text(text)
        vehicle = canonical_vehicle(text) if text else None
        time = instant(cells[TIME_AT])
        lat, lon, value = _number(cells[LAT_AT]), _number(cells[LON_AT]), _value(cells[VALUE_AT])
        if value is None and without_speed and _is_missing(cells[VALUE_AT]):
            value = MISSING
        if not vehicle or time is None or lat is None or lon is None or value is None:
            return None
        if time.__class__ is Repeated:
            time = int(time) if repeated is None else repeated.instant(vehicle, time)
        if not others:
            return kind(vehicle, time, lat, lon, value, unit)
        numbers = {}
        for at, name in enumerate(others, first):
            number = _value(cells[at])
            if number is None:
                return None
            numbers[name] = number
        return ValuesReading(vehicle, time, lat, lon, value, unit, numbers)

    return read


def recorded(raw: bytes, cells: Cells, reading: Reading | None, target: CellsTarget) -> Recorded:
    """Return a record of a recording. Its arrival is the last cell, or else its time. No cells: it is malformed."""
    if not cells:
        return Recorded(raw, None, None, "has an open quote: one too many, or a line break in a cell")
    arrival = target.instant(cells[ARRIVAL_AT]) if cells[ARRIVAL_AT] else None
    if reading is not None:
        time = int(reading.time)
        if arrival.__class__ is Repeated and time > arrival:
            arrival = arrival.second
        return Recorded(raw, reading, time if arrival is None else arrival)
    if arrival is None:
        arrival = target.instant(cells[TIME_AT])
    return Recorded(raw, None, arrival, problem_of(cells, target))


def problem_of(cells: Cells, target: CellsTarget, decimal_fix: str = "`--decimal ,` reads it") -> str:
    """Return which cell of an undecodable record is wrong, without any of its data."""
    checks: tuple[tuple[str, Callable[[object], object], str], ...] = (
        (VEHICLE, _vehicle, "is not an id: a text or a whole number"),
        (TIME, target.instant, _NOT_TIME),
        (LAT, _number, _NOT_NUMBER.format("52.5")),
        (LON, _number, _NOT_NUMBER.format("13.4")),
        *((name, _value, _NOT_NUMBER.format("30.5")) for name in (VALUE, *target.others)),
    )
    for (name, check, problem), cell in zip(checks, cells, strict=False):
        if _is_missing(cell):
            if name == VALUE and target.without_speed:
                continue
            return f"{name} is missing"
        if isinstance(cell, dict | list):
            return _OBJECT.format(name)
        if check(cell) is None:
            comma = check in (_number, _value) and isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell)
            return f"{name} has a decimal comma: {decimal_fix}" if comma else f"{name} {problem}"
    return "is not UTF-8: name its encoding with `--encoding`, such as latin-1 or cp1252"


def with_points(cells_of: Callable[[R], Cells], columns: Columns) -> Callable[[R], Cells]:
    """Return a function that finds the cells with a decimal point in numbers, whichever sign the columns have."""
    if columns.decimal == ".":
        return cells_of

    def with_points_of(record: R) -> Cells:
        vehicle, time, *numbers, arrival = cells_of(record)
        return (vehicle, time, *map(pointed, numbers), arrival)

    def pointed(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        if "." not in cell:
            return cell.replace(",", ".")
        return cell.replace(".", "'") if _GROUPED.fullmatch(cell.strip()) else cell  # no number: it may be two

    return with_points_of


def _is_missing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and is_empty(cell))


def _vehicle(cell: object) -> str | None:
    text = vehicle_text(cell)
    return None if text is None else canonical_vehicle(text)


def _number(cell: object) -> float | str | None:
    """Return a latitude or longitude."""
    if isinstance(cell, str):
        return parse_number(cell)
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, int) and not isinstance(cell, bool):
        return float(cell) if abs(cell) <= EXACT else None
    return None


def _value(cell: object) -> float | str | None:
    """Return the value: any number, however large, as `finite` has it."""
    if isinstance(cell, str):
        return parse_number(cell, clips=True)
    if isinstance(cell, float):
        return finite(cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        try:
            return float(cell)
        except OverflowError:
            return math.copysign(sys.float_info.max, 1 if cell > 0 else -1)
    return None
