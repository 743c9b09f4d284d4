"""Records as Arrow tables."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from hatcast.agents.tables.columns import Layout, Row, Type, rows_of

_TYPES: Final[Mapping[Type, pa.DataType]] = MappingProxyType(
    {
        Type.TEXT: pa.string(),
        Type.NUMBER: pa.float64(),
        Type.COUNT: pa.int64(),
        Type.FLAG: pa.bool_(),
        Type.DATE: pa.date32(),
        Type.INSTANT: pa.timestamp("ms", tz="UTC"),
    }
)


def schema_of(layout: Layout) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([(each.name, _TYPES[each.type]) for each in layout.columns])


def table_of_rows(layout: Layout, rows: list[Row]) -> pa.Table:
    """Return rows, as of `row_of`, as an Arrow table."""
    return pa.Table.from_pylist(rows, schema=schema_of(layout))


def table_of_records(layout: Layout, records: Iterable[bytes]) -> pa.Table:
    """Return records as an Arrow table; records of other tables are left out."""
    return table_of_rows(layout, rows_of(layout, records))
