"""Releases against real Kafka and Redis: one value, one charge, ledger first.

The steps are those of agents/release/path.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import OutputMessage, ProducerGone, TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.hats import DueHat
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.worker.drain import Drainer
from hatcast.agents.worker.source import Drain
from hatcast.stream.ledger.proposals import Committed, Proposal
from hatcast.stream.ledger.rejections import Unrecovered
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Stores, open_stores, store_closed, traffic
from tests.integration.recovering import recovery_of, sealer_of
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

OVER_MS = NOON_MS + 3 * HOUR_MS
ALL = frozenset(range(PARTITIONS))
DATE = "2022-01-02"


class CrashError(Exception):
    """What ends a releaser at a step."""


class CrashingProducers(TransactionalProducers):
    """Fails after everything was sent, before the transaction is committed."""

    async def publish(self, release_partition: int, messages: Iterable[OutputMessage]) -> None:
        async def crash() -> None:
            raise CrashError

        self._producers[release_partition].commit_transaction = crash
        await super().publish(release_partition, messages)


METHODS = {
    "loaded": "load",
    "drawn": "draw",
    "committed": "commit",
    "acked": "send",
    "marked": "mark",
    "deleted": "delete",
}


def crash_after(path: ReleasePath[Any, Any], step: str) -> None:
    """Let a kind of release, HATs or answers, end at a step: `sent` is the publisher's."""
    if step == "sent":
        return
    # A delete of answers deletes nothing as long as another query reads the same days.
    is_kept = step == "deleted" and path.kind.name == "query"
    owner = getattr(path.kind.delete, "__self__")._retained if is_kept else path  # noqa: B009 - bound
    end_after(owner, METHODS[step])


def end_after(owner: object, name: str) -> None:
    """Let a process end once a method has done its work."""
    wrapped = getattr(owner, name)

    async def crashing(*arguments: Any) -> None:
        await wrapped(*arguments)
        raise CrashError

    setattr(owner, name, crashing)


def before(kind: ReleasePath[Any, Any], name: str, event: Callable[..., Awaitable[None]]) -> None:
    """Let something happen before each call of a step; it gets the arguments."""
    wrapped = getattr(kind, name)

    async def later(*arguments: Any) -> Any:
        await event(*arguments)
        return await wrapped(*arguments)

    setattr(kind, name, later)


pytestmark = pytest.mark.pipeline(topics=True)


@asynccontextmanager
async def releasing(
    pipeline: Pipeline,
    stores: Stores,
    producers: type[TransactionalProducers] = TransactionalProducers,
    kind_of_recovery: type[LedgerRecovery] = LedgerRecovery,
    *,
    owned: Callable[[], frozenset[int]] = lambda: ALL,
    queries: bool = False,
    seals: bool = False,
) -> AsyncIterator[ReleaseLoop]:
    """A worker's release loop, which by default owns all release partitions.

    queries   it answers queries over days
    seals     it seals finished days in each round
    """
    settings = pipeline.settings
    made = producers(settings.topics.telemetry, settings.policy.name, aiokafka_options(settings))
    recovery = recovery_of(pipeline, stores.redis, made, kind_of_recovery)
    retained = RetainedStore(stores.redis, settings.policy.name, PARTITIONS)
    store, registry = HatStore(stores.partitions), Registry(settings)
    context = ReleaseContext(settings, store, stores.ledger, recovery, made, registry, SystemNoise())
    loop = ReleaseLoop(context, retained, owned, sealer_of(context, stores.redis) if seals else None)
    if not queries:
        loop.paths = [loop.hats_path]
    try:
        yield loop
    finally:
        await made.stop()


async def due_hats(releaser: ReleaseLoop) -> list[DueHat]:
    """Return all final HATs with contributions that are not published."""
    return await releaser._hats.due_now(ALL)


async def finish(pipeline: Pipeline, stores: Stores) -> None:
    """Another worker makes good what is left."""
    async with releasing(pipeline, stores) as releaser:
        await releaser.round(asyncio.Event())
        assert not await releaser.final_slots()


async def abort_in_a_round(releases: ReleaseLoop) -> None:
    """A round that sends everything and aborts each transaction."""
    await releases._producers.start_missing(ALL)
    assert await releases._recovery.ensure(ALL)  # which makes producers of its own: those send
    for producer in releases._producers._producers.values():
        producer.commit_transaction = producer.abort_transaction
    await releases.round(asyncio.Event())


STEPS = ["loaded", "drawn", "committed", "sent", "acked", "marked", "deleted"]


@pytest.mark.parametrize("step", STEPS)
async def test_after_a_crash_at_any_step_another_worker_leaves_one_value_and_one_charge(
    step: str, pipeline: Pipeline
) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        producers = CrashingProducers if step == "sent" else TransactionalProducers
        with pytest.raises(CrashError):
            async with releasing(pipeline, stores, producers=producers) as releaser:
                crash_after(releaser.hats_path, step)
                await releaser.round(asyncio.Event())
        after_crash = await stored_records(pipeline, stores)
        assert (len(after_crash) == 6) == (step not in ("loaded", "drawn"))
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
        assert after_crash.items() <= kept.items(), "a record that was committed has changed"
    assert_one_value_and_one_charge(pipeline, kept, 6)


async def stored_records(pipeline: Pipeline, stores: Stores) -> dict[bytes, bytes]:
    """release_id -> record, in Redis."""
    found: Any = await stores.redis.hgetall(
        f"{{{pipeline.name}}}:releases:{DATE}:{pipeline.settings.policy.name}"
    )  # Any: bytes, without decoding
    kept: dict[bytes, bytes] = found
    return kept


def assert_one_value_and_one_charge(pipeline: Pipeline, kept: dict[bytes, bytes], hats: int) -> None:
    """Also bytes of aborted transactions count: a reader of uncommitted records may have seen them."""
    published = pipeline.published(committed=False)
    assert {release_id: set(values) for release_id, values in published.items()} == {
        release_id.decode(): {record} for release_id, record in kept.items()
    }
    assert len(kept) == hats
    (budget,) = pipeline.budget_records().values()
    assert (budget["releases"], budget["epsilon_sum"]) == (hats, hats * 1.0)
    assert sorted(json.loads(record)["seq"] for record in kept.values()) == list(range(1, hats + 1))


async def test_a_redis_that_is_emptied_between_two_looks_does_not_say_that_everything_is_published(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, over_ms = pipeline.settings, NOON_MS + DAY_MS
    async with open_stores(pipeline) as stores, releasing(pipeline, stores) as releaser:
        store = releaser._context.store
        connections: Any = SimpleNamespace(  # Any: what it needs of them
            settings=settings, store=store, ledger=stores.ledger, redis=stores.redis, partitions=PARTITIONS
        )
        drainer = Drainer(Drain(dict.fromkeys(range(PARTITIONS), 0)), connections, releaser, asyncio.Event())
        open_slots = store.open_slots

        async def emptied() -> dict[str, int]:
            await stores.redis.flushdb()
            return await open_slots()

        await store_closed(stores, settings.policy, traffic(), over_ms)
        assert await releaser.published_through() is not None
        monkeypatch.setattr(store, "open_slots", emptied)
        assert await releaser.published_through() is None
        await store_closed(stores, settings.policy, traffic(), over_ms)
        assert not await releaser.is_done("2022-01-03")
        await store_closed(stores, settings.policy, traffic(), over_ms)
        assert not await drainer.is_done()


async def test_two_workers_that_release_the_same_hats_at_once_publish_one_value_of_each(pipeline: Pipeline) -> None:
    meeting = asyncio.Barrier(2)

    async def meet(_: Sequence[Proposal]) -> None:
        await asyncio.wait_for(meeting.wait(), 30)  # both have drawn

    async with open_stores(pipeline) as stores:
        await finish(pipeline, stores)  # recovers the ledger
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        async with releasing(pipeline, stores) as one, releasing(pipeline, stores) as other:
            for racer in (one, other):  # both own all partitions, as far as they know: else one would not race
                before(racer.hats_path, "commit", meet)
                await racer._producers.start_missing(ALL)
                assert await racer._recovery.ensure(ALL)
            ended = await asyncio.gather(
                one.round(asyncio.Event()), other.round(asyncio.Event()), return_exceptions=True
            )
            # Whoever was fenced by the other starts again from Redis: that is its next round.
            assert all(isinstance(each, (int, KafkaError, ProducerGone, Unrecovered)) for each in ended), ended
        with suppress(KafkaError, ProducerGone):
            await finish(pipeline, stores)
        await finish(pipeline, stores)
        assert_one_value_and_one_charge(pipeline, await stored_records(pipeline, stores), 6)


async def test_record_and_charge_are_in_redis_before_a_byte_is_on_the_topic(pipeline: Pipeline) -> None:
    looked: list[str] = []

    async with open_stores(pipeline) as stores:

        async def look(pending: Mapping[int, Sequence[tuple[DueHat, Committed]]]) -> None:
            on_topic = await asyncio.to_thread(pipeline.published, committed=False)
            for due, committed in chain.from_iterable(pending.values()):
                record = await stores.ledger.find(DATE, [due.release_id])
                assert record[0] is not None
                assert record[0].record == committed.record
                assert due.release_id not in on_topic
                looked.append(due.release_id)
            assert (await stores.ledger.summary(DATE)).epsilon_sum == 6 * 10**9

        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        async with releasing(pipeline, stores) as releaser:
            before(releaser.hats_path, "send", look)
            assert await releaser.round(asyncio.Event()) == 6
    assert sorted(looked) == sorted(pipeline.published())


async def test_hats_beyond_the_days_budget_are_published_as_exhausted_by_slot_then_cell(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    # One user's day may cost 4: of 9 HATs the first four are released, whichever 5 of them a user enters.
    privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 4.0}
    with open_pipeline(kafka, redis_server, tmp_path, "exhausted", {"policy": {"privacy": privacy}}) as pipeline:
        ensure_topics(pipeline.settings)

        async def release() -> None:
            async with open_stores(pipeline) as stores:
                samples = [each for each in traffic(3) if int(each.vehicle[-4:]) % 3 == each.place]
                await store_closed(stores, pipeline.settings.policy, samples, NOON_MS + 4 * HOUR_MS)
                await finish(pipeline, stores)

        await release()
        records = [json.loads(values[0]) for values in pipeline.published().values()]
        in_order = sorted(records, key=lambda record: (record["slot"], record["cell"]))
        assert [record["status"] for record in in_order] == ["released"] * 4 + ["budget_exhausted"] * 5
        assert [record["seq"] for record in in_order] == list(range(1, 10))
        for record in in_order[4:]:
            assert not record.keys() & {"mean", "raw", "noise", "interval95"}
        (budget,) = pipeline.budget_records().values()
        assert (budget["releases"], budget["epsilon_sum"], budget["epsilon_user_day"]) == (4, 4.0, 4.0)


async def test_too_few_users_are_suppressed_at_no_charge(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    changes = {"policy": {"privacy": {"min_users": 5}}}
    with open_pipeline(kafka, redis_server, tmp_path, "suppressed", changes) as pipeline:
        ensure_topics(pipeline.settings)
        samples = [each for each in traffic(1) if each.place == 0 or int(each.vehicle[-4:]) < 4]

        async def release() -> None:
            async with open_stores(pipeline) as stores:
                await store_closed(stores, pipeline.settings.policy, samples, OVER_MS)
                await finish(pipeline, stores)

        await release()
        statuses = sorted(json.loads(values[0])["status"] for values in pipeline.published().values())
        assert statuses == ["released", "suppressed", "suppressed"]
        (budget,) = pipeline.budget_records().values()
        assert (budget["releases"], budget["epsilon_sum"]) == (1, 1.0)


async def test_nothing_is_released_while_one_partition_has_no_clock(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        await stores.redis.hdel(f"{{{pipeline.name}:3}}:state", "clock")
        async with releasing(pipeline, stores) as releaser:
            assert await releaser.round(asyncio.Event()) == 0
    assert pipeline.published() == {}


async def test_a_clock_that_went_back_between_the_look_and_the_load_releases_nothing(pipeline: Pipeline) -> None:
    async def rewind(due: Sequence[DueHat]) -> None:
        assert due
        with closing(pipeline.redis_server.client()) as redis:
            redis.hset(f"{{{pipeline.name}:3}}:state", "clock", str(NOON_MS))

    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        async with releasing(pipeline, stores) as releaser:
            before(releaser.hats_path, "load", rewind)
            assert await releaser.round(asyncio.Event()) == 0
    assert pipeline.published() == {}
