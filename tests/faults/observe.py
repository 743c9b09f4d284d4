"""Reading what a run left, for the checker: topics, Redis, and the log folded again in one process."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

from agents.redis_clients import AnyRedis
from agents.redis_connection import connect_redis_async
from agents.settings import Settings
from agents.store.keys import DomainKeys
from agents.store.ledger import LedgerStore
from agents.store.partition import PartitionStore
from agents.topics import telemetry_range
from stream.clock import closes_at, slowest
from stream.errors import Refusal
from stream.hats import Calendar
from stream.packing import unpack
from tests.faults.check import NANO, Ledger, Log, Promise, Seen, Totals
from tests.faults.generate import PARTITIONS
from tests.integration.harness import Pipeline

T = TypeVar("T")

_SECONDS: Final = 600.0  # for a command over a million records on a busy machine


def promise_of(settings: Settings, *, exact: bool) -> Promise:
    """What the checker has to know of a policy."""
    policy = settings.policy
    return Promise(
        name=policy.name,
        epsilon=policy.epsilon_nano,
        cap=policy.max_hats_per_day,
        limit=policy.daily_limit_nano,
        grid=Fraction(policy.grid),
        exact=exact,
    )


def is_settled(settings: Settings) -> bool:
    """Everything is folded, what is over is released, what is released is published and its contributions are gone."""
    try:
        return _run(settings, lambda redis: _settled(redis, settings))
    except Refusal:
        return False


async def _settled(redis: AnyRedis, settings: Settings) -> bool:
    policy = settings.policy
    store, ledger = PartitionStore(redis, policy.name, PARTITIONS), _ledger(redis, settings)
    offsets = await store.offsets()
    if any((offset or 0) != end for offset, (_, end) in zip(offsets, telemetry_range(settings), strict=True)):
        return False
    least = slowest(await store.clocks())
    ends = (await store.open_slots()).values()
    if least is None or any(end + policy.lateness_ms <= least for end in ends):
        return False
    return not any([await ledger.unpublished(date) for date in await ledger.dates()])


def look(pipeline: Pipeline) -> Seen:
    """Everything that the checker looks at. The workers have ended, or have nothing left to do."""
    settings = pipeline.settings
    announced: dict[str, Ledger] = {}
    for received in pipeline.kafka.read(settings.topics.budget, committed=False):
        record = json.loads(received.value or b"", parse_float=Decimal)
        told = Ledger(record["releases"], int(record["epsilon_sum"] * NANO), record["seq"])
        known = announced.get(record["date"])
        if known is None or told.sequence >= known.sequence:
            announced[record["date"]] = told
    return _run(settings, lambda redis: _look(redis, settings, pipeline.published(committed=False), announced))


async def _look(
    redis: AnyRedis, settings: Settings, published: Mapping[str, list[bytes]], announced: Mapping[str, Ledger]
) -> Seen:
    name = settings.policy.name
    store, ledger = PartitionStore(redis, name, PARTITIONS), _ledger(redis, settings)
    keys = DomainKeys(settings.topics.telemetry)
    stored: dict[str, bytes] = {}
    ledgers: dict[str, Ledger] = {}
    for date in await ledger.dates():
        found: Any = await redis.hgetall(keys.releases(date))  # Any: bytes, but the types allow for text
        stored |= {release.decode(): record for release, record in found.items()}
        summary = await ledger.summary(date)
        ledgers[date] = Ledger(summary.releases, summary.epsilon_sum, summary.sequence)
    hats: dict[str, Totals] = {}
    users: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for partition in range(PARTITIONS):
        for (slot, cell), chunks in (await store.read(partition)).hats.items():
            hat = f"{cell}/{slot}"
            for row in (row for chunk in chunks for row in unpack(chunk)):
                known = hats.get(hat, (0, 0, 0, 0))
                hats[hat] = (known[0] + 1, known[1] + row.count, known[2] + row.total, max(known[3], row.maximum))
                users.setdefault((slot.partition("/")[0], row.pseudonym.hex()), []).append((hat, partition))
    outcomes = {outcome: records for outcome, records in (await store.outcomes()).items() if records}
    return Seen(published, stored, ledgers, announced, outcomes, hats, users)


def fold_again(pipeline: Pipeline, end_ms: int) -> Log:
    """`hatcast dump telemetry` through `hatcast batch --format kafka`. Every partition's clock ends at `end_ms`."""
    dump = pipeline.folder / "telemetry.jsonl"
    made = pipeline.hatcast("dump", "telemetry", "--output", dump, timeout=_SECONDS)
    assert made.code == 0, made.err
    options = ("--format", "kafka", "--contributions", "--json")
    folded = pipeline.hatcast("batch", dump, *options, timeout=_SECONDS)
    assert folded.code == 0, folded.err
    dump.unlink()
    policy = pipeline.settings.policy
    calendar = Calendar(policy)

    def is_final(hat: str) -> bool:
        slot = calendar.named(*hat.split("/")[1:])
        assert slot is not None
        return closes_at(slot, policy) <= end_ms

    hats: dict[str, Totals] = {hat: tuple(totals) for hat, totals in folded.json["hats"].items()}
    return Log(folded.json["outcomes"], hats, frozenset(filter(is_final, hats)))


def _ledger(redis: AnyRedis, settings: Settings) -> LedgerStore:
    return LedgerStore(redis, settings.topics.telemetry, settings.policy)


def _run(settings: Settings, work: Callable[[AnyRedis], Awaitable[T]]) -> T:
    async def connected() -> T:
        redis = await connect_redis_async(settings)
        try:
            return await work(redis)
        finally:
            await redis.aclose()

    return asyncio.run(connected())
