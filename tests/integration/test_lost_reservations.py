"""Reservations and seals where the output topics were lost, and Redis is whole."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from hatcast.agents.kafka.registry import Facts, Registry
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import RecoveryState
from hatcast.stream.ledger.sealed_days import SEALED_KEY, Sealed, TopicStart
from tests.integration.answering import answering
from tests.integration.days import DAY_MS, POLICY, days
from tests.integration.harness import Pipeline
from tests.integration.readings import NOON_MS, Stores, open_stores, store_closed
from tests.integration.running_sums import TABLE, Drawn
from tests.integration.running_sums import release as release_sums
from tests.integration.test_release import ALL, DATE, releasing
from tests.integration.test_sealed_days import fold, release

BEYOND = 2  # offsets that a log has lost


async def spent_after_all_topics_were_lost(pipeline: Pipeline, stores: Stores) -> tuple[int, int]:
    """The cost of the day, before and after the next takeover."""
    before, topics = await stores.ledger.summary(DATE), pipeline.settings.topics
    pipeline.kafka.delete_topics([topics.means, topics.budget, topics.queries])
    ensure_topics(pipeline.settings)
    async with releasing(pipeline, stores) as releaser:
        await releaser._producers.start_missing(ALL)
        assert await releaser._recovery.ensure(ALL)
    return before.epsilon_user_day, (await stores.ledger.summary(DATE)).epsilon_user_day


@pytest.mark.pipeline(TABLE, topics=True)
async def test_running_sums_that_were_published_stay_charged(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await release_sums(pipeline, stores, Drawn(), 0)
        before, after = await spent_after_all_topics_were_lost(pipeline, stores)
    assert after == before > 0


@pytest.mark.pipeline({"policy": POLICY}, topics=True)
async def test_answers_that_were_published_stay_charged(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, days((0,)), NOON_MS + DAY_MS)
        async with answering(pipeline, stores) as (releaser, _):
            for _ in range(3):
                await releaser.round(asyncio.Event())
        assert pipeline.answers()
        before, after = await spent_after_all_topics_were_lost(pipeline, stores)
    assert after == before > 0


class Counted(LedgerRecovery):
    """It counts the recoveries that it finishes."""

    finished = 0

    async def _recover(self, state: RecoveryState) -> bool | None:
        found = await super()._recover(state)
        self.finished += found is None
        return found


@pytest.mark.pipeline(topics=True)
async def test_a_seal_beyond_the_end_of_a_topic_that_was_cut_off_leads_to_one_recovery(pipeline: Pipeline) -> None:
    """A seal that is taken when nothing is open stands at the end, so any loss of the tail is before it."""
    means = pipeline.settings.topics.means
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await release(pipeline, stores)
        await Registry(pipeline.settings).write(lambda facts: _moved(facts, pipeline.settings.policy.name, means))
        key: Any = DomainKeys(pipeline.name).row(rows.ADOPTED)
        positions: Any = await stores.redis.hgetall(key)  # bytes, but the types allow text
        for field, position in positions.items():
            topic_id, _, offset = position.decode().rpartition(":")
            if field.decode().startswith(means):
                await stores.redis.hset(key, field, f"{topic_id}:{int(offset) + BEYOND}")
        await fold(pipeline, stores, 4)
        before = len(pipeline.published())
        async with releasing(pipeline, stores, kind_of_recovery=Counted, seals=True) as releaser:
            for _ in range(3):
                await releaser.round(asyncio.Event())
        recovery: Any = releaser._recovery
        assert recovery.finished == 1
        assert len(pipeline.published()) > before


def _moved(facts: Facts, name: str, topic: str) -> Mapping[str, bytes]:
    """The seal of a policy, of a log that was longer."""
    sealed = msgspec.json.decode(facts.values[f"{SEALED_KEY}{name}"], type=Sealed)
    start = sealed.starts[topic]
    longer = TopicStart(start.topic_id, {each: offset + BEYOND for each, offset in start.offsets.items()})
    moved = msgspec.structs.replace(sealed, starts={**sealed.starts, topic: longer})
    return {f"{SEALED_KEY}{name}": msgspec.json.encode(moved)}
