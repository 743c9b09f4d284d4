"""Records of an aborted transaction, sent again by the owner of their release partitions."""

import asyncio
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pytest

from hatcast.agents.kafka.producers import OutputMessage
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release import batching
from hatcast.agents.release.resending import Resender
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.rejections import Behind
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.hidden import CELLS, SLOTS, open_hidden
from tests.integration.readings import HOUR_MS, NOON_MS, open_stores, store_closed, traffic
from tests.integration.test_release import ALL, abort_in_a_round, due_hats, releasing
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

DATE = "2022-01-02"
OVER_MS = NOON_MS + 3 * HOUR_MS + 300_000  # closes 14:00


def resend(pipeline: Pipeline) -> list[int]:
    """Abort the transactions of all releases, then send their records again. Returns the transactions' messages."""
    sizes: list[int] = []

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            async with releasing(pipeline, stores) as releaser:
                await abort_in_a_round(releaser)
            assert pipeline.published() == {}
            pipeline.redis_server.delete(
                DomainKeys(pipeline.name).row(rows.published(DATE, pipeline.settings.policy.name))
            )
            async with releasing(pipeline, stores) as releaser:
                producers, recovery = releaser._producers, releaser._recovery
                await producers.start_missing(ALL)
                assert await recovery.ensure(ALL)
                publish = producers.publish

                async def counted(release_partition: int, messages: Iterable[OutputMessage]) -> None:
                    sizes.append(len(sent := list(messages)))
                    await publish(release_partition, sent)

                producers.publish = counted  # type: ignore[method-assign]
                await Resender(pipeline.settings, stores.ledger, recovery, producers, PARTITIONS).resend([DATE], ALL)
            assert await stores.ledger.count_unpublished(DATE) == 0

    asyncio.run(run())
    return sizes


def test_they_are_sent_in_transactions_no_larger_than_those_of_releases(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "resent") as pipeline:
        ensure_topics(pipeline.settings)
        monkeypatch.setattr(batching, "MAX_BATCH", 1)
        assert resend(pipeline) == [1 + 1] * 6  # a record, and the day's budget
        assert {len(values) for values in pipeline.published().values()} == {1}


@pytest.mark.pipeline(topics=True)
async def test_those_of_a_partition_that_is_owned_but_not_taken_over_wait_until_it_is(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            assert await releaser._recovery.ensure(ALL)
            assert len(await releaser.hats_path.records(await due_hats(releaser))) == 6
        async with releasing(pipeline, stores) as releaser:
            producers, recovery = releaser._producers, releaser._recovery
            resender = Resender(pipeline.settings, stores.ledger, recovery, producers, PARTITIONS)
            await producers.start_missing(ALL)
            assert await recovery.ensure()
            with pytest.raises(Behind):
                await resender.resend([DATE], ALL)
            assert pipeline.published(committed=False) == {}
            assert await recovery.ensure(ALL)
            await resender.resend([DATE], ALL)
    assert [len(values) for values in pipeline.published().values()] == [1] * 6


def test_under_add_remove_kafka_has_no_other_time_of_them_than_the_public_one(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_hidden(kafka, redis_server, tmp_path, "resent") as pipeline:
        resend(pipeline)
        received = pipeline.kafka.read(pipeline.settings.topics.means)
        assert len(received) == len(CELLS) * len(SLOTS)
        public = [datetime.fromisoformat(json.loads(each.value or b"")["released_at"]) for each in received]
        assert [each.timestamp_ms for each in received] == [round(at.timestamp() * 1000) for at in public]
        budgets = {each.timestamp_ms for each in pipeline.kafka.read(pipeline.settings.topics.budget)}
        assert budgets <= {each.timestamp_ms for each in received}
