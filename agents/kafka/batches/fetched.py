"""Take the records that aiokafka has fetched, in chunks.

All code that takes fetched records from aiokafka's internals is here and in unpacked.py; tests/unit/test_faust_pins.py
pins them.
"""
# ruff: noqa: SLF001 - aiokafka 0.14's public API creates one object per record (1 us each)

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import ConsumerStoppedError, NoOffsetForPartitionError, OffsetOutOfRangeError

from hatcast.agents.kafka.batches.unpacked import Chunk, Unpacker


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

    def take(self, tp: TopicPartition, position: int, max_records: int) -> Chunk | NoChunk:
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
        chunk: Chunk = unpacking._records_iterator.take(max_records)
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
