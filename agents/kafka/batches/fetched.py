"""Fetched records as columns: aiokafka's consumer returns them in place of the records of a fetch response.

All code that reaches into aiokafka's fetcher is here; tests/unit/test_faust_pins.py pins it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Self

from aiokafka.errors import CorruptRecordException

# Which batches count is decided as in aiokafka 0.14's ``PartitionRecords._unpack_records``, and by its own functions:
# tests/unit/test_faust_pins.py pins them, tests/unit/test_unpacked.py compares the results. That generator handles each
# record in Python; here a record costs only the C parser and two attributes.

# ruff: noqa: SLF001 - aiokafka 0.14's public API creates one object per record (1 us each)


class FetchedColumns(NamedTuple):
    """Records as columns, and the offset at which reading continues (after any markers and aborted records)."""

    # as in `RecordBatch`
    base: int
    next: int
    offsets: Sequence[int]
    timestamps: list[int]
    values: list[bytes | None]
    lost: bool  # records are missing from the log, between `base` and the first record, or `next`


class Unpacker:
    """Unpack the records that were fetched from one partition as columns. Aborted ones are left out, checksums checked.

    Every offset of a log is one of a record, a transaction marker or an aborted record, unless compaction removed it:
    such a hole ends the columns, and the next ones, which cross it, are `lost`. [docs/specification/fold.md, Deleted
    records]
    """

    def __init__(self, fetched: Any, max_records: int) -> None:
        """Args:
        fetched       an untouched `PartitionRecords` of aiokafka; its `next_fetch_offset` follows the columns
        max_records   largest number of records of one `FetchedColumns`
        """
        self._fetched = fetched
        self._max_records = max_records
        self._batches = _counting_batches(fetched)
        self._records: Iterator[Any] = iter(())
        self._hole_end: int | None = None  # of a hole that begins at `next_fetch_offset`

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FetchedColumns:
        """Return the next records: fewer than `max_records` if they are the last, or a hole follows.

        Raises CorruptRecordException.
        """
        fetched = self._fetched
        base = fetched.next_fetch_offset
        records: list[Any] = []
        lost = False
        while len(records) < self._max_records:
            if self._hole_end is not None:
                if records:
                    break
                fetched.next_fetch_offset, self._hole_end, lost = self._hole_end, None, True
            taken = list(islice(self._records, self._max_records - len(records)))
            if not taken:
                if not self._begin_batch():
                    break
                continue
            if taken[0].offset < fetched.next_fetch_offset:  # reading started inside this batch
                taken = [record for record in taken if record.offset >= fetched.next_fetch_offset]
            if taken and taken[-1].offset - fetched.next_fetch_offset >= len(taken):
                taken = self._up_to_hole(taken)
            if taken:
                fetched.next_fetch_offset = taken[-1].offset + 1
                records += taken
        if not records and fetched.next_fetch_offset <= base:
            raise StopIteration
        timestamps, values = [record.timestamp for record in records], [record.value for record in records]
        return FetchedColumns(base, fetched.next_fetch_offset, _offsets(records), timestamps, values, lost)

    def _begin_batch(self) -> bool:
        """Begin the next batch, or the next hole; return False if there is none."""
        batch = next(self._batches, None)
        if isinstance(batch, int):
            self._hole_end = batch
        elif batch is not None:
            self._records = chain(batch)  # `islice` begins an iterator anew, which a batch does not allow
        return batch is not None

    def _up_to_hole(self, records: list[Any]) -> list[Any]:
        """Return the records before the first hole; put the others back."""
        start = self._fetched.next_fetch_offset
        before = next(at for at, record in enumerate(records) if record.offset != start + at)
        self._hole_end = records[before].offset
        self._records = iter([*records[before:], *self._records])
        return records[:before]


def _counting_batches(fetched: Any) -> Iterator[Any]:
    """Yield the batches that are neither markers nor aborted, each with a valid checksum, and the ends of holes.

    Holes before or among a yielded batch's records are not yielded: its records show them.
    """
    batches = fetched._records
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException(f"Invalid CRC - {fetched._tp}")
        end = batch.base_offset
        if not (_is_aborted(fetched, batch) or batch.is_control_batch):
            yield batch
            end = batch.next_offset  # the offsets at a batch's end may have no records: compaction removes them
        if end > fetched.next_fetch_offset:
            yield end
        fetched.next_fetch_offset = batch.next_offset


def _is_aborted(fetched: Any, batch: Any) -> bool:
    """Return whether a batch belongs to an aborted transaction. Notes where such transactions begin and end."""
    producer = batch.producer_id
    if producer is None:
        return False
    fetched._consume_aborted_up_to(batch.base_offset)
    if batch.is_control_batch and fetched._contains_abort_marker(batch):
        fetched._aborted_producers.discard(producer)
    return batch.is_transactional and producer in fetched._aborted_producers


def _offsets(records: Sequence[Any]) -> Sequence[int]:
    if not records:
        return range(0)
    offsets = range(records[0].offset, records[-1].offset + 1)
    return offsets if len(offsets) == len(records) else [record.offset for record in records]


def return_columns(consumer: Any, max_records: int) -> asyncio.Event:
    """Make `getmany` of a started aiokafka consumer return `FetchedColumns`, and count those by `max_records`.

    max_records   largest number of records of one `FetchedColumns`
    Returns the event that is set whenever something was fetched, an error included.
    """
    fetcher, arrived = consumer._fetcher, asyncio.Event()
    request = fetcher._proc_fetch_request

    async def fetch(*args: Any) -> bool:
        has_new: bool = await request(*args)
        if has_new:
            for result in fetcher._records.values():  # also errors, which have no records
                records = getattr(result, "_partition_records", None)
                if records is not None and not isinstance(records._records_iterator, Unpacker):
                    records._records_iterator = Unpacker(records, max_records)
            arrived.set()
        return has_new

    fetcher._proc_fetch_request = fetch
    return arrived
