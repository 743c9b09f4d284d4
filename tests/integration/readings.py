"""A few readings of a test's own: as records of telemetry, and as contributions that are stored without ingest."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import pytest
from redis.asyncio import Redis

from hatcast.agents.redis.identity import claim_policy
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import jsonl
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms, by_murmur2
from tests.integration.harness import Pipeline
from tests.services import Record
from tests.services.kafka_server import PARTITIONS

HOUR_MS: Final = 3_600_000
NOON_MS: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
PLACES: Final = ((21.20, 72.80), (21.25, 72.85), (21.30, 72.90), (21.35, 72.95), (21.40, 73.00))  # a cell each
LATER_MS: Final = 1_900_000_000_000


@dataclass(frozen=True)
class Sample:
    """A vehicle's speed at a place (its number in PLACES); it arrives at once."""

    vehicle: str
    time_ms: int
    place: int = 0
    speed: float = 30.0

    @property
    def value(self) -> bytes:
        latitude, longitude = PLACES[self.place]
        return msgspec.json.encode(Reading(self.vehicle, self.time_ms, latitude, longitude, self.speed))

    @property
    def partition(self) -> int:
        return by_murmur2(self.vehicle.encode(), PARTITIONS)

    def record(self, arrival_ms: int | None = None, partition: int | None = None) -> Record:
        """As a feed sends it; `partition`: of a feed that chooses a wrong one."""
        arrived = self.time_ms if arrival_ms is None else arrival_ms
        return Record(self.value, self.vehicle.encode(), self.partition if partition is None else partition, arrived)


def ticks(at_ms: int) -> list[Record]:
    """One for each partition."""
    return [Record(b"", None, partition, at_ms) for partition in range(PARTITIONS)]


def traffic(hours: int = 2, vehicles: int = 12, places: int = 3) -> list[Sample]:
    """Every vehicle once at every place in every hour from noon on, at speeds of its own."""
    return [
        Sample(f"GJ05BX{vehicle:04}", NOON_MS + hour * HOUR_MS + place * 60_000, place, 10.0 + vehicle + place)
        for hour in range(hours)
        for place in range(places)
        for vehicle in range(vehicles)
    ]


def folds(policy: Policy) -> list[Fold]:
    """Empty folds, one for each partition."""
    calendar, users = Calendar(policy), FoldUsers(Pseudonyms(bytes(KEY_BYTES)))
    return [Fold(policy, calendar, users, jsonl.decode, _home(number)) for number in range(PARTITIONS)]


def _home(number: int) -> Callable[[bytes], bool]:
    return lambda vehicle: by_murmur2(vehicle, PARTITIONS) == number


@dataclass
class Stores:
    """What a worker has of Redis."""

    redis: Redis
    partitions: PartitionStore
    ledger: LedgerStore


@asynccontextmanager
async def open_stores(pipeline: Pipeline, *, claim: bool = True) -> AsyncIterator[Stores]:
    """The stores of a pipeline's policy, which is claimed as by a worker's start, unless the test does that itself."""
    policy, domain = pipeline.settings.policy, pipeline.settings.topics.telemetry
    redis = Redis.from_url(pipeline.settings.redis.url)
    try:
        if claim:
            await claim_policy(redis, DomainKeys(domain), policy, PARTITIONS)
        ledger = LedgerStore(redis, domain, policy)
        yield Stores(redis, PartitionStore(redis, policy.name, PARTITIONS), ledger)
    finally:
        await redis.aclose()


async def store_closed(stores: Stores, policy: Policy, samples: Iterable[Sample], end_ms: int) -> None:
    """Fold and store samples, then a tick at `end_ms` in each partition: what was checkpointed is final."""
    by_partition: list[list[Sample]] = [[] for _ in range(PARTITIONS)]
    for sample in samples:
        by_partition[sample.partition].append(sample)
    for number, fold in enumerate(folds(policy)):
        mine = by_partition[number]
        base, _ = await stores.partitions.open(number, 0)
        fold.apply(LATER_MS, [sample.time_ms for sample in mine], [sample.value for sample in mine])
        assert await stores.partitions.checkpoint(number, base, base + len(mine), take_changes(fold))
        fold.apply(LATER_MS, [end_ms], [b""])
        assert await stores.partitions.checkpoint(number, base + len(mine), base + len(mine) + 1, take_changes(fold))


EXACT: Final = {"epsilon": 1e6, "acknowledge_weak_privacy": True, "daily_limit": 1e9}  # noise below the grid


def assert_exact_means(pipeline: Pipeline, samples: Iterable[Sample]) -> None:
    """Under `EXACT`: every HAT of the samples, and no other, has one distinct value, and that is its true mean."""
    hats: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        hats.setdefault((sample.time_ms // HOUR_MS, sample.place), []).append(sample.speed)
    published = pipeline.published(committed=False).values()
    assert {len(set(values)) for values in published} == {1}
    means = [msgspec.json.decode(values[0])["mean"] for values in published]
    assert sorted(means) == pytest.approx(sorted(sum(speeds) / len(speeds) for speeds in hats.values()), abs=0.002)
