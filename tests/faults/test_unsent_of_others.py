"""What a recovery discards of other policies, of sealed days, and of records that it cannot read."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from redis.asyncio import Redis

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.losses import Unsent
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal
from hatcast.stream.ledger.recovery import Attempt, RecoveryCheck
from hatcast.stream.ledger.sealed_days import Sealed
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.policy.policy import Policy
from tests.faults.test_unsent import told
from tests.integration.recovering import adopt, finish, guard_of, guard_of_all, restore
from tests.replayed import policy_of
from tests.services import RedisServer

BEFORE, DATE = "2022-01-01", "2022-01-02"
NANO: Final = 10**9


def parts(record: Mapping[str, object]) -> tuple[bytes, bytes]:
    """A record before and after its number."""
    return json.dumps(record)[:-1].encode() + b', "seq": ', b"}"


def release(name: str, status: str = "released") -> Proposal:
    record = {
        "release_id": f"{name}/{DATE}T09:00/c",
        "policy_id": "b2:",
        "status": status,
        "cell": "c",
        "date": DATE,
        "slot": "09:00",
        "start": f"{DATE}T09:00:00+00:00",
        "end": f"{DATE}T10:00:00+00:00",
        "epsilon": 1.0,
        "relation": "replace",
    }
    exhausted = parts(record | {"status": "budget_exhausted"})
    return Proposal(f"{name}/{DATE}T09:00/c", DATE, "c/09:00", NANO, parts(record), exhausted, release_partition=0)


def answer(policy: Policy) -> AnswerProposal:
    """An answer over two days."""
    name, places = policy.name, policy.most_hats
    record = {
        "release_id": f"{name}/q/{DATE}T09:00/c",
        "policy_id": "b2:",
        "status": "released",
        "cell": "c",
        "date": DATE,
        "slot": "09:00",
        "start": f"{DATE}T09:00:00+00:00",
        "end": f"{DATE}T10:00:00+00:00",
        "epsilon": 0.1,
        "relation": "replace",
        "query": "q",
        "first_date": BEFORE,
        "last_date": DATE,
        "most_hats": places,
    }
    exhausted = parts(record | {"status": "budget_exhausted"})
    reserved = Reserved(places, NANO // 10)
    return AnswerProposal(f"{name}/q/{DATE}T09:00/c", DATE, [BEFORE, DATE], "q", reserved, parts(record), exhausted, 0)


def domain(*policies: Policy, **more: Any) -> Domain:
    return Domain(frozenset(), frozenset(), partitions={policy.name: 1 for policy in policies}, **more)


async def began(redis: Redis, name: str, policy: Policy) -> tuple[RecoveryStore, Attempt]:
    """A recovery by a worker of a policy."""
    store = RecoveryStore(redis, name, policy.name)
    await redis.hdel(DomainKeys(name).row(rows.RECOVERY), "token")
    return store, await store.begin()


def run(server: RedisServer, body: Callable[[Redis, str], Awaitable[None]]) -> None:
    async def with_keys() -> None:
        name = f"t-others-{uuid.uuid4().hex[:8]}"
        async with Redis.from_url(server.url) as redis:
            try:
                await body(redis, name)
            finally:
                await redis.delete(*await redis.keys(f"{{{name}*"))

    asyncio.run(with_keys())


def test_the_last_records_of_a_replaced_policy_are_discarded_too(redis_server: RedisServer) -> None:
    async def body(redis: Redis, name: str) -> None:
        old, new = policy_of(name=name), policy_of(name=f"{name}2")
        await LedgerStore(redis, name, old).commit([release(name)], await guard_of_all(redis, name, name))
        store, attempt = await began(redis, name, new)
        ended = domain(
            old,
            new,
            ended=frozenset({name}),
            sealed={name: Sealed(policy=name, through=BEFORE, rules="", partitions=1, starts={})},
            next_policies={name: NextPolicy(DATE, new.name)},
        )
        assert (await Unsent(new, store.unsent).discard(ended, attempt)).number == 1
        summary = await LedgerStore(redis, name, new).summary(DATE)
        assert (summary.epsilon_user_day, summary.total.spent) == (0, 0)

    run(redis_server, body)


def test_a_record_that_cannot_be_read_keeps_its_charge_and_stops_no_recovery(redis_server: RedisServer) -> None:
    async def body(redis: Redis, name: str) -> None:
        policy = policy_of(name=name)
        ledger = LedgerStore(redis, name, policy)
        await ledger.commit([release(name, "of a newer version")], await guard_of_all(redis, name, name))
        store, attempt = await began(redis, name, policy)
        assert (await Unsent(policy, store.unsent).discard(domain(policy), attempt)).number == 0
        await finish(store, attempt)
        assert (await ledger.summary(DATE)).epsilon_user_day == NANO

    run(redis_server, body)


def test_a_record_that_this_worker_cannot_read_is_kept_where_a_topic_was_lost(redis_server: RedisServer) -> None:
    """Else another worker, which can, would discard it in the next recovery, where nothing shows the loss any more."""

    async def body(redis: Redis, name: str) -> None:
        policy = policy_of(name=name)
        ledger = LedgerStore(redis, name, policy)
        await ledger.commit([release(name, "of a newer version")], await guard_of_all(redis, name, name))
        store, attempt = await began(redis, name, policy)
        assert (await Unsent(policy, store.unsent).keep(domain(policy), attempt)).is_kept
        assert await store.unsent.ids(name, DATE) == []

    run(redis_server, body)


def test_a_discarded_record_changes_the_number_of_its_day(redis_server: RedisServer) -> None:
    """hats.budget may have published the ledger with its charge: consumers keep the greatest number."""

    async def body(redis: Redis, name: str) -> None:
        policy = policy_of(name=name)
        ledger = LedgerStore(redis, name, policy)
        await ledger.commit([release(name)], await guard_of_all(redis, name, name))
        before = await ledger.summary(DATE)
        store, attempt = await began(redis, name, policy)
        assert (await Unsent(policy, store.unsent).discard(domain(policy), attempt)).number == 1
        after = await ledger.summary(DATE)
        assert (before.releases, after.releases) == (1, 0)
        assert after.sequence > before.sequence

    run(redis_server, body)


def test_what_an_unsent_answer_reserved_on_a_sealed_day_is_taken_back(redis_server: RedisServer) -> None:
    """Another policy spent the total meanwhile: with the reservation the answer would be released beyond it."""

    async def body(redis: Redis, name: str) -> None:
        query = {
            "name": "q",
            "kind": "over_speed_limit",
            "days": 2,
            "from": BEFORE,
            "epsilon": 0.1,
            "speed_limit": 50.0,
        }
        privacy = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 100.0, "unit": "user", "total_limit": 10.0}
        policy = policy_of(name=name, query=[query], privacy=privacy)
        other = policy_of(name=f"{name}2", privacy=privacy)
        ledger, places = LedgerStore(redis, name, policy), policy.most_hats
        guard = await guard_of_all(redis, name, name)
        await ledger.commit([release(name)], guard)
        await ledger.mark_published(DATE, [release(name).release_id])
        store = RecoveryStore(redis, name, name)
        await restore(store, RecoveryCheck.finished(guard.token), [told(name, {"q": places})])
        await redis.hset(DomainKeys(name).row(rows.SEALED), name, BEFORE)
        await ledger.commit([answer(policy)], guard)  # reserves on the sealed day, and is never sent
        reserved = places * NANO // 10
        room = (10 * NANO - reserved - NANO) // NANO
        store, attempt = await began(redis, name, policy)
        of_other = [
            Published(f"{other.name}/{DATE}T09:00/{n}", other.name, DATE, f"{n}/09:00", NANO, n + 1, 3, b"%d" % n)
            for n in range(room)
        ]
        await adopt(store, RecoveryCheck.in_progress(attempt.token), of_other)
        sealed = {name: Sealed(policy=name, through=BEFORE, rules="", partitions=1, starts={})}
        assert (await Unsent(policy, store.unsent).discard(domain(policy, other, sealed=sealed), attempt)).number == 1
        await finish(store, attempt)
        (again,) = await ledger.commit([answer(policy)], await guard_of(store))
        assert json.loads(again.record)["status"] == "budget_exhausted"
        total = await ledger.total()
        assert total.limit is not None
        assert total.spent <= total.limit

    run(redis_server, body)
