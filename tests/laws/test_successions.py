"""Law of successions: no day has releases of two policies that follow each other, whatever is lost and whoever asks."""

import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger.adoption import Position, Published
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.recovery import RecoveryCheck
from hatcast.stream.ledger.rejections import Replaced, Unclaimed
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import BUDGET
from hatcast.stream.release.budget_records import budget_record
from hatcast.stream.release.published import published_of
from tests.integration.recovering import OUTPUT, adopt, guard_of_all, restore
from tests.laws.test_ledgers import Charged
from tests.replayed import policy_of
from tests.services import RedisServer
from tests.support import examples

DATES = ("2022-01-02", "2022-01-03")
FROM = DATES[1]
NOW = 1_700_000_000_000
OLD = policy_of(name="old")
NEW = policy_of(name="new", replaces="old", **{"from": FROM})
LATER = policy_of(name="later", replaces="old", **{"from": "2022-01-04"})
slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def proposal(policy: Policy, date: str, hour: int) -> Proposal:
    release = Charged(0, date, 0, hour, released=True, scale=1.0).release([policy])
    return Proposal(
        release.release_id,
        date,
        release.place,
        release.charge,
        release.record(NOW),
        release.exhausted().record(NOW),
        release_partition=0,
    )


def published(record: bytes) -> Published:
    return published_of(record, OLD.policy_id, lambda _: 0)


@dataclass
class World:
    """A Redis that may forget, and topics that do not."""

    redis: Redis
    domain: str
    guards: dict[str, CommitGuard] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    budgets: list[bytes] = field(default_factory=list)

    async def recover(self) -> None:
        """As `LedgerRecovery` does: what is on the topics is put back before anything is committed."""
        store = RecoveryStore(self.redis, self.domain, OLD.name)
        attempt = await store.begin()
        assert await store.store_ends(attempt, {OUTPUT: Position("", len(self.records))})
        assert not await adopt(
            store, RecoveryCheck.in_progress(attempt.token), [published(each) for each in self.records]
        )
        for budget in self.budgets:
            await restore(store, RecoveryCheck.in_progress(attempt.token), [BUDGET.decode(budget)])
        assert await store.finish(attempt, {}, {})
        for policy in (OLD, NEW, LATER):
            self.guards[policy.name] = await guard_of_all(self.redis, self.domain, policy.name)

    async def forget(self) -> None:
        keys = [key async for key in self.redis.scan_iter(f"{{{self.domain}}}*")]
        if keys:
            await self.redis.delete(*keys)
        await self.recover()

    async def release(self, policy: Policy, date: str, hour: int) -> str:
        """One release of a policy, with its budget record; what became of it."""
        store = LedgerStore(self.redis, self.domain, policy)
        try:
            (committed,) = await store.commit([proposal(policy, date, hour)], self.guards[policy.name])
        except (Replaced, Unclaimed) as refused:
            self.guards[policy.name] = await guard_of_all(self.redis, self.domain, policy.name)
            return type(refused).__name__
        self.records.append(committed.record)
        self.budgets.append(budget_record(policy, date, await store.summary(date)))
        return "released"

    async def follow(self, policy: Policy) -> NextPolicy | AlreadyBegun:
        """A worker of a successor starts: it claims, and announces what it has."""
        ours = NextPolicy(str(policy.from_date), policy.name)
        kept = await PolicyTransitionStore(self.redis, self.domain).claim(str(policy.replaces), ours)
        if kept == ours:
            summary = await LedgerStore(self.redis, self.domain, policy).summary(ours.from_date)
            self.budgets.append(budget_record(policy, ours.from_date, summary))
        return kept


hours = st.integers(9, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("old"), st.sampled_from(DATES), hours),
        st.tuples(st.just("new"), st.just(FROM), hours),
        st.just(("follow",)),
        st.just(("forget",)),
    ),
    max_size=14,
)


@slow
@given(steps=steps)
@example(steps=[("old", FROM, 9), ("old", DATES[0], 9), ("follow",), ("forget",), ("new", FROM, 9)])
@example(steps=[("old", DATES[0], 9), ("follow",), ("old", FROM, 9), ("new", FROM, 10), ("old", DATES[0], 10)])
async def test_no_day_has_releases_of_two_policies_of_which_one_follows_the_other(
    redis_server: RedisServer, steps: list[tuple[str, ...]]
) -> None:
    await _take(redis_server, steps)


async def _take(redis_server: RedisServer, steps: list[tuple[str, ...]]) -> None:
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as redis:
        world, followed, began = World(redis, domain), False, False
        await world.recover()
        for what, *arguments in steps:
            if what == "forget":
                await world.forget()
            elif what == "follow":
                kept = await world.follow(NEW)
                assert (kept == AlreadyBegun(FROM)) == (began and not followed)
                followed = followed or not isinstance(kept, AlreadyBegun)
            else:
                date, hour = str(arguments[0]), int(arguments[1])
                became = await world.release(OLD if what == "old" else NEW, date, hour)
                if what == "new":
                    assert became == ("released" if followed else "Unclaimed")
                else:
                    assert became == ("Replaced" if followed and date == FROM else "released")
                    began = began or (date == FROM and not followed)
    redis_server.delete(f"{{{domain}}}*")
    days = {(release.date, release.name) for release in map(published, world.records)}
    assert {(FROM, "old"), (FROM, "new")} - days
    assert (DATES[0], "new") not in days


async def test_a_policy_has_one_successor_and_the_first_one_stays(redis_server: RedisServer) -> None:
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as redis:
        world = World(redis, domain)
        await world.recover()
        assert await world.follow(NEW) == NextPolicy(FROM, "new")
        assert await world.follow(LATER) == NextPolicy(FROM, "new")
        await world.forget()
        assert await world.follow(LATER) == NextPolicy(FROM, "new")
        assert await world.follow(NEW) == NextPolicy(FROM, "new")
        assert await world.release(LATER, FROM, 12) == "Unclaimed"
    redis_server.delete(f"{{{domain}}}*")


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_known_of_a_policy_survives_in_what_it_has_published(
    redis_server: RedisServer, *, lost: bool
) -> None:
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as redis:
        world, store = World(redis, domain), PolicyTransitionStore(redis, domain)
        await world.recover()
        assert await store.known("old") is None
        await world.release(OLD, DATES[0], 12)
        await world.follow(NEW)
        if lost:
            await world.forget()
        old, new = await store.known("old"), await store.known("new")
        assert old is not None
        assert new is not None
        assert (old.from_date, new.from_date) == (None, FROM)
    redis_server.delete(f"{{{domain}}}*")
