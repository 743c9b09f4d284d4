"""Redis loses something at the worst moment: each of these once published a second value, or could have."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.fold.checkpoint import FoldChanges
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.recovery import Attempt, Nonces, RecoveryCheck, RecoveryState
from hatcast.stream.ledger.sealed_days import Sealed
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Stores, open_stores, store_closed, traffic
from tests.integration.recovering import adopt
from tests.integration.test_release import (
    DATE,
    OVER_MS,
    CrashError,
    assert_one_value_and_one_charge,
    crash_after,
    finish,
    releasing,
    stored_records,
)
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

_UNLINK = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end"
pytestmark = pytest.mark.pipeline(topics=True)


def copied(pipeline: Pipeline) -> dict[bytes, bytes]:
    """Every key of this test."""
    with closing(pipeline.redis_server.client()) as redis:
        return {key: redis.dump(key) or b"" for key in redis.scan_iter(_all(pipeline), count=1000)}


def _all(pipeline: Pipeline) -> str:
    return f"{{{pipeline.name}*"


def come_back(pipeline: Pipeline, copy: dict[bytes, bytes], life: str | None = None) -> None:
    """What a Redis is that was left alone since: it lives on, with its recovery, or with one of another life.

    All at once: a worker that still writes finds the one or the other, and nothing between.
    """
    with closing(pipeline.redis_server.client()) as redis, redis.pipeline(transaction=True) as at_once:
        at_once.eval(_UNLINK, 0, _all(pipeline))
        for key, value in copy.items():
            at_once.restore(key, 0, value)
        if life is not None:
            at_once.hset(DomainKeys(pipeline.name).row(rows.RECOVERY), "run_id", life)
        at_once.execute()


def roll_back(pipeline: Pipeline, copy: dict[bytes, bytes]) -> None:
    """What a start from a copy of its files does: the copy was recovered in another life of the server."""
    come_back(pipeline, copy, "of another life")


def newest_number(pipeline: Pipeline) -> int:
    """Of the only day on `hats.budget`."""
    (budget,) = pipeline.budget_records().values()
    number: int = budget["seq"]
    return number


async def close_hours(pipeline: Pipeline, stores: Stores, hours: slice = slice(None)) -> None:
    """What the workers fold, and fold again."""
    samples = [sample for sample in traffic() if sample.time_ms in range(NOON_MS, OVER_MS)[hours]]
    await store_closed(stores, pipeline.settings.policy, samples, OVER_MS)


async def commit_and_die(pipeline: Pipeline, stores: Stores) -> None:
    """A worker that has committed its draws, and sends nothing."""
    with pytest.raises(CrashError):
        async with releasing(pipeline, stores) as releaser:
            crash_after(releaser.hats_path, "committed")
            await releaser.round(asyncio.Event())


async def test_a_draw_that_comes_back_with_an_older_copy_gives_way_to_the_one_that_was_sent(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores)
        await commit_and_die(pipeline, stores)
        abandoned, copy = await stored_records(pipeline, stores), copied(pipeline)
        pipeline.forget()
        await close_hours(pipeline, stores)
        await finish(pipeline, stores)
        sent = await stored_records(pipeline, stores)
        roll_back(pipeline, copy)
        await finish(pipeline, stores)
        assert (await stores.ledger.summary(DATE)).sequence == newest_number(pipeline)
        kept = await stored_records(pipeline, stores)
    assert abandoned.keys() == sent.keys()
    assert not set(abandoned.values()) & set(sent.values())
    assert kept == sent
    assert_one_value_and_one_charge(pipeline, kept, 6)


async def test_a_redis_that_was_left_and_lives_on_draws_nothing_again_that_was_sent_by_way_of_another(
    pipeline: Pipeline,
) -> None:
    first, second = slice(HOUR_MS), slice(HOUR_MS, None)

    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores, first)
        await finish(pipeline, stores)
        left = copied(pipeline)
        pipeline.forget()
        await close_hours(pipeline, stores)
        await finish(pipeline, stores)
        elsewhere = await stored_records(pipeline, stores)
        come_back(pipeline, left)
        await close_hours(pipeline, stores, second)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert kept == elsewhere
    assert_one_value_and_one_charge(pipeline, kept, 6)


class Emptied(LedgerRecovery):
    """Redis is emptied once, right before the recovery is finished: after everything was adopted."""

    empty: Callable[[], None]

    async def _recover(self, state: RecoveryState) -> bool | None:
        finish = self._store.finish

        async def too_late(attempt: Attempt, sealed: Mapping[str, Sealed], nonces: Nonces) -> bool:
            type(self).empty()
            type(self).empty = lambda: None
            return await finish(attempt, sealed, nonces)

        self._store.finish = too_late  # type: ignore[method-assign]  # the product has no switch for it
        return await super()._recover(state)


async def test_a_redis_that_is_emptied_while_it_is_recovered_is_not_recovered(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores)
        await finish(pipeline, stores)
        before = await stored_records(pipeline, stores)
        pipeline.forget()
        Emptied.empty = pipeline.forget
        async with releasing(pipeline, stores, kind_of_recovery=Emptied) as releaser:
            await releaser.round(asyncio.Event())
            assert not releaser._recovery.is_recovered
            assert await stored_records(pipeline, stores) == {}
            await close_hours(pipeline, stores)
            await releaser.round(asyncio.Event())
        after = await stored_records(pipeline, stores)
    assert before == after
    assert_one_value_and_one_charge(pipeline, after, 6)


@pytest.mark.parametrize(("here", "sent"), [(10**9, 0), (0, 10**9), (10**9, 10**9)])
async def test_a_record_that_gives_way_takes_its_charge_with_it(here: int, sent: int, pipeline: Pipeline) -> None:
    """The ledger is then the one of the record that was sent, beside another release of the same cell and slot."""

    def found(record: bytes, charge: int, policy: str = "") -> Published:
        name = policy or pipeline.settings.policy.name
        return Published(f"{name}/{DATE}T09:00/c", name, DATE, "c/09:00", charge, 7, 3, record)

    async def book(records: list[Published]) -> Any:
        async with open_stores(pipeline) as stores, releasing(pipeline, stores) as releaser:
            store = releaser._recovery._store
            check = RecoveryCheck.in_progress((await store.begin()).token)
            for record in records:
                for _ in await adopt(store, check, [record]):
                    before = records[0]
                    assert await store.record_of(record) == before.record
                    await store.supersede(check, before, record)
                    assert not await adopt(store, check, [record])
            summary = await stores.ledger.summary(DATE)
            pipeline.forget()
            return summary

    superseded = await book([found(b"here", here), found(b"sent", sent)])
    alone = await book([found(b"sent", sent)])
    assert superseded.sequence == alone.sequence, "the ledger that was told of is not a new one"
    for part in ("releases", "epsilon_sum", "epsilon_user_day", "levels"):
        assert getattr(superseded, part) == getattr(alone, part), part
    assert {n: times for n, times in superseded.fineness.items() if times} == alone.fineness


async def test_only_the_last_who_opened_a_partition_may_write_it_and_nobody_whom_redis_has_forgotten(
    pipeline: Pipeline,
) -> None:
    name = pipeline.settings.policy.name

    async with open_stores(pipeline) as stores:
        one, other = stores.partitions, PartitionStore(stores.redis, name, PARTITIONS)
        empty = FoldChanges(None, {})
        written = []
        await one.open(0, 0)
        written.append(await one.checkpoint(0, 0, 5, empty))
        await other.open(0, 0)  # at 5
        written.append(await one.checkpoint(0, 5, 9, empty))
        written.append(await other.checkpoint(0, 5, 9, empty))
        pipeline.forget()
        await one.open(0, 0)
        assert await one.checkpoint(0, 0, 9, empty)  # folded again, up to where the other stands
        written.append(await other.checkpoint(0, 9, 12, empty))
        assert written == [True, False, True, False]


def test_a_worker_writes_nothing_into_an_older_copy_with_another_user_key_that_stands_where_it_stands(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "key", {"policy": {"lateness": "48h"}}) as pipeline:
        ensure_topics(pipeline.settings)
        topic = pipeline.settings.topics.telemetry
        samples = traffic()
        first, second = [s.record() for s in samples[:36]], [s.record() for s in samples[36:]]
        kafka.produce(topic, first)
        worker = pipeline.worker()
        pipeline.wait(lambda: pipeline.folded() == 36, "the first hour", worker)
        assert worker.terminate() == 0
        copy = copied(pipeline)
        pipeline.forget()
        worker = pipeline.worker()  # makes another key, and folds the same again
        pipeline.wait(lambda: pipeline.folded() == 36, "the first hour again", worker)
        roll_back(pipeline, copy)
        kafka.produce(topic, second)
        assert worker.wait() == 1
        assert "start again" in worker.logged()
        pipeline.bury()
        worker = pipeline.worker()
        kafka.produce(topic, first)
        pipeline.wait(lambda: pipeline.folded() == 108, "both hours, and the first once more", worker)
        assert pipeline.outcomes() == {"accepted": 72, "duplicate": 36}
        assert pipeline.contributions() == pipeline.oracle()
