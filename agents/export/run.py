"""Export of the new committed records of one output topic, and the folder that it goes to.

The folder has one Parquet file a table and local date, and the offsets that were read. A file holds each record of its
date once, sorted by key, so it does not depend on how often or when the export ran. Every file is replaced as a whole,
and the offsets are written after the files: a run that was killed is done again, with the same rows.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.partition_reader import (
    connection_errors,
    is_end,
    next_messages,
    open_consumer,
    value_of_domain,
)
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.tables.arrow import schema_of, table_of_rows
from hatcast.agents.tables.columns import Row, Table, row_of
from hatcast.agents.tables.records import TABLES
from hatcast.stream.errors import UNREADABLE, HatcastError

STATE: Final = "hatcast-export.json"
_PART: Final = ".part"


class ExportProgress(msgspec.Struct):
    """Position up to which a topic was read."""

    topic_id: str | None  # None if the broker is older than topic ids
    offsets: dict[int, int]  # partition -> next offset


class _State(msgspec.Struct, forbid_unknown_fields=True):
    version: int = 1
    topics: dict[str, ExportProgress] = {}


class ExportFolder:
    """Folder of an export, for one process at a time: use `open_folder`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = self._read_state()
        self._write_state()  # before the first file, by which a later run knows the folder

    def progress(self, topic: str) -> ExportProgress | None:
        """Return how far a topic was read; None if it was not."""
        return self._state.topics.get(topic)

    def merge(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows to the files of their dates. Later rows of a key are later records."""
        for day, of_day in groupby(sorted(rows, key=itemgetter("date")), key=itemgetter("date")):
            self._merge_day(table, day, list(of_day))

    def set_progress(self, topic: str, progress: ExportProgress) -> None:
        """Store how far a topic was read, after its rows were merged."""
        self._state.topics[topic] = progress
        self._write_state()

    def _write_state(self) -> None:
        _replace(self._path / STATE, msgspec.json.format(msgspec.json.encode(self._state)) + b"\n")

    def _merge_day(self, table: Table, day: date, rows: list[Row]) -> None:
        path = self._path / table.name / f"{day}.parquet"
        stored = _read(path, table, day)
        merged = {row[table.key]: row for row in stored}
        for row in rows:
            if table.keeps_last:
                merged[row[table.key]] = row
            else:
                merged.setdefault(row[table.key], row)
        path.parent.mkdir(exist_ok=True)
        sink = pa.BufferOutputStream()
        pq.write_table(table_of_rows(table, [merged[key] for key in sorted(merged)]), sink, compression="zstd")
        _replace(path, memoryview(sink.getvalue()))

    def _read_state(self) -> _State:
        path = self._path / STATE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
        except FileNotFoundError:
            if any(each.name != STATE + _PART for each in self._path.iterdir()):
                raise HatcastError(
                    f"{self._path} is not empty and has no {STATE}: name a new folder, or that of an earlier export"
                ) from None
            return _State()
        except UNREADABLE:
            state = _State(version=0)
        if state.version != 1:
            raise HatcastError(f"{path} is damaged, or of another version: export to a new folder")
        return state


@contextmanager
def open_folder(path: Path) -> Iterator[ExportFolder]:
    """Open a folder for an export, and create it if it is missing; remove the remains of a killed run.

    Raises HatcastError if it cannot be written, is of something else, or is in use by another export.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HatcastError(f"{path} cannot be used ({error.strerror}): name another folder") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise HatcastError(f"{path} is in use by another export: wait until it ends") from None
        folder = ExportFolder(path)
        for left in path.glob(f"**/*{_PART}"):
            left.unlink()
        yield folder
    except OSError as error:
        raise HatcastError(
            f"{path} cannot be written ({error.strerror or type(error).__name__}): make room, then run it again"
        ) from None
    finally:
        os.close(handle)


def _read(path: Path, table: Table, day: date) -> list[Row]:
    """Return the rows of a date's file; none if it does not exist. Raises HatcastError if it is damaged."""
    if not path.exists():
        return []
    try:
        rows: list[Row] = pq.read_table(path, schema=schema_of(table)).to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # OverflowError: beyond the year 9999
        if isinstance(error, OSError) and error.errno is not None:
            raise  # not of Arrow
        raise _damaged(path) from None
    if any(row[table.key] is None or row["date"] != day for row in rows):
        raise _damaged(path)
    return rows


def _damaged(path: Path) -> HatcastError:
    return HatcastError(f"{path} is damaged: delete the folder of the export and export again")


def _replace(path: Path, content: bytes | memoryview) -> None:
    """Write a file as a whole or not at all, also if the machine loses power."""
    part = path.with_name(path.name + _PART)
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


BATCH_RECORDS: Final = 50_000
_FILL_S: Final = 0.2


@dataclass(slots=True)
class ExportBatch:
    """Values of records in offset order within each partition, and the offsets after them."""

    values: list[bytes] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Records of a topic that were not read before."""

    topic: str
    topic_id: str | None  # None if the broker is older than topic ids
    starts: Mapping[int, int]  # partition -> first offset to read
    ends: Mapping[int, int]  # partition -> offset after the last committed record

    def batches(self, settings: Settings) -> Iterator[ExportBatch]:
        """Yield the records of this domain in batches; memory is bounded. Raises HatcastError."""
        from confluent_kafka import TopicPartition

        remaining = {partition: end for partition, end in self.ends.items() if end > self.starts[partition]}
        if not remaining:
            return
        with _connection_errors(settings, self.topic), open_consumer(settings, "export", {}) as consumer:
            consumer.assign([TopicPartition(self.topic, each, self.starts[each]) for each in remaining])
            batch = ExportBatch()
            while remaining:
                for message in next_messages(consumer, BATCH_RECORDS, _FILL_S):
                    partition, offset = message.partition(), message.offset()
                    if partition is None or partition not in remaining:
                        continue
                    if is_end(message):
                        batch.offsets[partition] = remaining.pop(partition)
                        continue
                    if offset is None or offset >= remaining[partition]:
                        batch.offsets[partition] = remaining.pop(partition)
                        continue
                    value = value_of_domain(message, settings.topics.telemetry)
                    if value is not None:
                        batch.values.append(value)
                    batch.offsets[partition] = offset + 1
                if len(batch.values) >= BATCH_RECORDS or not remaining:
                    yield batch
                    batch = ExportBatch()


def new_records(settings: Settings, topic: str, before: ExportProgress | None) -> NewRecords:
    """Return the records after an earlier export.

    Raises HatcastError if the broker is unreachable, the topic does not exist, or is another one than before.
    """
    bounds = topic_range(settings, topic)
    with _connection_errors(settings, topic):
        topic_id = asyncio.run(TopicIds(settings).read([topic]))[topic]
    ends = {partition: end for partition, (_, end) in enumerate(bounds)}
    starts = {partition: first for partition, (first, _) in enumerate(bounds)}
    if before is not None:
        behind = any(ends.get(partition, -1) < offset for partition, offset in before.offsets.items())
        if behind or (topic_id is not None and before.topic_id not in (None, topic_id)):
            raise HatcastError(
                f"{broker_name(settings)} has another topic {topic} than at the last export: it was created again, or"
                " this is another cluster; export to a new folder"
            )
        # Compaction removes only records that a later one replaces, so a start before the log start misses nothing.
        starts |= {partition: max(starts[partition], offset) for partition, offset in before.offsets.items()}
    return NewRecords(topic, topic_id, starts, ends)


@contextmanager
def _connection_errors(settings: Settings, topic: str) -> Iterator[None]:
    """Turn errors of the Kafka clients within the block into one with a fix."""
    try:
        with connection_errors():
            yield
    except KafkaError:
        raise HatcastError(
            f"{broker_name(settings)} stopped answering while {topic} was read: run the export again, it goes on where"
            " it ended"
        ) from None


class Exported(msgspec.Struct, frozen=True):
    """Result for one table."""

    table: str
    topic: str
    records: int  # records of the topic that were merged into the files
    rejected: int  # records that are not of this table, which were left out


def export(settings: Settings, folder: ExportFolder, key: str, advance: Callable[[str, int], None]) -> Exported:
    """Merge the new records of a topic into a folder's files.

    key       the topic's key in `[topics]`, as in TABLES
    advance   called with the topic and the number of offsets that were read since the last call
    Raises HatcastError; the folder then holds what was read before, and the next call goes on there.
    """
    table, topic = TABLES[key], getattr(settings.topics, key)
    new = new_records(settings, topic, folder.progress(topic))
    progress = ExportProgress(new.topic_id, dict(new.starts))
    records = rejected = 0
    for batch in new.batches(settings):
        rows = [row for value in batch.values if (row := row_of(table, value)) is not None]
        folder.merge(table, rows)
        read = sum(offset - progress.offsets[partition] for partition, offset in batch.offsets.items())
        progress.offsets.update(batch.offsets)
        folder.set_progress(topic, progress)
        records += len(rows)
        rejected += len(batch.values) - len(rows)
        advance(topic, read)
    return Exported(table.name, topic, records, rejected)
