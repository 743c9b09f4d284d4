"""Two histories of one Redis: what one committed and never sent counts for nothing once the other was published.

Each history keeps the limits by itself. Their sum does not: a storm once published 24.6 of 20 that way.
"""

import asyncio
import json
from collections import Counter
from datetime import date
from typing import Final

import pytest
from redis.asyncio import Redis

from hatcast.agents.recovery.losses import Discarded, Unsent
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.policy_state import ProgressStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Answered, Published
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import Mark
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.recovery import RecoveryCheck
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.policy.query import Period
from hatcast.stream.records import BudgetRecord, ReservedRecord
from tests.faults.test_lost_redis import close_hours, come_back, commit_and_die, copied, roll_back
from tests.integration.harness import Pipeline
from tests.integration.readings import HOUR_MS, Stores, open_stores
from tests.integration.recovering import budget_record, guard_of_all, restore
from tests.integration.test_release import ALL, DATE, abort_in_a_round, due_hats, finish, releasing, stored_records
from tests.replayed import policy_of
from tests.services import RedisServer

LIMIT: Final = 3.0  # of six HATs, at 1.0 each
FIRST, SECOND = slice(HOUR_MS), slice(HOUR_MS, None)
pytestmark = pytest.mark.pipeline({"policy": {"privacy": {"daily_limit": LIMIT}}}, topics=True)


async def fork_history(pipeline: Pipeline, stores: Stores) -> dict[bytes, bytes]:
    """The second hour is committed and not sent: the copy has that. Without it the first hour is published."""
    await close_hours(pipeline, stores, SECOND)
    await commit_and_die(pipeline, stores)
    copy = copied(pipeline)
    pipeline.forget()
    await close_hours(pipeline, stores, FIRST)
    await finish(pipeline, stores)
    return copy


def two_histories(pipeline: Pipeline) -> None:
    """A history is forked, and then the copy is back."""

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            copy = await fork_history(pipeline, stores)
            roll_back(pipeline, copy)
            await finish(pipeline, stores)

    asyncio.run(run())


async def test_what_redis_lost_after_its_commit_is_not_sent(pipeline: Pipeline) -> None:
    """All keys are set back in place between a worker's commit and its send: another may have used the budget since."""
    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores, FIRST)
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            assert await releaser._recovery.ensure(ALL)
            copy = copied(pipeline)
            records = await releaser.hats_path.records(await due_hats(releaser))
            come_back(pipeline, copy)
            with pytest.raises(Behind):
                await releaser.hats_path.send_and_mark(records or {})
        assert len(records or {}) == 3
        assert pipeline.published(committed=False) == {}
        await finish(pipeline, stores)
    assert len(pipeline.published(committed=False)) == 3


def assert_within_the_limit(pipeline: Pipeline) -> None:
    records = [json.loads(values[0]) for values in pipeline.published(committed=False).values()]
    assert Counter(record["status"] for record in records) == {"released": 3, "budget_exhausted": 3}
    assert max(Counter(record["seq"] for record in records).values()) == 1, "a number was given out twice"
    (budget,) = pipeline.budget_records().values()
    assert (budget["releases"], budget["epsilon_user_day"]) == (3, LIMIT)


def test_what_one_history_published_and_another_only_committed_stays_within_the_limit(pipeline: Pipeline) -> None:
    two_histories(pipeline)
    assert_within_the_limit(pipeline)


def test_a_recovery_that_keeps_what_was_never_sent_spends_more_than_the_limit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test before."""

    async def keep_all(*_: object) -> Discarded:
        return Discarded(0, {})

    monkeypatch.setattr(Unsent, "discard", keep_all)
    two_histories(pipeline)
    with pytest.raises(AssertionError):
        assert_within_the_limit(pipeline)


async def test_a_record_that_an_aborted_transaction_showed_is_kept_and_sent(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            await abort_in_a_round(releaser)
        shown = await stored_records(pipeline, stores)
        await stores.redis.delete(*await stores.redis.keys(f"{{{pipeline.name}}}:published:*"), "-")
        roll_back(pipeline, copied(pipeline))
        await close_hours(pipeline, stores)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert shown == kept
    assert {name.encode(): set(values) for name, values in pipeline.published(committed=False).items()} == {
        name: {value} for name, value in kept.items()
    }


async def test_a_slot_whose_records_are_discarded_is_not_committed_any_more(redis_server: RedisServer) -> None:
    """Under `add_remove` nothing of a slot is sent before all workers have committed it."""
    name = "t-unsent-progress"
    async with Redis.from_url(redis_server.url) as redis:
        try:
            guard, progress = await guard_of_all(redis, name, name), ProgressStore(redis, name, name)
            ledger, recovery = LedgerStore(redis, name, policy_of(name=name)), RecoveryStore(redis, name, name)
            record = proposal(name)
            await ledger.commit([record], CommitGuard(guard.token, {0: guard.written[0]}))
            await progress.advance(Mark.PUBLISHED, [0], 1_000, guard.token)
            await progress.advance(Mark.COMMITTED, [0, 1], 2_000, guard.token)
            await redis.hdel(DomainKeys(name).row(rows.RECOVERY), "token")
            unsent = Published(record.release_id, name, DATE, record.place, record.charge, 1, 3, b'{"seq":1}')
            await recovery.unsent.discard(await recovery.begin(), unsent)
            marks = (await progress.read()).marks
            assert marks == {
                (Mark.PUBLISHED, 0): 1_000,
                (Mark.COMMITTED, 0): 1_000,
                (Mark.COMMITTED, 1): 0,
            }
            assert (await ledger.summary(DATE)).epsilon_user_day == 0
        finally:
            await redis.delete(*await redis.keys(f"{{{name}*"))


async def test_only_what_was_told_stays_reserved(redis_server: RedisServer) -> None:
    """Of three queries one was settled and never told, and of another less was told than is reserved here."""
    domain = name = "t-unsent-reserved"
    policy = policy_of(
        name=name,
        query=[
            {"name": each, "kind": "over_speed_limit", "days": 1, "epsilon": 0.1, "speed_limit": 50.0}
            for each in ("untold", "told", "less")
        ],
    )
    async with Redis.from_url(redis_server.url) as redis:
        try:
            guard = await guard_of_all(redis, domain, name)
            ledger, recovery = LedgerStore(redis, domain, policy), RecoveryStore(redis, domain, name)
            await ledger.commit([proposal(name)], CommitGuard(guard.token, {0: guard.written[0]}))
            places = policy.most_hats
            assert {q: r.places for q, r in (await ledger.summary(DATE)).queries.items()} == dict.fromkeys(
                ("untold", "told", "less"), places
            )
            budget = told(name, {"told": places, "less": 0})
            answered = Answered(name, "told", Period(date.fromisoformat(DATE), 1), places, 10**8)
            await restore(recovery, RecoveryCheck.finished(guard.token), [budget], [answered])
            await redis.hdel(DomainKeys(domain).row(rows.RECOVERY), "token")
            attempt = await recovery.begin()
            await recovery.unsent.unreserve(attempt, [(name, DATE)])
            await recovery.unsent.unreserve(attempt, [(name, DATE)])  # as a second worker does
            summary = await ledger.summary(DATE)
            assert summary.queries == {"told": Reserved(places, 10**8), "less": Reserved(0, 10**8)}
            assert summary.epsilon_user_day == summary.total.spent == 10**9 + places * 10**8
        finally:
            await redis.delete(*await redis.keys(f"{{{name}*"))


def proposal(name: str) -> Proposal:
    """A release at 1.0."""
    parts = (b'{"seq":', b"}"), (b"{", b"}")
    return Proposal(f"{name}/{DATE}T09:00/c", DATE, "c/09:00", 10**9, *parts, fineness=3, release_partition=0)


def told(name: str, places: dict[str, int]) -> BudgetRecord:
    queries = tuple(ReservedRecord(query=query, epsilon=0.1, places=each) for query, each in places.items())
    return budget_record(name, DATE, 1, limit=105.0, max_hats_per_day=40, queries=queries)
