"""Files with published records: JSON lines, Parquet, an export's folder, a dump of a topic, or a ledger."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents import sqlite
from hatcast.agents.errors.extras import require
from hatcast.agents.kafka.dump import Head
from hatcast.agents.recordings.dump_file import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.tables.columns import RECORD
from hatcast.stream.errors import UNREADABLE, RecordingError
from hatcast.stream.readings.magic import PARQUET_MAGIC

_FIX: Final = "name a file of `hatcast tail --json`, `batch --json` or `export`, a dump, or a ledger"

_read_head: Final = msgspec.json.Decoder(Head).decode


def values_of(path: Path, table: str) -> Iterator[bytes]:
    """Yield the records in a file, also those of other kinds.

    table   the table's folder, if the path is the folder of an export
    Raises RecordingError: the file is missing, damaged, or has no records.
    """
    if path.is_dir():
        files = sorted((path / table).glob("*.parquet"))
        if not files:
            raise RecordingError(str(path), f"is a folder without {table}/*.parquet", _FIX)
        for file in files:
            yield from _of_parquet(file)
        return
    magic = _magic(path)
    if magic.startswith(PARQUET_MAGIC):
        yield from _of_parquet(path)
    elif magic == sqlite.MAGIC:
        from hatcast.agents.batch.ledger_days import ledger_records

        yield from ledger_records(path)
    else:
        yield from _of_lines(path)


def _magic(path: Path) -> bytes:
    try:
        return sqlite.read_magic(path)
    except FileNotFoundError:
        raise RecordingError(str(path), "is missing", "check the path") from None
    except OSError as error:
        raise RecordingError(str(path), f"cannot be read ({error.strerror})", "check its permissions") from None


def _of_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or gzip, or the values of a dump."""
    with open_recording([path], DUMP) as recording:
        lines = (recorded.raw for _, recorded in recording)
        first = next(lines, None)
        if first is None:
            return
        if _is_head(first):
            yield from (line.value for line in Dump(recording, str(path)) if line.value is not None)
            return
        yield first.rstrip()
        yield from (line.rstrip() for line in lines)


def _is_head(line: bytes) -> bool:
    try:
        _read_head(line)
    except UNREADABLE:
        return False
    return True


def _of_parquet(path: Path) -> Iterator[bytes]:
    require("pyarrow", str(path))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if RECORD not in file.schema_arrow.names:
                raise RecordingError(str(path), f"has no column {RECORD!r}", _FIX)
            for batch in file.iter_batches(columns=[RECORD], use_threads=False):
                yield from (record.encode() for record in batch.column(0).to_pylist() if record is not None)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        raise RecordingError(str(path), "is not a complete Parquet file", "it may be cut off: make it again") from None
