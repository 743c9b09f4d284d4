"""Work that is cancelled while Redis does not answer: nobody goes on from a state that he cannot know."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from hatcast.agents.clock import cancel_all, monotonic_s
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.monitoring.declarations import READINGS
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.partition import OwnedPartition
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.stream.fold.checkpoint import restore, take_changes, totals
from tests.integration.readings import LATER_MS, folds, traffic
from tests.replayed import policy_of
from tests.services import RedisServer

POLICY = policy_of(name="t-cancelled", lateness="48h")
PATIENCE_S = 30.0


def unforeseen(error: Exception) -> None:
    raise error


async def single(redis: Redis) -> Any:
    return await redis.get("t-cancelled:a")


async def pipelined(redis: Redis) -> Any:
    async with redis.pipeline(transaction=False) as pipe:
        pipe.get("t-cancelled:a")
        pipe.get("t-cancelled:a")
        return await pipe.execute()


async def in_a_transaction(redis: Redis) -> Any:
    async with redis.pipeline(transaction=True) as pipe:
        pipe.get("t-cancelled:a")
        pipe.get("t-cancelled:a")
        return await pipe.execute()


@pytest.mark.parametrize("ask", [single, pipelined, in_a_transaction])
async def test_a_command_that_is_cancelled_ends_so_and_its_answer_is_nobody_elses(
    ask: Callable[[Redis], Awaitable[Any]], breakable_redis: RedisServer
) -> None:
    async with Redis.from_url(breakable_redis.url, max_connections=1) as redis:
        await redis.set("t-cancelled:a", "of the other")
        breakable_redis.pause()
        task = asyncio.ensure_future(ask(redis))
        await asyncio.wait([task], timeout=0.5)  # it is sent, and nobody answers
        assert not task.done()
        task.cancel()
        breakable_redis.resume()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE_S)
        assert await redis.echo("ours") == b"ours"
        await redis.delete("t-cancelled:a")


async def test_what_swallows_a_cancellation_is_cancelled_again() -> None:
    async def swallows() -> None:
        with suppress(asyncio.CancelledError):  # as asyncio.wait_for, if an answer comes at the same moment
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(swallows())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert task.cancelled()


def test_a_checkpoint_that_is_cancelled_drops_its_memory_and_the_state_is_exact_all_the_same(
    breakable_redis: RedisServer,
) -> None:
    values = [sample.value for sample in traffic() if sample.partition == 0]
    times = [sample.time_ms for sample in traffic() if sample.partition == 0]
    half = len(values) // 2

    async def cancel_then_load() -> tuple[int, dict[str, Any]]:
        async with Redis.from_url(breakable_redis.url) as redis:
            store = PartitionStore(redis, POLICY.name, 1)
            unused: Any = None  # a consumer and a producer: no checkpoint succeeds, and no record is a dead letter
            source = Source("telemetry", "group", store, lambda _: folds(POLICY)[0], READINGS)
            ingest = Ingest(source, unused, DeadLetters(unused, "", ""), 1.0, IngestOptions(unforeseen))
            await store.open(0, 0)
            fold = folds(POLICY)[0]
            fold.apply(LATER_MS, times[:half], values[:half])
            ingest.partitions[0] = OwnedPartition(fold, 0, half, monotonic_s())
            breakable_redis.pause()
            task = asyncio.create_task(ingest.checkpoint(0))
            await asyncio.wait([task], timeout=0.5)
            assert fold.take_rows() == ([], []), "the changes were taken, and are on their way"
            task.cancel()
            breakable_redis.resume()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, PATIENCE_S)
            assert ingest.partitions == {}, "a memory that misses its changes would be written over the stored state"
            # Whoever loads it finds the state of before or of after, and goes on from there.
            offset, stored = await store.open(0, 0)
            again = folds(POLICY)[0]
            restore(again, stored)
            again.apply(LATER_MS, times[offset:], values[offset:])
            assert await store.checkpoint(0, offset, len(values), take_changes(again))
            read = folds(POLICY)[0]
            restore(read, await store.read(0))
            return offset, totals(read.slots.values())

    whole = folds(POLICY)[0]
    whole.apply(LATER_MS, times, values)
    try:
        offset, found = asyncio.run(cancel_then_load())
    finally:
        breakable_redis.resume()
        breakable_redis.delete("{t-cancelled*")
    assert offset in (0, half)
    assert found == totals(whole.slots.values())
