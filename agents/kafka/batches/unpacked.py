"""Unpack the record batches of a fetch response into columns.

Which batches count is decided as in aiokafka 0.14's ``PartitionRecords._unpack_records``, and by its own functions:
tests/unit/test_faust_pins.py pins them, tests/unit/test_unpacked.py compares the results. That generator handles each
record in Python; here a record costs only the C parser and two attributes.
"""
# ruff: noqa: SLF001 - aiokafka 0.14's public API creates one object per record (1 us each)

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from aiokafka.errors import CorruptRecordException


class Chunk(NamedTuple):
    """Records as columns, and the offset at which reading continues (after any markers and aborted records).

    offsets      one per record, ascending
    timestamps   ms UTC, from the log
    values       bytes, or None if null in the log
    more         whether more of the response is left to unpack
    lost         records are missing from the log, between where this chunk begins and its first record, or `next`
    """

    offsets: Sequence[int]
    timestamps: list[int]
    values: list[bytes | None]
    next: int
    more: bool
    lost: bool


class Unpacker:
    """Unpacker of the record batches fetched from one partition. It omits aborted records and checks checksums.

    Every offset of a log is one of a record, a transaction marker or an aborted record, unless compaction removed it:
    such a hole ends a chunk, and the next one, which crosses it, is `lost`. [docs/specification/fold.md, Deleted
    records]
    """

    def __init__(self, fetched: Any) -> None:
        """Args: `fetched`, an untouched `PartitionRecords` of aiokafka. Its `next_fetch_offset` follows each chunk."""
        self._fetched = fetched
        self._batches = _counting_batches(fetched)
        self._records: Iterator[Any] = iter(())
        self._hole_end: int | None = None  # of a hole that begins at `next_fetch_offset`

    def take(self, max_records: int) -> Chunk:
        """Return the next records: fewer than ``max_records`` if they are the last, or a hole follows.

        Raises CorruptRecordException.
        """
        fetched = self._fetched
        records: list[Any] = []
        more, lost = True, False
        while len(records) < max_records:
            if self._hole_end is not None:
                if records:
                    break
                fetched.next_fetch_offset, self._hole_end, lost = self._hole_end, None, True
            taken = list(islice(self._records, max_records - len(records)))
            if not taken:
                batch = next(self._batches, None)
                if batch is None:
                    more = False
                    break
                if isinstance(batch, int):
                    self._hole_end = batch
                else:
                    self._records = chain(batch)  # `islice` begins an iterator anew, which a batch does not allow
                continue
            if taken[0].offset < fetched.next_fetch_offset:  # reading started inside this batch
                taken = [record for record in taken if record.offset >= fetched.next_fetch_offset]
            if taken and taken[-1].offset - fetched.next_fetch_offset >= len(taken):
                taken = self._up_to_hole(taken)
            if taken:
                fetched.next_fetch_offset = taken[-1].offset + 1
                records += taken
        return Chunk(
            offsets=_offsets(records),
            timestamps=[record.timestamp for record in records],
            values=[record.value for record in records],
            next=fetched.next_fetch_offset,
            more=more,
            lost=lost,
        )

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
