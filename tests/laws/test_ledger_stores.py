"""The law of the ledger's decisions on a real Redis: rows, conditions and older copies, as in a file."""

import asyncio
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.stored_values import Damaged
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.rejections import Unrecovered
from hatcast.stream.ledger.view import RowChanges, View, Wanted
from tests.integration.recovering import guard_of_all
from tests.laws.redis_scripts import DAY, NANO, proposal
from tests.laws.test_ledger_decisions import Writers
from tests.laws.test_ledger_recoveries import Recoveries
from tests.ledgers import Rows
from tests.replayed import policy_of
from tests.services import RedisServer
from tests.services.data import ROOT

FEW = settings(max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


class RedisRows:
    """The store of a domain in Redis, whose answers are waited for at once; its rows can be copied and brought back."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.domain = f"t-stores-{uuid.uuid4().hex[:8]}"
        self._redis = Redis.from_url(url)
        self._store = RowStore(self._redis, self.domain)

    async def read(self, wanted: Wanted) -> View:
        return self._loop.run_until_complete(self._store.read(wanted))

    async def apply(self, changes: RowChanges) -> bool:
        return self._loop.run_until_complete(self._store.apply(changes))

    @property
    def rows(self) -> Rows:
        return self._loop.run_until_complete(self._rows())

    def restore(self, copy: Rows) -> None:
        self._loop.run_until_complete(self._restore(copy))

    def close(self) -> None:
        self.restore({})
        self._loop.run_until_complete(self._redis.aclose())
        self._loop.close()

    async def _rows(self) -> Rows:
        found: Rows = {}
        prefix = f"{{{self.domain}}}:"
        redis: Any = self._redis  # bytes, but the types allow text
        for raw in await redis.keys(prefix + "*"):
            key = raw.decode().removeprefix(prefix)
            if rows.is_set(key):
                found[key] = {member.decode(): b"" for member in await redis.smembers(raw)}
            else:
                found[key] = {name.decode(): value for name, value in (await redis.hgetall(raw)).items()}
        return found

    async def _restore(self, copy: Rows) -> None:
        prefix = f"{{{self.domain}}}:"
        async with self._redis.pipeline(transaction=True) as pipe:
            for raw in await self._redis.keys(prefix + "*"):
                pipe.delete(raw)
            for key, fields in copy.items():
                if rows.is_set(key):
                    pipe.sadd(prefix + key, *fields)
                else:
                    pipe.hset(prefix + key, mapping={str(name): value for name, value in fields.items()})
            await pipe.execute()


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[Any]:
    made = RedisRows(redis_server.url)
    yield made
    made.close()


def test_on_redis_too_each_apply_is_what_the_definition_decides_then(store: Any) -> None:
    class OnRedis(Writers):
        def new_store(self) -> Any:
            store.restore({})
            return store

    run_state_machine_as_test(OnRedis, settings=FEW)


def test_on_redis_too_whoever_finishes_a_recovery_has_what_was_sent(store: Any) -> None:
    class OnRedis(Recoveries):
        def new_store(self) -> Any:
            store.restore({})
            return store

    run_state_machine_as_test(OnRedis, settings=FEW)


PROCESSES = 3
HATS = 60
PRIVACY = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0}
LIMIT = 40  # of them fit into the day


async def test_processes_that_commit_to_one_date_at_once_charge_each_release_once_and_never_too_much(
    redis_server: RedisServer,
) -> None:
    name = f"t-stores-{uuid.uuid4().hex[:8]}"
    privacy = {"epsilon": 1.0, "max_hats_per_day": 200, "daily_limit": float(LIMIT)}

    async def recovered_and_counted(*, before: bool) -> Any:
        async with Redis.from_url(redis_server.url) as redis:
            if before:
                return await guard_of_all(redis, name, name)
            return await LedgerStore(redis, name, policy_of(name=name, privacy=privacy)).summary(DAY)

    await recovered_and_counted(before=True)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.laws.committing", redis_server.url, name, str(number), str(HATS), str(LIMIT)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(PROCESSES)
    ]
    told = [json.loads(process.communicate(timeout=200)[0]) for process in processes]
    summary = await recovered_and_counted(before=False)
    redis_server.delete(f"{{{name}}}*")
    assert sum(released for released, _ in told) == summary.releases == LIMIT
    assert summary.epsilon_user_day == summary.total.spent == LIMIT * NANO
    assert summary.sequence == PROCESSES * HATS
    seqs = sorted(seq for _, numbers in told for seq in numbers)
    assert seqs == list(range(1, PROCESSES * HATS + 1)), "numbers that are assigned twice, or to no record"


async def test_a_reply_that_is_lost_is_found_out_before_anything_else_is_written(redis_server: RedisServer) -> None:
    """The apply was run, and its reply is lost: the partition is taken over again, and the release is charged once."""
    name = f"t-stores-{uuid.uuid4().hex[:8]}"

    async with Redis.from_url(redis_server.url) as redis:
        store, guard = LedgerStore(redis, name, policy_of(name=name)), await guard_of_all(redis, name, name)
        apply = store._rows.apply

        async def lost(changes: RowChanges) -> bool:
            assert await apply(changes)
            raise RedisConnectionError("the reply is lost")

        store._rows.apply = lost  # type: ignore[method-assign]
        with pytest.raises(RedisConnectionError):
            await store.commit([proposal(name, "12:00", "a/12:00")], guard)
        assert 0 not in guard.written
        with pytest.raises(Unrecovered):
            await store.commit([proposal(name, "13:00", "b/13:00")], guard)
        store._rows.apply = apply  # type: ignore[method-assign]
        again = await guard_of_all(redis, name, name)
        (committed,) = await store.commit([proposal(name, "12:00", "a/12:00")], again)
        assert not committed.new
        assert (await store.summary(DAY)).releases == 1
    redis_server.delete(f"{{{name}}}*")


async def test_a_batch_that_others_are_faster_than_is_committed_in_halves(redis_server: RedisServer) -> None:
    name = f"t-stores-{uuid.uuid4().hex[:8]}"

    async with Redis.from_url(redis_server.url) as redis:
        store, guard = LedgerStore(redis, name, policy_of(name=name)), await guard_of_all(redis, name, name)
        apply, sizes = store._rows.apply, list[int]()

        async def beaten(changes: RowChanges) -> bool:
            sizes.append(len(changes.set[rows.releases(DAY, name)]))
            return sizes[-1] == 1 and await apply(changes)

        store._rows.apply = beaten  # type: ignore[method-assign]
        committed = await store.commit([proposal(name, f"{n}:00", f"a/{n}:00") for n in range(10, 14)], guard)
        assert [json.loads(each.record)["seq"] for each in committed] == [1, 2, 3, 4]
    redis_server.delete(f"{{{name}}}*")
    # The second two begin with what the ones before them left, without a read: that apply is not one of the ten.
    assert sizes == [4] * 10 + [2] * 10 + [1] * 2 + [2] * 11 + [1] * 2


@pytest.mark.parametrize("kind", [rows.ledger, rows.levels, rows.costs, rows.releases])
async def test_a_row_of_another_type_rejects_the_releases_of_its_date_and_no_others(
    redis_server: RedisServer, kind: Callable[..., str]
) -> None:
    name, later = f"t-stores-{uuid.uuid4().hex[:8]}", "2022-01-03"
    damaged = f"{{{name}}}:{kind(DAY) if kind is rows.ledger else kind(DAY, name)}"

    async with Redis.from_url(redis_server.url) as redis:
        await redis.rpush(damaged, "x")
        store = LedgerStore(redis, name, policy_of(name=name))
        for hour in (9, 10):  # the second after a commit whose rows could be remembered
            rejected = proposal(name, f"{hour}:00", f"a/{hour}:00")
            other_id = f"{name}/{later}T{hour}:00/a"
            parts = b'{"release_id": "%s", "seq": ' % other_id.encode(), b"}"
            other = replace(rejected, release_id=other_id, date=later, record=parts)
            with pytest.raises(Damaged, match=re.escape(damaged)):
                await store.commit([rejected, other], await guard_of_all(redis, name, name))
            assert other_id in await store.records(later)
        assert (await store.summary(later)).releases == 2
        assert await redis.lrange(damaged, 0, -1) == [b"x"]
    redis_server.delete(f"{{{name}}}*")


async def test_who_commits_alone_reads_twice_and_again_only_after_another_has_written(
    redis_server: RedisServer,
) -> None:
    name = f"t-stores-{uuid.uuid4().hex[:8]}"
    with_total = policy_of(name="total", privacy={"unit": "user", "total_limit": 50.0} | PRIVACY)

    # The first finds out that a limit of all days binds it too.
    async with Redis.from_url(redis_server.url) as redis:
        guard = await guard_of_all(redis, name, name)
        await LedgerStore(redis, name, with_total).commit([proposal("total", "09:00", "a/09:00")], guard)
        store, others = LedgerStore(redis, name, policy_of(name=name)), await guard_of_all(redis, name, "total")
        read, reads, counted = store._rows.read, list[Wanted](), list[int]()

        async def reading(wanted: Wanted) -> View:
            reads.append(wanted)
            return await read(wanted)

        store._rows.read = reading  # type: ignore[method-assign]
        guard = await guard_of_all(redis, name, name)
        for hour in range(10, 20):
            (committed,) = await store.commit([proposal(name, f"{hour}:00", f"a/{hour}:00")], guard)
            assert json.loads(committed.record)["seq"] == hour - 9
            counted.append(len(reads))
            if hour == 15:
                another = LedgerStore(redis, name, with_total)
                for again in ("10:00", "11:00"):  # on one place, whose level changes
                    await another.commit([proposal("total", again, "a/09:00")], others)
        assert (await store.total()).spent == 13 * NANO
        assert counted == [3, 4, 4, 4, 4, 4, 5, 6, 6, 6]
    redis_server.delete(f"{{{name}}}*")


async def test_ten_thousand_charges_of_a_million_are_booked_each_once_and_sum_exactly(
    redis_server: RedisServer,
) -> None:
    """As many as 64 bits cannot hold in 1e-9."""
    charge, number = 10**15 + 1, 10_000
    name = f"t-stores-{uuid.uuid4().hex[:8]}"
    privacy = {"epsilon": 1e6, "max_hats_per_day": 89, "acknowledge_weak_privacy": True, "daily_limit": 1e9}
    policy = policy_of(name=name, privacy=privacy)

    async with Redis.from_url(redis_server.url) as redis:
        ledger, guard = LedgerStore(redis, name, policy), await guard_of_all(redis, name, name)
        wanted = [proposal(name, "12:00", f"{n}/12:00", charge) for n in range(number)]
        for at in range(0, number, 500):
            committed = await ledger.commit(wanted[at : at + 500], guard)
            assert all(b"seq" in each.record for each in committed)
        day = await ledger.summary(DAY)
        assert (day.releases, day.sequence, day.epsilon_sum) == (number, number, number * charge)
        assert day.epsilon_user_day == day.total.spent == policy.max_hats_per_day * charge
    redis_server.delete(f"{{{name}}}*")
