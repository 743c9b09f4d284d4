"""Fetched records in chunks: unpack the record batches of a fetch response into columns, and take them.

All code that takes fetched records from aiokafka's internals is here; tests/unit/test_faust_pins.py pins them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from itertools import chain, islice
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

# Which batches count is decided as in aiokafka 0.14's ``PartitionRecords._unpack_records``, and by its own functions:
# tests/unit/test_faust_pins.py pins them, tests/unit/test_unpacked.py compares the results. That generator handles each
# record in Python; here a record costs only the C parser and two attributes.


# ruff: noqa: SLF001 - aiokafka 0.14's public API creates one object per record (1 us each)


class FetchedChunk(NamedTuple):
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

    def take(self, max_records: int) -> FetchedChunk:
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
        return FetchedChunk(
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


class NoChunk(Enum):
    """Reason why `take` returns no chunk."""

    NOT_FETCHED = "nothing was fetched"
    OFFSET_GONE = "the log does not have the offset"


class Fetched:
    """Fetched records of one aiokafka consumer. Use it in the consumer's thread only."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def _fetcher(self) -> Any:
        fetcher = self._consumer._fetcher
        if self._consumer._closed or fetcher is None or fetcher._closed:
            raise ConsumerStoppedError
        return fetcher

    def polling(self) -> AbstractContextManager[None]:
        """Mark the block as a poll: without polls aiokafka leaves the group after `max_poll_interval_ms`."""
        context: AbstractContextManager[None] = self._fetcher._subscriptions.fetch_context()
        return context

    def seek(self, tp: TopicPartition, offset: int) -> bool:
        """Fetch from ``offset`` on and discard earlier records; return False if the partition is not assigned."""
        if tp not in self._consumer.assignment():
            return False
        self._consumer.seek(tp, offset)
        self._consumer.resume(tp)
        return True

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Pause those of the partitions that are assigned."""
        self._consumer.pause(*(set(tps) & self._consumer.assignment()))

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions with fetched records, the longest waiting first."""
        return list(self._fetcher._records)

    def highwater(self, tp: TopicPartition) -> int | None:
        """Return the end of the log in the last fetch response; None before the first."""
        state = self._state(tp)
        end: int | None = None if state is None else state.highwater
        return end

    def stable(self, tp: TopicPartition) -> int | None:
        """Return the last stable offset in the last fetch response: records from there on may be in transactions."""
        state = self._state(tp)
        offset: int | None = None if state is None else state.lso
        return offset

    def answered_ms(self, tp: TopicPartition) -> int | None:
        """Return the time of the last fetch response (ms UTC, this machine's clock); None before the first."""
        state = self._state(tp)
        answered: int | None = None if state is None else state.timestamp
        return answered

    def in_group(self) -> bool:
        """Return whether the group coordinator is known and no rejoin is needed. Any thread may call it."""
        coordinator, subscription = self._consumer._coordinator, self._consumer._subscription.subscription
        if coordinator is None or subscription is None:
            return False
        return coordinator.coordinator_id is not None and not coordinator.need_rejoin(subscription)

    def member_id(self) -> str | None:
        """Return this consumer's id in the group, also while it joins; None without one. Any thread may call it."""
        coordinator = self._consumer._coordinator
        return None if coordinator is None else coordinator.member_id or None

    def take(self, tp: TopicPartition, position: int, max_records: int) -> FetchedChunk | NoChunk:
        """Take up to ``max_records`` records from ``position`` on. Never awaits, so no seek can interleave.

        Raises aiokafka's error if the broker rejected the partition or sent corrupt data.
        """
        records, state = self._fetcher._records, self._state(tp)
        result = records.get(tp)
        if result is None or state is None:
            return NoChunk.NOT_FETCHED
        if isinstance(result, FetchError):
            self._discard(tp)
            try:
                result.check_raise()
            except (OffsetOutOfRangeError, NoOffsetForPartitionError):
                return NoChunk.OFFSET_GONE
        if state.has_valid_position and state.position != position:  # aiokafka has reset the position
            self._discard(tp)
            return NoChunk.OFFSET_GONE
        if not result.check_assignment(tp):  # fetched before a pause, a seek or a rebalance
            self._discard(tp)
            return NoChunk.NOT_FETCHED
        unpacking = result._partition_records
        if not isinstance(unpacking._records_iterator, Unpacker):
            unpacking._records_iterator = Unpacker(unpacking)
        chunk: FetchedChunk = unpacking._records_iterator.take(max_records)
        state.consumed_to(chunk.next)
        if not chunk.more:  # all unpacked: fetch the next ones
            self._discard(tp)
        return chunk

    async def wait(self, seconds: float) -> None:
        """Wait until more records are fetched, or for ``seconds``. Raises errors that end the group membership."""
        waiter = self._fetcher._create_fetch_waiter()
        try:
            await asyncio.wait([waiter], timeout=seconds)
            if waiter.done():
                waiter.result()
        finally:
            waiter.cancel()

    async def disconnect(self) -> None:
        """Close the connections at once, also with requests in flight."""
        await self._consumer._client.close()

    def _state(self, tp: TopicPartition) -> Any:
        subscription = self._fetcher._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        return None if assignment is None else assignment.state_value(tp)

    def _discard(self, tp: TopicPartition) -> None:
        fetcher = self._fetcher
        del fetcher._records[tp]
        fetcher._notify(fetcher._wait_consume_future)
