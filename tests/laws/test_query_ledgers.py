"""Laws of the ledgers with queries over days: in any order, HATs and answers book like `accounting.DayLedger`."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.policy_state import SpentStore
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.day import DayLedger, PolicyDay, Total, reservations
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION
from hatcast.stream.queries import RetainedDay
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import Release
from hatcast.stream.release.queries import QueryRelease, query_periods_of, query_release_of
from tests.integration.recovering import guard_of_all
from tests.laws.test_ledgers import DATES, NOW, Charged
from tests.replayed import policy_of
from tests.services import RedisServer
from tests.services.kafka_server import PARTITIONS
from tests.support import Scripted, examples

Either = Release | QueryRelease
TOLD = ("releases", "epsilon_sum", "epsilon_user_day", "sequence", "limit", "shared", "total", "queries", "levels")
Told = dict[str, object]
"""Of a policy and a date: what `TOLD` names"""

slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Wanted:
    """An answer that asks for its record: to which query of which policy, on which date, about which cell."""

    policy: int
    query: int
    date: str
    cell: int
    released: bool

    def release(self, policies: Sequence[Policy]) -> QueryRelease | None:
        """None: the policy has no such query."""
        policy = policies[self.policy]
        calendar = Calendar(policy)
        asked = [
            one for one in query_periods_of(policy, calendar, self.date, "12:00") if one.query.name == f"q{self.query}"
        ]
        if not asked:
            return None
        user = RetainedDay(*(np.array([value], np.int64) for value in (1, 30_000, 30_000)))
        days = dict.fromkeys(asked[0].period.dates, user) if self.released else {}
        return query_release_of(asked[0], calendar, f"{self.cell:015x}", days, Scripted([0]))


class Model:
    """What any ledger has to be."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = policies
        self.days = {day: DayLedger() for day in DATES}
        self.total = Total()
        self.records: dict[str, bytes] = {}
        self.sequence: Counter[str] = Counter()
        self.commits: Counter[tuple[str, str]] = Counter()
        self.charged: dict[tuple[str, str], list[int]] = {(p.name, day): [] for p in policies for day in DATES}

    def book_spent(self, policy: Policy) -> None:
        """What its list of cells has cost, on each of its days, when it is first used."""
        for day in DATES if policy.selection_cost is not None else ():
            if CELL_SELECTION in (wanted := reservations(policy, day)):
                self.sequence[day] += bool(
                    self.days[day].reserve_if_room(policy, {CELL_SELECTION: wanted[CELL_SELECTION]}, self.total)
                )

    def commit(self, one: Either) -> bytes:
        self.book_spent(policy_behind(one))
        if one.release_id not in self.records:
            policy = policy_behind(one)
            has_room = self._asks(one, policy) if isinstance(one, QueryRelease) else self._charges(one, policy)
            kept: Either = one if has_room else one.exhausted()
            self.sequence[one.date] += 1
            self.commits[policy.name, one.date] += 1
            self.records[one.release_id] = numbered(kept.record(NOW), self.commits[policy.name, one.date])
        return self.records[one.release_id]

    def _charges(self, hat: Release, policy: Policy) -> bool:
        day = self.days[hat.date]
        day.reserve_if_room(policy, reservations(policy, hat.date), self.total)
        if not hat.charge:
            return True
        if not day.charge_if_room(policy, hat.place, hat.charge, self.total):
            return False
        self.charged[policy.name, hat.date].append(hat.charge)
        return True

    def _asks(self, answer: QueryRelease, policy: Policy) -> bool:
        name, places = answer.query_period.query.name, []
        for day in answer.query_period.period.dates:
            wanted = {name: reservations(policy, day)[name]}
            self.sequence[day] += bool(self.days[day].reserve_if_room(policy, wanted, self.total))
            places.append(self.days[day].policies[policy.name].queries[name].places)
        return all(places) or answer.status is not Status.RELEASED

    def told(self) -> list[Told]:
        return [self._told(policy, day) for policy in self.policies for day in DATES]

    def _told(self, policy: Policy, on: str) -> Told:
        day, charged = self.days[on], self.charged[policy.name, on]
        own = day.policies.get(policy.name) or PolicyDay(1)
        return {
            "releases": len(charged),
            "epsilon_sum": sum(charged),
            "epsilon_user_day": day.cost,
            "sequence": self.sequence[on],
            "limit": day.limit,
            "shared": day.cost > own.cost,
            "total": self.total,
            "queries": own.queries,
            "levels": day.levels,
        }


def policy_behind(one: Either) -> Policy:
    return one.query_period.policy if isinstance(one, QueryRelease) else one.policy


def told(day: DaySummary) -> Told:
    return {name: getattr(day, name) for name in TOLD}


def steps(most: int) -> st.SearchStrategy[float]:
    """Epsilon, in tenths: few enough that a limit is often met exactly, or just not."""
    return st.integers(1, 10 * most).map(lambda tenths: tenths / 10)


queries = st.lists(st.tuples(st.integers(1, 2), steps(1)), max_size=2)
of_a_policy = st.tuples(
    steps(2), st.integers(1, 4), queries, steps(10), st.one_of(st.none(), steps(10)), st.one_of(st.none(), steps(9))
)


def a_policy(
    number: int, made: tuple[float, int, list[tuple[int, float]], float, float | None, float | None]
) -> Policy:
    """Its limits leave room for its queries and one HAT, or it would be refused; its cells may have cost more."""
    epsilon, cap, asked, more, total, chosen = made
    least = epsilon + cap * sum(each for _, each in asked)
    unit = {} if total is None else {"unit": "user", "total_limit": least + total}
    keys = {"kind": "over_speed_limit", "from": DATES[0], "speed_limit": 40.0}
    policy = policy_of(
        name=f"p{number}",
        privacy={"epsilon": epsilon, "max_hats_per_day": cap, "daily_limit": least + more, **unit},
        query=[{"name": f"q{n}", "days": days, "epsilon": each} | keys for n, (days, each) in enumerate(asked)],
    )
    first, last = map(date.fromisoformat, DATES)
    return (
        policy
        if chosen is None
        else replace(policy, selection_cost=SelectionCost(chosen, first, last if number else first))
    )


two_policies = st.tuples(of_a_policy, of_a_policy).map(lambda two: [a_policy(n, each) for n, each in enumerate(two)])
number, dates, cells = st.integers(0, 1), st.sampled_from(DATES), st.integers(0, 2)
hats = st.builds(
    Charged, number, dates, cells, st.integers(11, 12), st.sampled_from([True, True, False]), st.just(20.0)
)
answers = st.builds(Wanted, number, number, dates, cells, st.sampled_from([True, True, False]))
asked_for = st.lists(st.one_of(hats, answers), max_size=20)

Booked = tuple[list[bytes], list[Told]]


class Books:
    """A ledger under test: commits one after the other, then tells each day of each policy."""

    def __init__(self, redis_server: RedisServer, folder: Path) -> None:
        self._redis_server = redis_server
        self._folder = folder

    def redis(self, policies: Sequence[Policy], asked: Sequence[Either]) -> Booked:
        return asyncio.run(self._redis(policies, asked))

    async def _redis(self, policies: Sequence[Policy], asked: Sequence[Either]) -> Booked:
        domain, records = f"t-laws-{uuid.uuid4().hex[:8]}", []
        async with Redis.from_url(self._redis_server.url) as redis:
            guards = {policy.name: await guard_of_all(redis, domain, policy.name) for policy in policies}
            for one in asked:
                policy = policy_behind(one)
                store, guard = LedgerStore(redis, domain, policy), guards[policy.name]
                release_partition = by_murmur2(one.release_id.encode(), PARTITIONS)
                await SpentStore(redis, domain, policy).book()
                [committed] = await store.commit([one.proposal(NOW, release_partition)], guard)
                records.append(committed.record)
            for policy in policies:
                await SpentStore(redis, domain, policy).book()
            stores = [LedgerStore(redis, domain, policy) for policy in policies]
            days = [told(await store.summary(day)) for store in stores for day in DATES]
        self._redis_server.delete(f"{{{domain}}}*")
        return records, days

    def file(self, policies: Sequence[Policy], asked: Sequence[Either]) -> Booked:
        path, records, days = self._folder / f"{uuid.uuid4().hex}.ledger", [], []
        for one in asked:
            with open_ledger(path, policy_behind(one)) as ledger:
                records.append(ledger.commit([one], NOW)[one.release_id])
        for policy in [*policies, *policies]:  # the first time, what each has spent is booked
            with open_ledger(path, policy) as ledger:
                days += [told(ledger.summary(day)) for day in DATES]
        path.unlink()
        return records, days[len(days) // 2 :]


@pytest.fixture(params=["redis", "file"])
def book(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Callable[..., Booked]:
    found: Callable[..., Booked] = getattr(Books(redis_server, tmp_path), request.param)
    return found


@slow
@given(asked=asked_for, policies=two_policies)
def test_every_ledger_books_hats_and_answers_like_the_one_in_memory(
    book: Callable[..., Booked], asked: list[Charged | Wanted], policies: list[Policy]
) -> None:
    releases = [one for each in asked if (one := each.release(policies)) is not None]
    model = Model(policies)
    expected = [model.commit(one) for one in releases]
    for policy in policies:
        model.book_spent(policy)
    records, days = book(policies, releases)
    assert records == expected
    assert days == model.told()
