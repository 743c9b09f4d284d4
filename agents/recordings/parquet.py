"""Parquet recordings: each row as the record that its columns name, a batch at a time.

A null is a missing field. A time with a zone becomes epoch milliseconds, one without stays text without an offset; a
float that is not finite becomes the text that stands for it. So a Parquet file and the same rows as JSON lines, or as
CSV, give equal readings. Memory: a batch of rows, and what Parquet itself needs of a row group.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Feed, Recorded, Table

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET_MAGIC: Final = b"PAR1"
_BATCH_ROWS: Final = 1 << 14
_READ_BYTES: Final = 1 << 20  # of a column at once, rather than all that a row group has of it
_MILLISECONDS: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}  # in one tick

_lines: Final = msgspec.json.Encoder(enc_hook=str).encode_lines

Rows = Iterable[Sequence[object]]


def is_parquet(file: BinaryIO) -> bool:
    """Whether the file begins as Parquet does. It is at its start afterwards."""
    magic = file.read(len(PARQUET_MAGIC))
    file.seek(0)
    return magic == PARQUET_MAGIC


def parquet_records(file: BinaryIO, path: str, feed: Feed) -> Iterator[Recorded]:
    """The rows as records of a feed, in file order.

    Raises RecordingError: the file is damaged or of another format, or the feed's records have no columns.
    """
    if feed.table is None:
        raise RecordingError(
            path, f"is Parquet, and {feed.name} has no columns", "name the format that its columns have"
        )
    return feed.records(io.BufferedReader(_Chunks(_written(file, path, feed.table)), 1 << 18), path)


def _written(file: BinaryIO, path: str, table: Table) -> Iterator[bytes]:
    """The rows as JSON lines, or as CSV with a header."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
        names = parquet.schema_arrow.names
        if table == "csv":
            yield _csv([names])
        for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
            rows = zip(*map(_values, batch.columns), strict=True)
            yield _csv(rows) if table == "csv" else _json(names, rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of what is on it
        raise RecordingError(path, "is no whole Parquet file", "it may be cut off: fetch it again") from None


def _values(column: "pa.Array") -> list[object]:
    """What a column holds, as JSON can say it."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column) if kind.tz is not None else list(column.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = column.cast(pa.float64()).to_pylist()
        return [each if each is None or isfinite(each) else str(each) for each in numbers]
    return list(column.to_pylist())


def _times(column: "pa.Array") -> list[object]:
    """Epoch milliseconds, half to even as rule 6 has it."""
    import pyarrow as pa

    ticks = column.cast(pa.int64()).to_pylist()
    factor, per = _MILLISECONDS[column.type.unit]
    return [None if each is None else _nearest(each * factor, per) for each in ticks]


def _nearest(number: int, per: int) -> int:
    whole, rest = divmod(number, per)
    return whole + (2 * rest > per or (2 * rest == per and whole % 2 == 1))


def _json(names: Sequence[str], rows: Rows) -> bytes:
    return _lines([{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows])


def _csv(rows: Rows) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_on_one_line, row) for row in rows)
    return text.getvalue().encode()


def _on_one_line(value: object) -> object:
    """A line break would end the record."""
    return value.replace("\n", " ").replace("\r", " ") if isinstance(value, str) else value


class _Chunks(io.RawIOBase):
    """Pieces of bytes as one stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]  # typeshed: any writable buffer
        while not self._held:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._held = chunk
        taken = min(len(buffer), len(self._held))
        buffer[:taken], self._held = self._held[:taken], self._held[taken:]
        return taken
