"""Columns of foreign CSV, Parquet or JSON records: which of them are the fields of a reading."""

import codecs
import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from hatcast.stream.errors import RecordingError, SettingError, name_fix
from hatcast.stream.readings.formats._times import check_time_format
from hatcast.stream.readings.formats.interface import DERIVE_FIX
from hatcast.stream.readings.reading import UNITS

VEHICLE, TIME, LAT, LON, VALUE, ARRIVAL = "vehicle", "time", "lat", "lon", "value", "arrival"
REQUIRED: Final = (VEHICLE, TIME, LAT, LON, VALUE)
VEHICLE_AT, TIME_AT, LAT_AT, LON_AT, VALUE_AT = range(len(REQUIRED))
"""Number of each required field in the cells of a record, in all readers of columns; further values follow."""
ARRIVAL_AT: Final = -1
SPEED: Final = "speed"  # another name of `value`
_LISTED_MAX: Final = 30  # names of columns in an error message
_SKIPPED_MAX: Final = 10_000
_WRITTEN: Final = {
    "columns": ("FIELD=COLUMN", "fields and columns, such as vehicle=plate,time=ts"),
    "where": ("COLUMN=VALUE", "a column and its value, such as kind=bus"),
}

# Names that plainly are a field, without case, spaces and signs.
_NAMES: Final[Mapping[str, str]] = {
    VEHICLE: "vehicle vehicleid vehicleref vehiclenumber vehicleno veh vehid bus busid busno busnumber plate plateno"
    " platenumber licenseplate licenceplate registration deviceid",
    TIME: "time timestamp ts datetime recordedat recordedattime observationdatetime observedat eventtime gpstime"
    " gpstimestamp timestampms timestamputc timeutc utctime tst",
    LAT: "lat latitude gpslat gpslatitude",
    LON: "lon lng long longitude gpslon gpslng gpslongitude",
    VALUE: "value speed velocity spd vehiclespeed gpsspeed",
    ARRIVAL: "arrival",
}
_UNIT_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("kmh", "kph", "kmph"), "km/h"),
    **dict.fromkeys(("mps", "ms"), "m/s"),
    "mph": "mph",
    **dict.fromkeys(("kn", "kt", "kts", "knot", "knots"), "kn"),
}
_SPEED_WITH_UNIT: Final = re.compile(rf"(?:vehicle|gps)?(?:speed|velocity|spd)(?:in)?({'|'.join(_UNIT_NAMES)})")
_NUMBER: Final = re.compile(r"0{0,3}[1-9][0-9]{0,3}")  # a row is as wide as the largest
_SIGNS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Columns:
    """Mapping from the columns of a record to the fields of a reading.

    A column of CSV may be a number, counted from 1, if the file has no header; then all of them are. A column of JSON
    may be a path, such as `position.lat` or `location.coordinates.0`.
    Raises SettingError.
    """

    # column by field: `vehicle`, `time`, `lat`, `lon`, `value` (or `speed`), `arrival`, and further values of the
    # policy by their names. A field that is left out is found by its name in the header
    names: Mapping[str, str] = field(default_factory=dict)
    # unit of the value: that of the policy, or km/h, m/s, mph or kn for a speed; None: as the header says
    unit: str | None = None
    # as `_times.time_reader`: `iso`, `s`, `ms`, `us`, `ns` or a pattern of strptime; None: `iso`
    time_format: str | None = None
    times_in: str | None = None  # time zone of times without an offset; None: that of the policy
    where: Mapping[str, str] = field(default_factory=dict)  # value by column: other records are left out
    # path of the records in a JSON document, such as `data.bikes`, or `.`; None: the document is a record
    records: str | None = None
    encoding: str | None = None  # of a text; None: UTF-8
    decimal: str = "."  # between whole numbers and fractions: `.` or `,`
    skip: int = 0  # lines of CSV before the header

    def __post_init__(self) -> None:
        """Check the parts, and write a unit as `UNITS` has it."""
        names = dict(self.names)
        for name, column in names.items():
            if not (name and column and str(column).strip()):
                raise SettingError("columns", f"{name!r} has no column", "write FIELD=COLUMN, such as vehicle=plate")
        object.__setattr__(self, "names", names)
        if self.unit is not None:
            object.__setattr__(self, "unit", _unit_of(self.unit))
        if self.time_format is not None:
            check_time_format(self.time_format)
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _encoding_of(self.encoding))
        if self.decimal not in (".", ","):
            raise SettingError("decimal", f"{self.decimal!r} is not a decimal sign", 'write "." or ","')
        if not 0 <= self.skip <= _SKIPPED_MAX:
            raise SettingError("skip", f"{self.skip} lines cannot be left out", f"use 0 to {_SKIPPED_MAX}")

    def are_named(self) -> bool:
        """Whether anything but the zone of times is given: then a table is read by its columns' names."""
        return self != Columns(times_in=self.times_in)

    @classmethod
    def parse(cls, text: str | Iterable[str], option: Literal["columns", "where"] = "columns") -> "Columns":
        """Parse `vehicle=plate,time=ts,..`, or several such texts. A column with a comma is written in double quotes.

        option   which one has the text
        Raises SettingError, which names it.
        """
        names: dict[str, str] = {}
        for part in (text,) if isinstance(text, str) else text:
            for entry in _entries(part):
                name, equals, column = (each.strip() for each in entry.partition("="))
                if not (name and equals and column):
                    wanted, fix = _WRITTEN[option]
                    raise SettingError(option, f"{entry!r} is not {wanted}", f"write {fix}")
                if name in names:
                    raise SettingError(option, f"names {name} twice", "name it once")
                names[name] = column
        return cls(names)

    @property
    def path(self) -> list[str] | None:
        """The keys from a JSON document to its records; None: it is a record."""
        return None if self.records is None else [key for key in self.records.split(".") if key]

    def first_option(self) -> str:
        """Return the name of the first option that is given; "columns" without one."""
        return next(iter(self.options), "columns").partition(" ")[0]

    @property
    def options(self) -> list[str]:
        """Name and text of the options that decide vehicle, place, time and value; a header may replace some."""
        names = Columns(dict(sorted(self.names.items()))).text()
        parts = {
            "columns": names,
            "time_format": self.time_format,
            "where": Columns(dict(sorted(self.where.items()))).text(),
            "records": self.records,
            "encoding": self.encoding,
            "decimal": None if self.decimal == "." else self.decimal,
            "skip": self.skip,
            "times_in": self.times_in,
            "unit": self.unit,
        }
        return [f"{name} {part}" for name, part in parts.items() if part]

    @property
    def numbered(self) -> bool:
        """Return True if columns are given by number: then a CSV file starts without a header."""
        return bool(self.names) and all(column.isascii() and column.isdigit() for column in self.names.values())

    def for_values(self, value: str, others: Iterable[str]) -> "Columns":
        """Return the columns with the field `value` for the policy's name of it. Raises SettingError: unknown fields.

        value    the policy's name of its value
        others   names of the policy's further values
        """
        known = (*REQUIRED, ARRIVAL, *others)
        for name in self.names:
            if name not in (*known, value):
                named = [value if each == VALUE else each for each in known]
                raise SettingError("columns", f"{name!r} is not a field", name_fix(name, named))
        if value not in self.names or value in known:
            return self
        if VALUE in self.names:
            raise SettingError("columns", f"names both value and {value}, which are one field", "remove one of them")
        return replace(self, names={VALUE if name == value else name: at for name, at in self.names.items()})

    def check_complete(self, fields: Iterable[str]) -> None:
        """Raise SettingError if a field lacks a column, or a column's number is not 1 to 9999."""
        missing = [name for name in fields if name not in self.names]
        if missing:
            raise SettingError(
                "columns",
                f"has no {', '.join(missing)}",
                f"add {example(missing)}: a header is needed to find it by name",
            )
        if not all(_NUMBER.fullmatch(column) for column in (*self.names.values(), *self.where)):
            raise SettingError("columns", "has a number that no column has", "count columns from 1, to 9999 at most")

    def completed(
        self, header: Sequence[str], required: Iterable[str], value: str, path: str, *, is_schema: bool
    ) -> "Columns":
        """Return the columns with a name for every required field, and for other fields if the header shows them.

        header   names of all columns
        value    the policy's name of its value
        is_schema   the names are no line of a text, which may have cells of a row: an error may list them
        Raises RecordingError if a named column is missing, or the header does not plainly show a field's column.
        """
        shown = listed(header) if is_schema else "those that `hatcast check` prints"
        for name, column in (*self.names.items(), *(("`--where`", column) for column in self.where)):
            if header.count(column) > 1:
                raise RecordingError(path, f"has several columns {_quoted(column)}", f"name one of {shown}")
            if column not in header:
                fix = f"name one of {shown}"
                if column.isdigit():
                    fix += "; a number counts columns of a file without a header, and then all are numbers"
                raise RecordingError(path, f"has no column {_quoted(column)}, named as {name}", fix)
        names, taken = dict(self.names), frozenset(self.names.values())
        wanted = [name for name in required if name not in names]
        found = {
            name: [each for each in header if each not in taken and _is_plainly(name, each, value)]
            for name in (*wanted, VALUE, ARRIVAL)
        }
        doubtful = [name for name in (*wanted, VALUE) if name not in names and len(found[name]) > 1]
        unknown = [name for name in wanted if len(found[name]) != 1] or doubtful
        if unknown:
            both = ""
            if several := [name for name in unknown if found[name]]:
                shown_as = " and ".join(_quoted(each.rpartition(".")[2]) for each in found[several[0]])
                both = f": {shown_as} may be the {several[0]}"
            fix = f"write columns such as {example(unknown)}"
            if unknown == [VALUE] and value == SPEED:
                fix += f", or {DERIVE_FIX}"
            raise RecordingError(path, f"its columns ({shown}) do not plainly show {', '.join(unknown)}{both}", fix)
        names = {name: columns[0] for name, columns in found.items() if len(columns) == 1} | names
        return replace(self, names=names)

    def shown(self, header: Iterable[str], fields: Iterable[str], value: str) -> int:
        """Return the number of fields that the header shows or the columns name: none of a line that is data.

        value    the policy's name of its value
        """
        return sum(
            any(self.names.get(name) == each or _is_plainly(name, each, value) for each in header) for name in fields
        )

    def text(self) -> str:
        """Return the names as `parse` reads them."""
        return ",".join(
            f'"{name}={column}"' if "," in column else f"{name}={column}" for name, column in self.names.items()
        )


def unit_in_name(column: str) -> str | None:
    """Return the unit that a column's name plainly has, such as m/s of `speed_mps`; None if it has none."""
    found = _SPEED_WITH_UNIT.fullmatch(_plain(column))
    return None if found is None else _UNIT_NAMES[found[1]]


def is_utc(column: str) -> bool:
    """Return whether a column's name plainly says that its times are in UTC, such as `timestamp_utc`."""
    return "utc" in _plain(column)


def _is_plainly(name: str, column: str, value: str) -> bool:
    plain = _plain(column)
    if name == VALUE and value != SPEED:  # a speed is not another value
        return plain in (VALUE, _plain(value))
    if name == VALUE and _SPEED_WITH_UNIT.fullmatch(plain):
        return True
    return plain in _NAMES.get(name, _plain(name)).split()


def _plain(column: str) -> str:
    """Return a column's name in lower case, without spaces and signs; of a path, its last part."""
    return _SIGNS.sub("", column.rpartition(".")[2]).lower()


def _entries(text: str) -> list[str]:
    """Return the entries of a text, in which commas separate them. Raises SettingError."""
    try:
        return next(csv.reader((text,), skipinitialspace=True), [])
    except csv.Error:  # such as a line break
        raise SettingError(
            "columns", "is not a list of FIELD=COLUMN", "write it on one line, such as vehicle=plate,time=ts"
        ) from None


def _unit_of(unit: str) -> str:
    """Return the usual spelling of a unit of speed, or the unit."""
    text = unit.strip()
    return text if text in UNITS else _UNIT_NAMES.get(text.lower(), text)


def _encoding_of(name: str) -> str:
    """Return Python's name of an encoding of texts. Raises SettingError."""
    try:
        bytes(range(256)).decode(name, "replace")  # some, such as idna, raise whatever they cannot decode
        return codecs.lookup(name).name
    except (LookupError, ValueError, UnicodeError):
        raise SettingError(
            "encoding", f"{name!r} is not an encoding", "use latin-1, cp1252, utf-16 or another that Python knows"
        ) from None


def example(fields: Iterable[str]) -> str:
    """Return columns of these fields as `parse` reads them, for a fix."""
    return ",".join(f"{name}=COLUMN" for name in fields)


def listed(header: Sequence[str]) -> str:
    """Return the names of columns for an error message."""
    names = ", ".join(map(_quoted, header[:_LISTED_MAX]))
    return f"{names}, .." if len(header) > _LISTED_MAX else names or "none"


def _quoted(column: str) -> str:
    return column if column.isidentifier() else repr(column)
