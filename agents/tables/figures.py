"""Rows of results that are not records, such as those of `hatcast evaluate`: a table whose columns are their fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hatcast.agents.tables.columns import Column, Fields, Row, Type, converted

_DECODE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_SCALAR: Final = msgspec.json.Decoder(float_hook=str).decode


@dataclass(frozen=True, slots=True)
class Figures:
    """Table of rows, each given as a JSON object."""

    columns: Sequence[Column]

    def values(self, record: bytes) -> Row:
        """Return the row of a JSON object with its numbers as written."""
        fields = {name: _value(bytes(value)) for name, value in _DECODE(record).items()}
        return {each.name: each.value(fields) for each in self.columns}

    def row(self, record: bytes) -> Row:
        """Return a row, with values of the columns' types."""
        return converted(self.columns, self.values(record))


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
    columns = [Column(name, _type_of(given[name]), _getter(name)) for name in last]
    return Figures(columns), [msgspec.json.encode(row) for row in rows]


def _value(text: bytes) -> Any:
    return text.decode() if text[:1] in (b"[", b"{") else _SCALAR(text)


def _getter(name: str) -> Callable[[Fields], Any]:
    return lambda fields: fields.get(name)


def _type_of(values: Sequence[Any]) -> Type:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return Type.FLAG
    if kinds == {int}:
        return Type.COUNT
    return Type.NUMBER if kinds and kinds <= {int, float} else Type.TEXT
