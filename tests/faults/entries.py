"""A ledger of many entries: committed, published, lost, and rebuilt from the topics.

For the long runs and the benchmarks with 10^5 entries, for CI with fewer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from redis.asyncio import Redis

from hatcast.agents.kafka.client import aiokafka_options, confluent_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.release.messages import BUDGET_PARTITION, budget_message, release_message
from hatcast.stream.estimators import Estimate
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import Release
from tests.integration.harness import Pipeline
from tests.integration.recovering import recovery_with
from tests.services.kafka_records import Record, produce

FIRST: Final = date(2022, 1, 2)
BATCH: Final = 500  # as the releaser commits them
RELEASED_AT_MS: Final = 1_641_200_000_000
_SLOTS: Final = 24
_CELL: Final = 0x87608B0D2FFFFFF


@dataclass(frozen=True)
class Spent:
    """Seconds on the wall, and of this process's CPU."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Rebuilt:
    """Until the ledger was recovered with all its entries.

    lost    after FLUSHALL: all are put back
    known   after a restart: none is missing
    read    a plain loop over the same topics, which keeps nothing
    """

    entries: int
    lost: Spent
    known: Spent
    read: Spent


class Entries:
    """`number` released HATs of a pipeline's policy, `per_day` on each date, with noise of several scales."""

    def __init__(self, pipeline: Pipeline, number: int, per_day: int) -> None:
        self.settings = pipeline.settings
        self._calendar = Calendar(self.settings.policy)
        self._number = number
        self._per_day = per_day

    @property
    def dates(self) -> list[str]:
        """The local dates, oldest first."""
        return [(FIRST + timedelta(days)).isoformat() for days in range(-(-self._number // self._per_day))]

    def of(self, day: str) -> Iterator[Release]:
        """The HATs of a date, slot after slot."""
        before = self.dates.index(day) * self._per_day
        for number in range(min(self._per_day, self._number - before)):
            slot = self._calendar.slot_named(day, f"{number % _SLOTS:02}:00")
            assert slot is not None
            start, end = self._calendar.local(slot.start_ms), self._calendar.local(slot.end_ms)
            estimate = Estimate.of_laplace(Noisy(20_000 + number % 9_973, 100.0 + number % 500), 65_000)
            cell = f"{_CELL + (number // _SLOTS << 21):015x}"
            yield Release(self.settings.policy, slot, cell, start, end, Status.RELEASED, estimate)

    def proposals(self, day: str) -> list[Proposal]:
        """The same, as the ledger takes them."""
        return [
            Proposal(
                release.release_id,
                release.date,
                release.place,
                release.charge,
                release.record(RELEASED_AT_MS),
                release.exhausted().record(RELEASED_AT_MS),
                release.fineness,
                release_partition=by_murmur2(release.release_id.encode(), self.settings.kafka.partitions),
            )
            for release in self.of(day)
        ]

    async def commit(self, ledger: LedgerStore, guard: CommitGuard) -> float:
        """Commit and mark all; returns seconds of the commits alone."""
        seconds = 0.0
        for day in self.dates:
            proposals = self.proposals(day)
            for at in range(0, len(proposals), BATCH):
                begun = time.monotonic()
                await ledger.commit(proposals[at : at + BATCH], guard)
                seconds += time.monotonic() - begun
            await ledger.mark_published(day, [proposal.release_id for proposal in proposals])
        return seconds

    async def publish(self, redis: Redis, ledger: LedgerStore) -> None:
        """Put what the ledger holds on the output topics, as workers do."""
        topics, keys = self.settings.topics, DomainKeys(self.settings.topics.telemetry)
        partitions, budgets = self.settings.kafka.partitions, []
        for day in self.dates:
            records: Any = await redis.hgetall(keys.row(rows.releases(day, self.settings.policy.name)))
            messages = (
                release_message(self.settings, name.decode(), value, partitions) for name, value in records.items()
            )
            sent = (Record(each.value, each.key, each.partition, headers=tuple(each.headers)) for each in messages)
            produce(self.settings.kafka.bootstrap_servers, topics.means, sent)
            message = budget_message(topics, self.settings.policy, day, await ledger.summary(day))
            budgets.append(Record(message.value, message.key, BUDGET_PARTITION, headers=tuple(message.headers)))
        produce(self.settings.kafka.bootstrap_servers, topics.budget, budgets)


@asynccontextmanager
async def recovering(pipeline: Pipeline, redis: Redis) -> AsyncIterator[LedgerRecovery]:
    """The recovery of a worker that owns all release partitions; nothing is recovered yet."""
    settings = pipeline.settings
    producers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, aiokafka_options(settings))
    try:
        yield recovery_with(settings, redis, producers, partitions=settings.kafka.partitions)
    finally:
        await producers.stop()


async def recover(recovery: LedgerRecovery, partitions: int) -> CommitGuard:
    """Recover the ledger; returns what commits to every release partition compare."""
    everything = frozenset(range(partitions))
    await recovery.producers.start_missing(everything)
    assert await recovery.ensure(everything)
    return recovery.guard


async def recovered_after(pipeline: Pipeline, redis: Redis) -> Spent:
    """Recover the ledger, until commits are safe."""
    async with recovering(pipeline, redis) as recovery:
        since = _now()
        await recover(recovery, pipeline.settings.kafka.partitions)
        return _since(since)


def _now() -> Spent:
    return Spent(time.monotonic(), time.process_time())


def _since(begun: Spent) -> Spent:
    now = _now()
    return Spent(now.wall_s - begun.wall_s, now.cpu_s - begun.cpu_s)


def read_plainly(pipeline: Pipeline) -> Spent:
    """A loop over the output topics that looks at nothing."""
    topics = pipeline.settings.topics
    options = {"group.id": "plain", "enable.partition.eof": True, "isolation.level": "read_uncommitted"}
    with closing(Consumer(confluent_options(pipeline.settings) | options)) as consumer:
        since = _now()
        left = {(topics.means, each) for each in range(pipeline.settings.kafka.partitions)} | {(topics.budget, 0)}
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(left)])
        while left:
            for message in consumer.consume(2_000, 0.1):
                if message.error() is not None:
                    left.discard((message.topic() or "", message.partition() or 0))
        return _since(since)


async def books(redis: Redis, domain: str) -> Mapping[str, Any]:
    """All that the ledger of a domain holds."""
    prefix, held = DomainKeys(domain).prefix, {}
    for kind in ("releases", "published", "ledger", "costs", "levels", "total", "last", "unsealed"):
        async for key in redis.scan_iter(f"{prefix}{kind}*", count=1000):
            is_set = await redis.type(key) == b"set"
            held[key.decode()] = await (redis.smembers(key) if is_set else redis.hgetall(key))
    return held


def rebuilt(pipeline: Pipeline, number: int = 100_000, per_day: int = 10_000) -> Rebuilt:
    """Commit and publish so many entries, lose Redis, and have it recovered: it has to hold what it held.

    Raises AssertionError if one byte, mark or charge differs.
    """
    ensure_topics(pipeline.settings)
    return asyncio.run(_rebuilt(pipeline, Entries(pipeline, number, per_day), number))


async def _rebuilt(pipeline: Pipeline, entries: Entries, number: int) -> Rebuilt:
    domain = pipeline.settings.topics.telemetry
    async with Redis.from_url(pipeline.settings.redis.url) as redis:
        ledger = LedgerStore(redis, domain, pipeline.settings.policy)
        async with recovering(pipeline, redis) as recovery:
            await entries.commit(ledger, await recover(recovery, pipeline.settings.kafka.partitions))
        await entries.publish(redis, ledger)
        before, days = await books(redis, domain), [await ledger.summary(day) for day in entries.dates]
        assert _released(days) == number

        pipeline.redis_server.delete(f"{{{domain}}}*")
        lost = await recovered_after(pipeline, redis)
        assert await books(redis, domain) == before, "the ledger is not what it was"
        assert [await ledger.summary(day) for day in entries.dates] == days

        await redis.hset(DomainKeys(domain).row(rows.RECOVERY), "run_id", "of another life")
        known = await recovered_after(pipeline, redis)
        assert await books(redis, domain) == before, "the ledger is not what it was"
        return Rebuilt(number, lost, known, read_plainly(pipeline))


def _released(days: list[DaySummary]) -> int:
    return sum(day.releases for day in days)
