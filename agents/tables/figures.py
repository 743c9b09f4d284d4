"""Rows of results that are not records, such as those of `hatcast evaluate`: a table whose columns are their fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.agents.tables.columns import Column, Fields, Row, Type, converted, fields_of


@dataclass(frozen=True, slots=True)
class Figures:
    """Table of rows, each given as a JSON object."""

    columns: Sequence[Column]

    def values(self, record: bytes) -> Row:
        """Return a row as it stands in the JSON object, numbers as text."""
        fields = fields_of(record)
        return {each.name: each.value(fields) for each in self.columns}

    def row(self, record: bytes) -> Row:
        """Return a row, with values of the columns' types."""
        return converted(self.columns, self.values(record))


def figures_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Figures, list[bytes]]:
    """Return the table of rows, and the rows as JSON objects. A list or a mapping in a row is JSON in its column.

    Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("no rows: their columns are not known")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [Column(name, _type_of([row.get(name) for row in rows]), _getter(name)) for name in names]
    return Figures(columns), [msgspec.json.encode(row) for row in rows]


def _getter(name: str) -> Callable[[Fields], Any]:
    def value(fields: Fields) -> Any:
        found = fields.get(name)
        return msgspec.json.encode(found).decode() if isinstance(found, list | dict) else found

    return value


def _type_of(values: Sequence[Any]) -> Type:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return Type.FLAG
    if kinds == {int}:
        return Type.COUNT
    return Type.NUMBER if kinds and kinds <= {int, float} else Type.TEXT
