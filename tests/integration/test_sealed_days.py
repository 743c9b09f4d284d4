"""Days that are over are sealed: nothing of them is committed any more, and Redis keeps a summary of each."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final

import pytest

from hatcast.agents.kafka.registry import Registry
from hatcast.agents.recovery.outputs import OutputBatch, OutputReader
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import OutputPartition
from hatcast.stream.ledger.rejections import DaySealed
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay, TopicStart, registry_records
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline
from tests.integration.readings import NOON_MS, Sample, Stores, open_stores, store_closed, traffic
from tests.integration.recovering import sealer_of
from tests.integration.test_release import ALL, CrashError, due_hats, releasing
from tests.services.kafka_server import PARTITIONS

FIRST: Final = date(2022, 1, 2)
DAYS: Final = 3


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


QUERY: Final = {"name": "pair", "kind": "mean_speed", "days": 2, "from": day(0), "epsilon": 0.5, "min_n": 2}


def samples(days: int = DAYS) -> list[Sample]:
    """One hour of traffic a day."""
    return [replace(each, time_ms=each.time_ms + n * DAY_MS) for n in range(days) for each in traffic(1)]


pytestmark = pytest.mark.pipeline({"policy": {"query": [QUERY]}}, topics=True)


@asynccontextmanager
async def sealing(pipeline: Pipeline, stores: Stores) -> AsyncIterator[ReleaseLoop]:
    """A release loop of a worker that owns all and seals what is over in each round."""
    async with releasing(pipeline, stores, queries=True, seals=True) as releaser:
        yield releaser


async def fold(pipeline: Pipeline, stores: Stores, days: int = DAYS) -> None:
    """What workers fold, and fold again: `days` of readings, the last of which is over."""
    await store_closed(stores, pipeline.settings.policy, samples(days), NOON_MS + days * DAY_MS)


async def release(pipeline: Pipeline, stores: Stores) -> None:
    """Rounds of one worker until nothing is left to do."""
    async with sealing(pipeline, stores) as releaser:
        for _ in range(3):
            await releaser.round(asyncio.Event())


def ledger_keys(pipeline: Pipeline) -> dict[str, int]:
    """Key of the domain -> bytes that Redis needs for it."""
    with closing(pipeline.redis_server.client()) as redis:
        prefix = DomainKeys(pipeline.name).prefix
        return {
            key.decode().removeprefix(prefix): int(redis.memory_usage(key) or 0)
            for key in redis.scan_iter(f"{prefix}*", count=1000)
        }


async def summaries(stores: Stores, days: int = DAYS) -> list[DaySummary]:
    return [await stores.ledger.summary(day(number)) for number in range(days)]


async def test_of_a_sealed_day_redis_keeps_a_summary_of_at_most_a_kilobyte_that_says_the_same(
    pipeline: Pipeline,
) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        async with sealing(pipeline, stores) as releaser:
            sealer, releaser.sealer = releaser.sealer, None
            for _ in range(3):
                await releaser.round(asyncio.Event())
            before = await summaries(stores)
            assert sealer is not None
            await sealer.seal(ALL, releaser.is_done)
        after = await summaries(stores)
    assert before == after
    assert all(each.releases for each in after[:DAYS])
    keys = ledger_keys(pipeline)
    for number in range(DAYS):
        of_day = {key: size for key, size in keys.items() if day(number) in key}
        assert {key.split(":")[0] for key in of_day} == {"ledger", "levels"}, of_day
        assert sum(of_day.values()) <= 1_000, of_day
    assert keys["sealed"]
    assert "oldest" not in keys


async def test_a_redis_that_lost_everything_is_filled_from_the_seals_and_reads_no_sealed_day(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[OutputBatch] = []
    product = OutputReader._batches

    def watched(self: OutputReader, messages: Any, positions: Any) -> Any:
        for stretch in product(self, messages, positions):
            read.append(stretch)
            yield stretch

    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await release(pipeline, stores)
        before = await summaries(stores)
        pipeline.forget()
        await fold(pipeline, stores)
        published = len(pipeline.published(committed=False))
        monkeypatch.setattr(OutputReader, "_batches", watched)
        await release(pipeline, stores)
        assert await stores.partitions.open_slots() == {}, "what was folded again is gone"
        after = await summaries(stores)
    assert after == before
    assert sum(len(stretch.records) for stretch in read) == 0
    assert len(pipeline.published(committed=False)) == published
    assert {len(set(values)) for values in pipeline.published(committed=False).values()} == {1}
    assert set(ledger_keys(pipeline)) >= {"sealed", "total", "nonces"}


async def test_nothing_of_a_sealed_day_is_committed_or_adopted_whatever_comes_back(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await release(pipeline, stores)
        before = await summaries(stores)
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            assert await releaser._recovery.ensure(ALL)
            await fold_again_under_another_name(pipeline, stores)
            (one, *_) = await due_hats(releaser)
            drawn = await releaser.hats_path.draw([one], [*(await releaser.hats_path.load([one]) or [])])
            with pytest.raises(DaySealed):
                await releaser.hats_path.commit([*drawn.values()])
            # And read from their beginning, the topics give nothing back.
            await stores.redis.delete(DomainKeys(pipeline.name).row(rows.ADOPTED))
            releaser._recovery.require_catch_up()
            assert await releaser._recovery.ensure(ALL)
        after = await summaries(stores)
    assert before == after
    assert not [key for key in ledger_keys(pipeline) if key.startswith("releases")]


async def fold_again_under_another_name(pipeline: Pipeline, stores: Stores) -> None:
    """The state of all partitions goes back, alone, as that of a node of a cluster does."""
    pipeline.redis_server.delete(f"{{{pipeline.settings.policy.name}:*")
    await fold(pipeline, stores)


@pytest.mark.parametrize("step", ["sealed in Redis", "written to the registry"])
def test_a_seal_that_a_crash_cut_short_is_finished_by_the_next_worker(step: str, pipeline: Pipeline) -> None:
    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await fold(pipeline, stores)
            async with sealing(pipeline, stores) as releaser:
                releaser.sealer = None
                for _ in range(3):
                    await releaser.round(asyncio.Event())
                sealer = sealer_of(releaser._context, stores.redis)
                owner: Any = sealer if step == "sealed in Redis" else sealer._registry
                name = {"sealed in Redis": "_sealed", "written to the registry": "write"}[step]
                wrapped = getattr(owner, name)

                async def crash(*arguments: Any) -> None:
                    if step == "written to the registry":
                        await wrapped(*arguments)
                    raise CrashError

                setattr(owner, name, crash)
            async with releasing(pipeline, stores) as releaser:
                sealer._recovery = releaser._recovery
                releaser.sealer = sealer
                with pytest.raises(CrashError):
                    for _ in range(3):
                        await releaser.round(asyncio.Event())
            await release(pipeline, stores)

    asyncio.run(run())
    sealed = f"sealed/{pipeline.settings.policy.name}"
    # Brokers end a transaction after they have answered: until then its records are not read.
    pipeline.wait(lambda: sealed in asyncio.run(Registry(pipeline.settings).read()).values, "seal in the registry")
    facts = asyncio.run(Registry(pipeline.settings).read())
    assert json.loads(facts.values[sealed])["through"] == day(DAYS - 1)
    assert {key.rpartition("/")[2] for key in facts.of_kind("day/")} == {day(number) for number in range(DAYS)}
    assert not [key for key in ledger_keys(pipeline) if key.startswith(("releases", "published", "costs"))]


async def test_a_record_that_kafka_never_committed_is_sent_before_its_day_is_sealed(pipeline: Pipeline) -> None:
    """Its transaction was aborted, Redis forgot it, and telemetry does not reach back to its HAT any more."""
    assert len(pipeline.published()) == 0
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, 1)
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            for producer in releaser._producers._producers.values():
                producer.commit_transaction = producer.abort_transaction
            await releaser.round(asyncio.Event())
        pipeline.forget()
        await store_closed(stores, pipeline.settings.policy, [], NOON_MS + DAY_MS)
        await release(pipeline, stores)
    assert len(pipeline.published()) == len(pipeline.published(committed=False)) == 3
    assert "sealed" in ledger_keys(pipeline)


def test_offsets_before_which_all_is_sealed_stay_behind_the_first_record_of_an_open_day(pipeline: Pipeline) -> None:
    async def run() -> dict[OutputPartition, int]:
        async with open_stores(pipeline) as stores:
            # The last day is open: some of its hours are released, and its records must be read again.
            policy = pipeline.settings.policy
            await store_closed(stores, policy, samples(2), NOON_MS + DAY_MS + 3 * 3_600_000)
            async with sealing(pipeline, stores) as releaser:
                await releaser.round(asyncio.Event())
                await releaser._recovery.catch_up()
            starts = await sealer_of(releaser._context, stores.redis)._seals.starts(day(1), policy.name)
            return {
                OutputPartition(topic, partition): offset
                for topic, start in starts.items()
                for partition, offset in start.offsets.items()
            }

    starts = asyncio.run(run())
    topic = pipeline.settings.topics.means
    records = pipeline.kafka.read(topic, committed=False)
    of_open = {each.partition: each.offset for each in reversed(records) if day(1) in (each.key or b"").decode()}
    assert of_open
    for partition, offset in of_open.items():
        assert starts[OutputPartition(topic, partition)] <= offset


async def test_a_ledger_of_ten_years_comes_back_from_its_summaries(pipeline: Pipeline) -> None:
    """What recovery takes is printed; nothing of the topics is read."""
    name, first = pipeline.settings.policy.name, date(2012, 1, 1)
    dates = [(first + timedelta(days=number)).isoformat() for number in range(3_650)]
    days = {each: ten_years_day(name, each) for each in dates}
    starts = {pipeline.settings.topics.means: TopicStart("", dict.fromkeys(range(PARTITIONS), 0))}
    sealed = Sealed(
        policy=name,
        through=dates[-1],
        rules=Calendar(pipeline.settings.policy).rules_of(dates[-1]),
        partitions=PARTITIONS,
        starts=starts,
    )

    await Registry(pipeline.settings).write(lambda facts: {} if facts.values else registry_records(sealed, days))
    async with open_stores(pipeline) as stores:
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            begun = time.monotonic()
            assert await releaser._recovery.ensure(ALL)
            seconds = time.monotonic() - begun
        summary, spent = await stores.ledger.summary(dates[1_000]), (await stores.ledger.total()).spent
    sys.stdout.write(f"a ledger of ten years was recovered in {seconds:.1f} s\n")
    assert (summary.releases, summary.epsilon_sum, summary.epsilon_user_day) == (10_000, 10**13, 89 * 10**9)
    assert spent == len(dates) * 89 * 10**9
    sizes = ledger_keys(pipeline)
    assert sum(size for key, size in sizes.items() if key.startswith(("ledger", "levels"))) <= 1_000 * len(dates)


def ten_years_day(name: str, day: str) -> SealedDay:
    """10,000 HATs at epsilon 1, of which a bus enters 89."""
    counts = {"commits": "10000", "releases": "10000", "epsilon": str(10**13), "cap": "89", "fineness": "10000"}
    fields = {f"{kind}:{name}" if kind != "fineness" else f"fineness:{name}:9": n for kind, n in counts.items()}
    levels = {str(10**9): "10000"}
    limit = str(105 * 10**9)
    return SealedDay(
        policy=name,
        date=day,
        cost=89 * 10**9,
        sequence=10_000,
        limit=limit,
        total_limit="",
        fields=fields,
        levels=levels,
    )
