"""Formats of files of records: JSON lines, CSV, Parquet and GeoJSON, by extension."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol

from hatcast.agents.tables import csv
from hatcast.agents.tables.columns import Layout, Row
from hatcast.agents.tables.geojson import feature_of

_ROW_GROUP: Final = 10_000


class Sink(Protocol):
    """Destination of a file's bytes."""

    def write(self, data: bytes, /) -> object:
        """Write all of some bytes. Raises OSError."""


class RecordFile(Protocol):
    """An open file of records."""

    def write(self, record: bytes) -> bool:
        """Write a record; return False if it is not of this table, and nothing is written. Raises OSError."""

    def finish(self) -> None:
        """Write the end of the file. Raises OSError."""

    def abandon(self) -> None:
        """Close open resources without finishing the file."""


class _JsonLines:
    """The records, one a line, unchanged."""

    def __init__(self, file: Sink, _: Layout) -> None:
        self._file = file

    def write(self, record: bytes) -> bool:
        self._file.write(record + b"\n")
        return True

    def finish(self) -> None:
        """Do nothing: a line is complete."""

    def abandon(self) -> None:
        """Do nothing."""


class _Csv:
    def __init__(self, file: Sink, layout: Layout) -> None:
        self._file, self._layout = file, layout
        file.write(csv.header(layout))

    def write(self, record: bytes) -> bool:
        line = csv.line(self._layout, record)
        if line is not None:
            self._file.write(line)
        return line is not None

    def finish(self) -> None:
        """Do nothing: a line is complete."""

    def abandon(self) -> None:
        """Do nothing."""


class _GeoJson:
    """A FeatureCollection, a feature a line."""

    def __init__(self, file: Sink, layout: Layout) -> None:
        self._file, self._layout = file, layout
        self._before = b""
        file.write(b'{"type":"FeatureCollection","features":[\n')

    def write(self, record: bytes) -> bool:
        feature = feature_of(self._layout, record)
        if feature is not None:
            self._file.write(self._before + feature)
            self._before = b",\n"
        return feature is not None

    def finish(self) -> None:
        self._file.write(b"\n]}\n")

    def abandon(self) -> None:
        """Do nothing."""


class _Parquet:
    """Row groups of `_ROW_GROUP` records, so that memory is bounded."""

    def __init__(self, file: Sink, layout: Layout) -> None:
        import pyarrow.parquet as pq

        from hatcast.agents.tables.arrow import schema_of

        self._layout = layout
        sink: Any = file  # an open file
        self._writer = pq.ParquetWriter(sink, schema_of(layout), compression="zstd")
        self._rows: list[Row] = []

    def write(self, record: bytes) -> bool:
        row = self._layout.row(record)
        if row is not None:
            self._rows.append(row)
            if len(self._rows) >= _ROW_GROUP:
                self._flush()
        return row is not None

    def finish(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError):  # of a full disk, again
            self._writer.close()
        self._writer.is_open = False  # else it is closed once more when it is deleted

    def _flush(self) -> None:
        from hatcast.agents.tables.arrow import table_of_rows

        self._writer.write_table(table_of_rows(self._layout, self._rows))
        self._rows = []


FORMATS: Final[Mapping[str, Callable[[Sink, Layout], RecordFile]]] = MappingProxyType(
    {".jsonl": _JsonLines, ".csv": _Csv, ".parquet": _Parquet, ".geojson": _GeoJson}
)
"""By extension. GeoJSON, the last, needs a column `cell`."""
