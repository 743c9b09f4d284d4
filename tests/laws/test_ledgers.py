"""Laws of the ledgers: each books like `DayLedger`, and is booked again from what was published."""

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.estimators import Estimate
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.day import DayLedger, Total
from hatcast.stream.ledger.proposals import Proposal, numbered
from hatcast.stream.ledger.recovery import RecoveryCheck
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records import BUDGET, BudgetRecord
from hatcast.stream.records.fields import Status
from hatcast.stream.release.budget_records import budget_record
from hatcast.stream.release.hats import Release
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of
from hatcast.stream.units import DAY_MS, NANO
from tests.contracts.goldens import tracked
from tests.integration.readings import HOUR_MS, NOON_MS
from tests.integration.recovering import adopt, guard_of_all, restore
from tests.replayed import policy_of
from tests.services import RedisServer
from tests.services.kafka_server import PARTITIONS
from tests.support import examples

DATES = ("2022-01-02", "2022-01-03")
NOW = 1_700_000_000_000
slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Charged:
    """One HAT that asks for its charge: of which policy, on which day, in which cell and slot, or suppressed.

    scale   of its noise, in steps
    """

    policy: int
    date: str
    cell: int
    hour: int
    released: bool
    scale: float

    def release(self, policies: Sequence[Policy]) -> Release:
        policy, name = policies[self.policy], f"{self.hour:02}:00"
        start = NOON_MS + DATES.index(self.date) * DAY_MS + (self.hour - 12) * HOUR_MS
        slot = Slot(self.date, name, start, start + HOUR_MS, outside=None)
        local = Calendar(policy).local
        status = Status.RELEASED if self.released else Status.SUPPRESSED
        estimate = Estimate.of_laplace(Noisy(30_000, self.scale), 65_000) if self.released else None
        return Release(policy, slot, f"{self.cell:015x}", local(start), local(slot.end_ms), status, estimate)


@dataclass
class Model:
    """What any ledger has to be: a dictionary of records beside a DayLedger for each date and their total."""

    policies: Sequence[Policy]
    days: dict[str, DayLedger] = field(default_factory=lambda: {date: DayLedger() for date in DATES})
    total: Total = field(default_factory=Total)
    records: dict[str, bytes] = field(default_factory=dict)
    commits: Counter[tuple[str, str]] = field(default_factory=Counter)
    releases: Counter[tuple[str, str]] = field(default_factory=Counter)
    epsilon: Counter[tuple[str, str]] = field(default_factory=Counter)
    fineness: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def commit(self, release: Release) -> bytes:
        if release.release_id not in self.records:
            charge, key = release.charge, (release.date, release.policy.name)
            if charge and not self.days[release.date].charge_if_room(release.policy, release.place, charge, self.total):
                release, charge = release.exhausted(), 0
            self.fineness[*key, release.fineness] += bool(charge)
            self.commits[key] += 1
            self.releases[key] += bool(charge)
            self.epsilon[key] += charge
            head, tail = release.record(NOW)
            self.records[release.release_id] = b"%b%d%b" % (head, self.commits[key], tail)
        return self.records[release.release_id]

    def summary(self, policy: Policy, date: str) -> DaySummary:
        key, day = (date, policy.name), self.days[date]
        return DaySummary(
            releases=self.releases[key],
            epsilon_sum=self.epsilon[key],
            epsilon_user_day=day.cost,
            shared=bool(day.policies.keys() - {policy.name}),
            limit=day.limit,
            sequence=sum(number for (of, _), number in self.commits.items() if of == date),
            levels=day.levels,
            total=self.total,
            policy_levels=day.policy_levels(policy.name),
            fineness={f: number for (*of, f), number in self.fineness.items() if of == [*key] and number},
        )

    def summaries(self) -> list[DaySummary]:
        return [self.summary(policy, date) for policy in self.policies for date in DATES]


def _policy(number: int, epsilon: float, cap: int, limit: float, total: float | None) -> Policy:
    unit = {} if total is None else {"unit": "user", "total_limit": max(total, epsilon)}
    privacy = {"epsilon": epsilon, "max_hats_per_day": cap, "daily_limit": max(limit, epsilon), **unit}
    return policy_of(name=f"p{number}", privacy=privacy)


charges = st.lists(
    st.builds(
        Charged,
        st.integers(0, 2),
        st.sampled_from(DATES),
        st.integers(0, 3),
        st.integers(9, 12),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0.0, 0.6, 20.0, 1e6]),
    ),
    max_size=30,
)
epsilons = st.integers(1, 2_500_000_000).map(lambda nano: nano / 1e9)
limits = st.integers(1, 12_000_000_000).map(lambda nano: nano / 1e9)
of_a_policy = st.tuples(epsilons, st.integers(1, 5), limits, st.one_of(st.none(), limits))
three_policies = st.tuples(*[of_a_policy] * 3).map(lambda three: [_policy(n, *each) for n, each in enumerate(three)])


async def _commit(redis: Redis, domain: str, releases: Sequence[Release]) -> list[bytes]:
    """One after the other, each by the worker that owns all release partitions of its policy."""
    names = dict.fromkeys(release.policy.name for release in releases)
    guards = {name: await guard_of_all(redis, domain, name) for name in names}
    records = []
    for release in releases:
        store = LedgerStore(redis, domain, release.policy)
        proposal = Proposal(
            release.release_id,
            release.date,
            release.place,
            release.charge,
            release.record(NOW),
            release.exhausted().record(NOW),
            release.fineness,
            release_partition=by_murmur2(release.release_id.encode(), PARTITIONS),
        )
        (committed,) = await store.commit([proposal], guards[release.policy.name])
        found = await store.find(release.date, [release.release_id])
        assert found[0] is not None
        assert found[0].record == committed.record
        records.append(committed.record)
    return records


async def _summaries(redis: Redis, domain: str, policies: Sequence[Policy]) -> list[DaySummary]:
    stores = [LedgerStore(redis, domain, policy) for policy in policies]
    return [await store.summary(date) for store in stores for date in DATES]


class Books:
    """A ledger under test: commits one after the other, then tells each day of each policy."""

    def __init__(self, redis_server: RedisServer, folder: Path) -> None:
        self.redis_server = redis_server
        self.folder = folder

    def redis(self, policies: Sequence[Policy], asked: Sequence[Release]) -> tuple[list[bytes], list[DaySummary]]:
        return asyncio.run(self._redis(policies, asked))

    async def _redis(
        self, policies: Sequence[Policy], asked: Sequence[Release]
    ) -> tuple[list[bytes], list[DaySummary]]:
        domain = f"t-laws-{uuid.uuid4().hex[:8]}"
        async with Redis.from_url(self.redis_server.url) as redis:
            records = await _commit(redis, domain, asked)
            days = await _summaries(redis, domain, policies)
        self.redis_server.delete(f"{{{domain}}}*")
        return records, days

    def file(self, policies: Sequence[Policy], asked: Sequence[Release]) -> tuple[list[bytes], list[DaySummary]]:
        path = self.folder / f"{uuid.uuid4().hex}.ledger"
        records = []
        for release in asked:
            with open_ledger(path, release.policy) as ledger:
                records.append(ledger.commit([release], NOW)[release.release_id])
        days = []
        for policy in policies:
            with open_ledger(path, policy) as ledger:
                days += [ledger.summary(date) for date in DATES]
        path.unlink()
        return records, days


@pytest.fixture(params=["redis", "file"])
def book(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Any:
    return getattr(Books(redis_server, tmp_path), request.param)


Book = Callable[[Sequence[Policy], Sequence[Release]], tuple[list[bytes], list[DaySummary]]]


@slow
@given(asked=charges, policies=three_policies)
def test_every_ledger_books_like_the_one_in_memory(book: Book, asked: list[Charged], policies: list[Policy]) -> None:
    releases = [each.release(policies) for each in asked]
    model = Model(policies)
    expected = [model.commit(release) for release in releases]
    records, days = book(policies, releases)
    assert records == expected
    assert days == model.summaries()


def test_a_trackers_day_without_room_for_its_reservation_releases_no_number(book: Book) -> None:
    """The reservation has all charges of its queries, which charge nothing themselves."""
    queried: Any = dict(tracked())["tracker_released"]
    privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 5.0}
    policy = policy_of(name="p0", timezone=queried.policy.timezone, privacy=privacy)
    charged = Charged(0, DATES[0], 0, 9, released=True, scale=1.0).release([policy])
    for asked in ([charged, queried], [queried, charged]):
        records, days = book([policy, queried.policy], asked)
        found = [json.loads(record) for record in records]
        assert [each["status"] for each in found] == ["released", "budget_exhausted"]
        assert "query" not in found[-1]
        assert max(day.epsilon_user_day for day in days) <= 5 * NANO


@slow
@given(asked=charges, here=st.lists(st.booleans(), min_size=30, max_size=30), order=st.randoms(use_true_random=False))
async def test_a_record_that_gives_way_to_the_one_that_was_sent_leaves_the_ledger_of_the_sent_one(
    redis_server: RedisServer, asked: list[Charged], here: list[bool], order: random.Random
) -> None:
    """Redis has drawn some HATs with other results: without a charge, at another noise level, or with one for none."""
    policy = _policy(0, 1.5, 3, 100.0, None)
    sent = list({(each.date, each.cell, each.hour): replace(each, policy=0) for each in asked}.values())
    drawn = [replace(each, released=here[at], scale=20.0) for at, each in enumerate(sent)]
    found = await _superseded(redis_server, policy, drawn, sent, order)
    alone = await _superseded(redis_server, policy, sent, sent, order)
    for one, other in zip(found, alone, strict=True):
        assert replace(one, fineness={f: n for f, n in one.fineness.items() if n}) == other


async def _superseded(
    redis_server: RedisServer, policy: Policy, drawn: list[Charged], sent: list[Charged], order: random.Random
) -> list[DaySummary]:
    """Adopt what was drawn, then what was sent, which replaces it as a recovery does; return each day's ledger."""
    before, after = (
        [published_of(_numbered(each, policy), policy.policy_id, fineness_of(policy)) for each in part]
        for part in (drawn, sent)
    )
    stored = {each.release_id: each for each in before}
    order.shuffle(after)
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as redis:
        store = RecoveryStore(redis, domain, policy.name)
        check = RecoveryCheck.in_progress((await store.begin()).token)
        assert not await adopt(store, check, before)
        for record in after:
            for _ in await adopt(store, check, [record]):
                await store.supersede(check, stored[record.release_id], record)
                assert not await adopt(store, check, [record])
        days = await _summaries(redis, domain, [policy])
    redis_server.delete(f"{{{domain}}}*")
    return days


def _numbered(each: Charged, policy: Policy) -> bytes:
    return numbered(each.release([policy]).record(NOW), 1 + 4 * each.hour + each.cell)


@slow
@given(asked=charges, policies=three_policies, kept=st.floats(0, 1), order=st.randoms(use_true_random=False))
async def test_a_ledger_that_redis_lost_is_booked_again_from_what_was_published(
    redis_server: RedisServer, asked: list[Charged], policies: list[Policy], kept: float, order: random.Random
) -> None:
    releases = [each.release(policies) for each in asked]
    await _lose_and_take_back(redis_server, policies, releases, round(kept * len(releases)), order)


async def _lose_and_take_back(
    redis_server: RedisServer, policies: Sequence[Policy], releases: Sequence[Release], kept: int, order: random.Random
) -> None:
    """Redis goes back to when `kept` of the releases were committed, and is recovered from the topics."""
    model = Model(policies)
    records = [model.commit(release) for release in releases]
    budgets = [
        budget_record(policy, date, model.summary(policy, date))
        for policy in policies
        for date in DATES
        if model.commits[date, policy.name]
    ]
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(redis_server.url) as redis:
        await _commit(redis, domain, releases[:kept])
        of = {record: release.policy for record, release in zip(records, releases, strict=True)}
        # Each by a worker of its policy; an aborted send, and its repetition.
        published = [published_of(record, p.policy_id, fineness_of(p)) for record, p in of.items()] * 2
        order.shuffle(published)
        store = RecoveryStore(redis, domain, policies[0].name)
        check = RecoveryCheck.in_progress((await store.begin()).token)
        # A topic's partitions are read side by side, and those of `hats.budget` beside those of releases.
        steps: list[list[Published] | BudgetRecord] = [published[at : at + 7] for at in range(0, len(published), 7)]
        steps += [BUDGET.decode(record) for record in budgets] * 2
        order.shuffle(steps)
        for step in steps:
            if isinstance(step, BudgetRecord):
                await restore(store, check, [step])
            else:
                assert not await adopt(store, check, step)
        days = await _summaries(redis, domain, policies)
    redis_server.delete(f"{{{domain}}}*")
    assert days == model.summaries()


async def test_no_number_that_was_sent_is_above_the_ledgers_though_commits_before_it_were_lost(
    redis_server: RedisServer,
) -> None:
    """What a worker leaves that is killed amid a transaction: its last release, and no budget record."""
    policy = _policy(0, 1.0, 10, 100.0, None)
    asked = [Charged(0, DATES[0], cell, 9, released=True, scale=1.0) for cell in range(4)]
    releases = [each.release([policy]) for each in asked]
    domain = f"t-laws-{uuid.uuid4().hex[:8]}"

    async with Redis.from_url(redis_server.url) as redis:
        records = await _commit(redis, domain, releases[:3])
        redis_server.delete(f"{{{domain}}}*")
        store = RecoveryStore(redis, domain, policy.name)
        check = RecoveryCheck.in_progress((await store.begin()).token)
        assert not await adopt(store, check, [published_of(records[2], policy.policy_id, fineness_of(policy))])
        ledger = LedgerStore(redis, domain, policy)
        before = await ledger.summary(DATES[0])
        (record,) = await _commit(redis, domain, releases[3:])
        after = await ledger.summary(DATES[0])
    redis_server.delete(f"{{{domain}}}*")
    assert (before.releases, before.sequence) == (1, 3)
    assert json.loads(record)["seq"] == after.sequence == 4
