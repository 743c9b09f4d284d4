"""Records as lines of CSV, with the digits of the records: a header, then a line for each record.    [RFC 4180]

A value that a record does not have is an empty field. Lines end with a line feed.
"""

import codecs
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hatcast.agents.tables.columns import Layout, Type


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """Encoding and decimal sign of a CSV file; with a decimal comma, semicolons separate the fields."""

    encoding: str = "utf-8"
    decimal: str = "."

    def line(self, fields: Sequence[str]) -> bytes:
        """Return a line. A character that the encoding lacks becomes a question mark."""
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=";" if self.decimal == "," else ",", lineterminator="\n").writerow(fields)
        return buffer.getvalue().encode(self.encoding.removesuffix("-sig"), "replace")

    def header(self, layout: Layout) -> bytes:
        """Return the line of the columns' names; in utf-8-sig after the mark by which spreadsheets know UTF-8."""
        mark = codecs.BOM_UTF8 if self.encoding == "utf-8-sig" else b""
        return mark + self.line([each.name for each in layout.columns])

    def text(self, value: Any, kind: Type) -> str:
        """Return the text of a value."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value).replace(".", self.decimal) if kind is Type.NUMBER else str(value)


PLAIN: Final = CsvStyle()


def csv_line(layout: Layout, record: bytes, style: CsvStyle = PLAIN) -> bytes | None:
    """Return a record's line; None if the record is not of this table."""
    values = layout.values(record)
    return None if values is None else style.line([style.text(values[each.name], each.type) for each in layout.columns])


def csv_of_records(layout: Layout, records: Iterable[bytes]) -> bytes:
    """Return records as CSV; records of other tables are left out."""
    lines = (csv_line(layout, record) for record in records)
    return b"".join([PLAIN.header(layout), *(each for each in lines if each is not None)])
