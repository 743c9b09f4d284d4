"""Shared parts of a worker: connections and stores, the topic to fold, the limits of a drain, and a loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import AIOKafkaProducer, KafkaError
from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.monitoring.declarations import Counter
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.identity import StoredKey
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.partition_fold import PartitionFold


@dataclass(frozen=True, slots=True)
class Connections:
    """Settings and connections that the parts of one worker share."""

    settings: Settings
    partitions: int  # number of telemetry partitions
    client: dict[str, Any]  # options of aiokafka
    redis: AnyRedis
    producer: AIOKafkaProducer  # sends dead letters, heartbeats, budget records, estimates and running means
    topic_ids: TopicIds | None  # reads topic ids; None: they are not compared
    store: HatStore
    ledger: LedgerStore


@dataclass(frozen=True, slots=True)
class Drain:
    """The limits of a drain."""

    # partition -> its end at the start: only heartbeat records may follow
    ends: Mapping[int, int] = field(default_factory=dict)
    incomplete_ms: int | None = None  # days that begin before this time (ms UTC) lack readings; None: none does

    def check(self, batch: RecordBatch) -> None:
        """Raise HatcastError if a reading was sent after the start: its vehicle's other readings may be elsewhere."""
        end = self.ends.get(batch.partition)
        if end is None or batch.next <= end:
            return
        if any(value for offset, value in zip(batch.offsets, batch.values, strict=True) if offset >= end):
            raise HatcastError(
                f"telemetry partition {batch.partition}: a reading arrived during the drain: stop all feeds, then drain"
                " again; nothing is lost"
            )


@dataclass(frozen=True, slots=True)
class Source:
    """A topic to fold, and its parts."""

    topic: str
    group: str  # the consumer group
    store: PartitionStore  # the state of the topic's partitions
    make_fold: Callable[[int], PartitionFold[bytes]]  # makes a partition's empty fold
    counter: Counter  # counts stored records by outcome


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options of an ingest, and the callbacks to its worker."""

    fail: Callable[[Exception], None]  # ends the worker; called with a HatcastError or an unexpected error
    accept_gap: bool = False  # continue after records were deleted unread, instead of raising
    drain: Drain | None = None  # limits of a drain; None: the worker does not drain
    user_key: StoredKey | None = None  # under which the partitions are folded
    # restores the policy and the user key in Redis; called whenever a state is loaded
    restore: Callable[[], Awaitable[None]] | None = None
    # checks that the topic is still the registered one; None if the broker has no topic ids
    confirm_topic: Callable[[], Awaitable[None]] | None = None
    # compares the rules of the dates that open in a partition, before they are stored
    open_dates: Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]] | None = None
    on_rollback: Callable[[], None] = lambda: None  # called if a stored offset is not the one that was stored last


async def repeat(
    loop: str, operation: str, step: Callable[[], Awaitable[bool | None]], pause_s: float, stopping: asyncio.Event
) -> bool:
    """Take a step every `pause_s` seconds, until it returns True or `stopping` is set; return whether it did.

    loop, operation   their names in the log of failures, after which it waits longer
    """
    failures = FailureLog(loop)
    while await pause(max(pause_s, failures.wait_s), stopping):
        try:
            with failures.attempt(operation):
                is_done = await step()
        except (RedisError, KafkaError) as error:
            failures.failed(error)
        else:
            failures.clear()
            if is_done:
                return True
    return False
