"""Tables whose rows are records, or results that are not records: their columns, and their rows.

A number is the text that stands in the record until a format needs a float, so CSV has the published digits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, auto
from operator import methodcaller
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from hatcast.stream.errors import UNREADABLE

Fields = Mapping[str, Any]  # A decoded record. A number with a point or an exponent is its text.

Row = dict[str, Any]  # column -> value, of the column's type; None if the record has none

RECORD: Final = "record"  # column of the whole record, as JSON


class Type(Enum):
    """Types of columns."""

    TEXT = auto()
    NUMBER = auto()
    COUNT = auto()
    FLAG = auto()
    DATE = auto()
    INSTANT = auto()


_CONVERT: Final[Mapping[Type, Callable[[Any], Any]]] = MappingProxyType(
    {
        Type.TEXT: str,
        Type.NUMBER: float,
        Type.COUNT: int,
        Type.FLAG: bool,
        Type.DATE: date.fromisoformat,
        Type.INSTANT: datetime.fromisoformat,
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. value: returns the record's own text of it; None if the record lacks it."""

    name: str
    type: Type
    value: Callable[[Fields], Any]


Layout: TypeAlias = "Table | Mixed | Figures"
"""Columns of a table whose rows are records. `values` returns a record's row with its numbers as written."""


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of record."""

    name: str
    key: str  # the column that identifies a record; records with an equal key are one row
    keeps_last: bool  # whether a later record of a key replaces an earlier one; otherwise they are equal byte for byte
    columns: Sequence[Column]
    check: Callable[[bytes], object]  # raises msgspec.DecodeError for anything but a record of this kind

    def values(self, record: bytes) -> Row | None:
        """Return a record's row with its numbers as written; None if the record is not of this kind."""
        try:
            self.check(record)
            fields: Fields = _DECODE(record) | {RECORD: record.decode()}
        except UNREADABLE:
            return None
        try:
            return {each.name: each.value(fields) for each in self.columns}
        except (AttributeError, LookupError, TypeError):  # of a `check` that does not check the types
            return None


class Mixed:
    """Table of several kinds of records: all of their columns, after one with the name of the record's own table."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        merged = {each.name: each for table in reversed(tables) for each in reversed(table.columns)}
        names = dict.fromkeys(each.name for table in tables for each in table.columns if each.name != RECORD)
        self.columns: Sequence[Column] = (
            Column("table", Type.TEXT, lambda _: None),  # the kind is known of the whole record only
            *(merged[name] for name in names),
            merged[RECORD],
        )

    def values(self, record: bytes) -> Row | None:
        """Return a record's row with its numbers as written; None if the record belongs to none of the tables."""
        for table in self._tables:
            row = table.values(record)
            if row is not None:
                return dict.fromkeys(each.name for each in self.columns) | {"table": table.name} | row
        return None


def layout_of(tables: Sequence[Table]) -> Layout:
    """Return the table of one kind of record, or one that holds several kinds."""
    return tables[0] if len(tables) == 1 else Mixed(tables)


def row_of(layout: Layout, record: bytes) -> Row | None:
    """Return a record's row, with values of the columns' types; None if it is not of this table."""
    values = layout.values(record)
    try:
        return None if values is None else converted(layout.columns, values)
    except (ValueError, OverflowError, TypeError):  # such as the date 2022-13-01
        return None


def rows_of(layout: Layout, records: Iterable[bytes]) -> list[Row]:
    """Return the rows of records, with values of the columns' types; records of other tables are left out."""
    return [row for record in records if (row := row_of(layout, record)) is not None]


_DECODE: Final = msgspec.json.Decoder(dict[str, Any], float_hook=str).decode


def converted(columns: Iterable[Column], values: Row) -> Row:
    """Return values of the columns' types. Raises ValueError, OverflowError."""
    return {each.name: None if (value := values[each.name]) is None else _CONVERT[each.type](value) for each in columns}


_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_SCALAR: Final = msgspec.json.Decoder(float_hook=str).decode


@dataclass(frozen=True, slots=True)
class Figures:
    """Table of rows, each given as a JSON object."""

    columns: Sequence[Column]

    def values(self, record: bytes) -> Row:
        """Return the row of a JSON object with its numbers as written."""
        fields = {name: _value(bytes(value)) for name, value in _RAW_FIELDS(record).items()}
        return {each.name: each.value(fields) for each in self.columns}


def figures_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Figures, list[bytes]]:
    """Return the table of rows, and the rows as JSON objects. A list or a mapping in a row is JSON in its column,
    and such columns are the last.

    Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("no rows: their columns are not known")
    names = dict.fromkeys(name for row in rows for name in row)
    given = {name: [row.get(name) for row in rows] for name in names}
    # sorted() keeps the order of the others.
    last = sorted(names, key=lambda name: any(isinstance(each, list | dict) for each in given[name]))
    columns = [Column(name, _type_of(given[name]), methodcaller("get", name)) for name in last]
    return Figures(columns), [msgspec.json.encode(row) for row in rows]


def _value(text: bytes) -> Any:
    return text.decode() if text[:1] in (b"[", b"{") else _SCALAR(text)


def _type_of(values: Sequence[Any]) -> Type:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return Type.FLAG
    if kinds == {int}:
        return Type.COUNT
    return Type.NUMBER if kinds and kinds <= {int, float} else Type.TEXT
