"""Law of the scripts in Redis: they count exactly, however large the sums are, or write nothing."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.redis.errors import Overflow
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.stream.ledger.day import DayLedger, PolicyDay, Total, day_cost
from tests.integration.recovering import guard_of_all
from tests.laws.redis_scripts import DAY, NANO, Mutant, break_scripts, contents, proposal
from tests.replayed import policy_of
from tests.services import RedisServer

MOST = 2**52 * NANO  # what a sum may be

ROUNDS = (
    "amounts",
    "return amount_of(a[1] + b[1], a[2] + b[2]) end",
    "return amount_of(0, (a[1] + b[1]) * 1e9 + a[2] + b[2]) end",
)
COUNTS_ON = ("amounts", "if not (value[1] < MOST) then reject('overflow', key) end", "")


def test_ten_thousand_charges_of_a_million_are_booked_each_once_and_sum_exactly(redis_server: RedisServer) -> None:
    """As many as 64 bits cannot hold in 1e-9."""
    charge, number = 10**15 + 1, 10_000
    name = f"t-scripts-{uuid.uuid4().hex[:8]}"
    privacy = {"epsilon": 1e6, "max_hats_per_day": 89, "acknowledge_weak_privacy": True, "daily_limit": 1e9}
    policy = policy_of(name=name, privacy=privacy)

    async def commit() -> None:
        async with Redis.from_url(redis_server.url) as redis:
            ledger, guard = LedgerStore(redis, name, policy), await guard_of_all(redis, name, policy.name)
            wanted = [proposal(name, "12:00", f"{n}/12:00", charge) for n in range(number)]
            for at in range(0, number, 500):
                committed = await ledger.commit(wanted[at : at + 500], guard)
                assert all(b"seq" in each.record for each in committed)
            day = await ledger.summary(DAY)
            assert (day.releases, day.sequence, day.epsilon_sum) == (number, number, number * charge)
            assert day.epsilon_user_day == day.total.spent == policy.max_hats_per_day * charge

    asyncio.run(commit())
    redis_server.delete(f"{{{name}*")


amounts = st.one_of(
    st.integers(0, 10**12),
    st.integers(2**53 - 5, 2**53 + 5),
    st.integers(2**63 - 5, 2**63 + 5),
    st.integers(MOST - 2 * 10**18, MOST + 5),
)


@dataclass(frozen=True)
class Books:
    """What a commit finds and what it charges, in 1e-9.

    of_day     what another policy's part of the day costs
    of_others  what all other days have cost
    levels     e -> how many places have it
    again      on a place that has a charge already, where there is one
    """

    of_day: int
    of_others: int
    levels: dict[int, int]
    cap: int
    charge: int
    again: bool


books = st.builds(
    Books,
    amounts,
    amounts,
    st.dictionaries(st.one_of(st.integers(1, 10**16), st.integers(2**53, 10**18)), st.integers(1, 3), max_size=3),
    st.sampled_from([1, 2, 5, 65_535]),
    st.one_of(st.integers(1, 10**12), st.integers(2**53 - 5, 10**18)),
    st.booleans(),
)
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(found=books)
def test_a_commit_books_what_the_model_books_or_nothing_however_large_the_sums_are(
    redis_server: RedisServer, found: Books
) -> None:
    asyncio.run(check_commit(redis_server.url, found))


async def check_commit(url: str, found: Books) -> None:
    name = f"t-scripts-{uuid.uuid4().hex[:8]}"
    policy = replace(policy_of(name=name), max_hats_per_day=found.cap, daily_limit=4e15)  # larger than a file may say
    places = {f"{level}-{n}": level for level, number in found.levels.items() for n in range(number)}
    levels, charge = dict(Counter(places.values())), found.charge
    own = PolicyDay(found.cap, places, levels, day_cost(levels, found.cap))
    day = DayLedger({name: own, "other": PolicyDay(1, hats=found.of_day)})
    total = Total(day.cost + found.of_others)
    place = min(own.costs, default="new") if found.again else "new"
    keys = DomainKeys(name)
    async with Redis.from_url(url) as redis:
        guard = await guard_of_all(redis, name, policy.name)
        costs = {f"cap:{name}": found.cap, "cost": day.cost, f"cost:{name}": own.cost, "cost:other": found.of_day}
        await redis.hset(keys.ledger(DAY), mapping=_texts(costs))
        await redis.hset(keys.total, "spent", str(total.spent))
        if own.costs:
            await redis.hset(keys.costs(DAY, name), mapping=_texts(own.costs))
            await redis.hset(keys.levels(DAY, name), mapping=_texts(own.levels))
        before = await contents(redis, name)
        ledger = LedgerStore(redis, name, policy)
        try:
            await ledger.commit([proposal(name, "12:00", place, charge)], guard)
        except Overflow:
            assert max(day.cost, total.spent + charge) >= MOST
            assert await contents(redis, name) == before, "wrote a part"
        else:
            fits = day.charge(policy, place, charge, total)
            summary = await ledger.summary(DAY)
            assert (summary.epsilon_user_day, summary.total.spent) == (day.cost, total.spent)
            assert (summary.releases, summary.epsilon_sum, summary.policy_levels) == (
                fits,
                fits * charge,
                day.policy_levels(name),
            )
            booked: Any = await redis.hgetall(keys.costs(DAY, name))
            assert {each.decode(): int(e) for each, e in booked.items()} == own.costs
            assert not fits or max(day.cost, total.spent) < MOST
        await redis.delete(*[key async for key in redis.scan_iter(f"{{{name}*")])


def _texts(numbers: Mapping[Any, int]) -> dict[Any, Any]:
    return {str(field): str(value) for field, value in numbers.items()}


def _large(url: str) -> None:
    """Sums beyond a double, and beyond what is counted."""
    asyncio.run(check_commit(url, Books(2**53 + 1, 2**63 + 1, {2**53 + 1: 2, 3: 1}, 2, 10**17 + 1, again=False)))
    asyncio.run(check_commit(url, Books(0, MOST - 10**17, {}, 2, 10**17 + 1, again=False)))


@pytest.mark.parametrize("mutant", [ROUNDS, COUNTS_ON])
def test_the_check_sees_sums_that_are_rounded_or_counted_beyond_what_is_exact(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, mutant: Mutant
) -> None:
    _large(redis_server.url)
    break_scripts(monkeypatch, mutant)
    with pytest.raises(AssertionError):
        _large(redis_server.url)
