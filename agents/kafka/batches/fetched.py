"""What aiokafka has fetched, taken out in chunks.

Everything of hatcast that reaches into aiokafka is in this file; tests/unit/test_faust_pins.py hashes what it needs.
"""
# ruff: noqa: SLF001 - aiokafka 0.14 has no public way to take fetched records without an object a record (1 us each)

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import ConsumerStoppedError, NoOffsetForPartitionError, OffsetOutOfRangeError


class LogRecord(Protocol):
    """A record as aiokafka's C parser makes it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Chunk(NamedTuple):
    """Records, and the position that reading goes on at (behind markers and aborted records that follow them)."""

    records: list[LogRecord]
    next: int


class Nothing(Enum):
    """Why there is no chunk."""

    YET = "nothing was fetched"
    GONE = "the log does not have the position"


def _as_it_is(_: TopicPartition, record: LogRecord) -> LogRecord:
    """In place of aiokafka's ConsumerRecord, a dataclass of eleven fields: 1.5 us a record become 0.6."""
    return record


class Fetched:
    """The fetched side of one aiokafka consumer. Lives in the consumer's thread."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def _fetcher(self) -> Any:
        fetcher = self._consumer._fetcher
        if self._consumer._closed or fetcher is None or fetcher._closed:
            raise ConsumerStoppedError
        return fetcher

    def polling(self) -> AbstractContextManager[None]:
        """Tells aiokafka that somebody asks for records; otherwise it leaves the group after a while."""
        context: AbstractContextManager[None] = self._fetcher._subscriptions.fetch_context()
        return context

    def seek(self, tp: TopicPartition, offset: int) -> bool:
        """Fetch from ``offset`` on; False if the partition is not ours. What was fetched before is forgotten."""
        if tp not in self._consumer.assignment():
            return False
        self._consumer.seek(tp, offset)
        self._consumer.resume(tp)
        return True

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch no more of these, as far as they are ours."""
        self._consumer.pause(*(set(tps) & self._consumer.assignment()))

    def partitions(self) -> list[TopicPartition]:
        """Those of which something was fetched, the longest waiting first."""
        return list(self._fetcher._records)

    def highwater(self, tp: TopicPartition) -> int | None:
        """The end of the log at the last answer of the broker; None before the first."""
        state = self._state(tp)
        end: int | None = None if state is None else state.highwater
        return end

    def answered_ms(self, tp: TopicPartition) -> int | None:
        """When the broker last answered a fetch of it (ms UTC, this machine's clock); None before the first."""
        state = self._state(tp)
        moment: int | None = None if state is None else state.timestamp
        return moment

    def in_group(self) -> bool:
        """Whether the group's coordinator is known and nothing asks us to join again. May be read by any thread."""
        coordinator, subscription = self._consumer._coordinator, self._consumer._subscription.subscription
        if coordinator is None or subscription is None:
            return False
        return coordinator.coordinator_id is not None and not coordinator.need_rejoin(subscription)

    def take(self, tp: TopicPartition, position: int, most: int) -> Chunk | Nothing:
        """At most ``most`` records from ``position`` on. Awaits nothing, so no seek can come in between.

        Raises aiokafka's error if the broker refused the partition or sent what is broken.
        """
        records, state = self._fetcher._records, self._state(tp)
        result = records.get(tp)
        if result is None or state is None:
            return Nothing.YET
        if isinstance(result, FetchError):
            self._forget(tp)
            try:
                result.check_raise()
            except (OffsetOutOfRangeError, NoOffsetForPartitionError):
                return Nothing.GONE
        if state.has_valid_position and state.position != position:  # aiokafka went elsewhere by itself
            self._forget(tp)
            return Nothing.GONE
        if not result.check_assignment(tp):  # fetched before a pause, a seek or a rebalance
            self._forget(tp)
            return Nothing.YET
        unpacker = result._partition_records
        unpacker._consumer_record = _as_it_is
        chunk = Chunk(list(islice(unpacker._records_iterator, most)), unpacker.next_fetch_offset)
        state.consumed_to(chunk.next)
        if len(chunk.records) < most:  # all unpacked: fetch the next ones
            self._forget(tp)
        return chunk

    async def wait(self, seconds: float) -> None:
        """Return once more was fetched, or after ``seconds``; raises what makes the group impossible."""
        waiter = self._fetcher._create_fetch_waiter()
        try:
            await asyncio.wait([waiter], timeout=seconds)
            if waiter.done():
                waiter.result()
        finally:
            waiter.cancel()

    async def disconnect(self) -> None:
        """Close the connections, whatever is on its way."""
        await self._consumer._client.close()

    def _state(self, tp: TopicPartition) -> Any:
        subscription = self._fetcher._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        return None if assignment is None else assignment.state_value(tp)

    def _forget(self, tp: TopicPartition) -> None:
        fetcher = self._fetcher
        del fetcher._records[tp]
        fetcher._notify(fetcher._wait_consume_future)
