"""Records as CSV, with the digits of the records: a header, then a line for each record.    [RFC 4180]

A value that a record does not have is an empty field. Lines end with a line feed.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from hatcast.agents.tables.columns import Layout


def header(layout: Layout) -> bytes:
    """Return the line of the columns' names."""
    return _line([each.name for each in layout.columns])


def line(layout: Layout, record: bytes) -> bytes | None:
    """Return a record's line; None if the record is not of this table."""
    values = layout.values(record)
    return None if values is None else _line([_text(values[each.name]) for each in layout.columns])


def csv_of_records(layout: Layout, records: Iterable[bytes]) -> bytes:
    """Return records as CSV; records of other tables are left out."""
    lines = (line(layout, record) for record in records)
    return b"".join([header(layout), *(each for each in lines if each is not None)])


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _line(fields: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode()
