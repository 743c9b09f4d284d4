"""Parquet recordings: convert rows to records of a format, one batch of rows at a time.

A null is a missing field. A timestamp with a time zone becomes epoch milliseconds; one without becomes text without an
offset. A float that is not finite becomes its text. So a Parquet file and the same rows as JSON lines, or as CSV, give
equal readings. Memory: one batch of rows, and what Parquet itself needs for a row group.
"""

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from hatcast.agents.recordings.containers import Chunks
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Format, Recorded, Table
from hatcast.stream.units import EPOCHS, half_even

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST_BYTES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_ROWS: Final = 1 << 14
_READ_BYTES: Final = 1 << 20  # read buffer of a column; without it, a whole column of a row group is in memory
_INDEX: Final = "__index_level_"  # how pandas begins the name of a column of the order of rows

_lines: Final = msgspec.json.Encoder(enc_hook=str).encode_lines

Rows = Iterable[Sequence[object]]
Conversion = Callable[["pa.Array"], list[object]]  # converts a column to JSON types


def parquet_records(file: BinaryIO, path: str, feed: Format) -> Iterator[Recorded]:
    """Return the rows as records of a feed, in file order.

    Raises RecordingError: the file is damaged or of another format, or the feed's format has no columns.
    """
    with _readable(path):
        names, batches = _opened(file)
    return _records(names, batches, path, "Parquet", feed, _readable(path))


def parquet_names(file: BinaryIO, path: str) -> list[str]:
    """Return the names of a file's columns. Raises RecordingError."""
    with _readable(path):
        return _opened(file)[0]


def table_records(table: "pa.Table", name: str, feed: Format) -> Iterator[Recorded]:
    """Return the rows of a table in memory as records of a feed, in their order.

    name   of the table, for error messages
    Raises RecordingError: the feed's format has no columns, or not these ones.
    """
    return _records(table.column_names, table.to_batches(_BATCH_ROWS), name, "a table", feed, nullcontext())


def table_digest(table: "pa.Table") -> bytes | None:
    """Return the digest of a table's rows in any order, whatever library made it; None if it is empty."""
    return _rows_digest(table.column_names, table.to_batches(_BATCH_ROWS))


def parquet_digest(file: BinaryIO, path: str) -> bytes | None:
    """Return the digest of a file's rows: that of the same table in memory. Raises RecordingError."""
    with _readable(path):
        return _rows_digest(*_opened(file))


def _opened(file: BinaryIO) -> tuple[list[str], Iterable["pa.RecordBatch"]]:
    """Return the names of a file's columns, and its rows."""
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
    return parquet.schema_arrow.names, parquet.iter_batches(_BATCH_ROWS, use_threads=False)


def _rows_digest(names: Sequence[str], batches: Iterable["pa.RecordBatch"]) -> bytes | None:
    kept = [at for at, name in enumerate(names) if not name.startswith(_INDEX)]
    order, total, is_empty = sorted(kept, key=lambda at: names[at]), 0, True
    selected = (batch.select(order) for batch in batches)
    for rows in _encoded_rows([names[at] for at in order], selected, "json", _whatever_type):
        for row in rows.splitlines():
            total += int.from_bytes(hashlib.blake2b(row, digest_size=DIGEST_BYTES).digest(), "big")
            is_empty = False
    return None if is_empty else (total % (1 << 8 * DIGEST_BYTES)).to_bytes(DIGEST_BYTES, "big")


def _records(
    names: Sequence[str],
    batches: Iterable["pa.RecordBatch"],
    path: str,
    kind: str,
    feed: Format,
    errors: AbstractContextManager[None],
) -> Iterator[Recorded]:
    """Return rows as records of a feed.

    kind     what has the rows, for the error
    errors   entered while rows are read and converted
    """
    reader = feed if feed.rows is None else feed.rows(names, path)
    table = reader.table
    if table is None:
        raise RecordingError(
            path, f"is {kind}, and {feed.name} has no columns", "name the format that its columns have"
        )
    # Named columns have times of a format, and a timestamp is none of epoch numbers: it is passed as text.
    values = _values if feed.rows is None else _texts_of_times

    def chunks() -> Iterator[bytes]:
        with errors:
            yield from _encoded_rows(names, batches, table, values)

    return reader.records(io.BufferedReader(Chunks(chunks()), 1 << 18), path)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn an error about the contents of a Parquet file into a RecordingError."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # OverflowError: a time beyond 9999
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk, not of the file's contents
        raise RecordingError(path, "is not a complete Parquet file", "it may be cut off: fetch it again") from None


def _encoded_rows(
    names: Sequence[str], batches: Iterable["pa.RecordBatch"], table: Table, values: Conversion
) -> Iterator[bytes]:
    """Yield rows as JSON lines, or as CSV with a header."""
    if table == "csv":
        yield _csv([names])
    for batch in batches:
        rows = zip(*map(values, batch.columns), strict=True)
        yield _csv(rows) if table == "csv" else _json(names, rows)


def _values(column: "pa.Array") -> list[object]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(_times(column)) if kind.tz is not None else list(column.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = column.cast(pa.float64()).to_pylist()
        return [each if each is None or isfinite(each) else str(each) for each in numbers]
    return list(column.to_pylist())


def _whatever_type(column: "pa.Array") -> list[object]:
    """Return a column's values, the same for each unit of time and type of number: libraries convert them."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return list(_times(column))
    return [int(each) if isinstance(each, float) and each.is_integer() else each for each in _values(column)]


def _texts_of_times(column: "pa.Array") -> list[object]:
    """Return a column's values as JSON types, and timestamps with a time zone as ISO 8601 text."""
    import pyarrow as pa

    if not (pa.types.is_timestamp(column.type) and column.type.tz is not None):
        return _values(column)
    return [_iso_text(each) for each in _times(column)]


def _iso_text(time_ms: int | None) -> str | None:
    """Format ms UTC; None outside the years 1 to 9999."""
    try:
        return None if time_ms is None else (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()
    except OverflowError:
        return None


def _times(column: "pa.Array") -> list[int | None]:
    """Return epoch milliseconds, rounded half to even.    [docs/specification/fold.md, rule 6]"""
    import pyarrow as pa

    factor, divisor = EPOCHS[column.type.unit]
    numbers = column.cast(pa.int64()).to_pylist()
    return [None if each is None else half_even(each * factor, divisor) for each in numbers]


def _json(names: Sequence[str], rows: Rows) -> bytes:
    return _lines([{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows])


def _csv(rows: Rows) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        # A line break would end the record.
        [each.replace("\n", " ").replace("\r", " ") if isinstance(each, str) else each for each in row]
        for row in rows
    )
    return text.getvalue().encode()
