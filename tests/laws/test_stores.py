"""Laws of the stores: every ledger books like `stream.accounting.DayLedger`, and Redis gives a fold back as it was."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from agents.ledger_file import open_ledger
from agents.store.ledger import LedgerStore, Proposal
from agents.store.partition import FinalHat, PartitionStore
from agents.store.proof import ProofStore
from stream.accounting import DayLedger, DaySummary, day_cost
from stream.checkpoint import Stored, restore, take_changes, totals
from stream.contributions import Fold
from stream.hats import Calendar, Slot
from stream.policy import Policy
from stream.release import Release, Status
from tests.integration.readings import HOUR_MS, LATER_MS, NOON_MS, Sample, folds
from tests.replayed import policy_of
from tests.services import RedisServer

DATE = "2022-01-02"
NOW = 1_700_000_000_000
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Charged:
    """One HAT that asks for its charge: of which policy, in which cell and slot, released or suppressed."""

    policy: int
    cell: int
    hour: int
    released: bool

    def release(self, policies: Sequence[Policy]) -> Release:
        policy, name = policies[self.policy], f"{self.hour:02}:00"
        start = NOON_MS + (self.hour - 12) * HOUR_MS
        slot = Slot(DATE, name, start, start + HOUR_MS, in_hours=True)
        local = Calendar(policy).local
        status = Status.RELEASED if self.released else Status.SUPPRESSED
        return Release(policy, slot, f"cell{self.cell}", local(start), local(slot.end_ms), status, None)


@dataclass
class Model:
    """What any ledger has to be: a dictionary of records beside a DayLedger."""

    policies: Sequence[Policy]
    day: DayLedger = field(default_factory=DayLedger)
    records: dict[str, bytes] = field(default_factory=dict)
    commits: Counter[str] = field(default_factory=Counter)
    releases: Counter[str] = field(default_factory=Counter)
    epsilon: Counter[str] = field(default_factory=Counter)

    def commit(self, release: Release) -> bytes:
        policy = release.policy
        if release.release_id not in self.records:
            charge = release.charge
            limits = policy.max_hats_per_day, policy.daily_limit_nano
            if charge and not self.day.charge(release.place, charge, *limits):
                release, charge = release.exhausted(), 0
            self.commits[policy.name] += 1
            self.releases[policy.name] += bool(charge)
            self.epsilon[policy.name] += charge
            head, tail = release.record(NOW)
            self.records[release.release_id] = b"%b%d%b" % (head, self.commits[policy.name], tail)
        return self.records[release.release_id]

    def summary(self, policy: Policy) -> DaySummary:
        return DaySummary(
            self.releases[policy.name],
            self.epsilon[policy.name],
            day_cost(self.day.levels, policy.max_hats_per_day),
            self.commits.total(),
            dict(self.day.levels),
        )


def policies_with(*epsilons: float) -> list[Policy]:
    privacy = {"max_hats_per_day": 3, "daily_limit": 2.5}
    return [policy_of(name=f"p{n}", privacy={**privacy, "epsilon": each}) for n, each in enumerate(epsilons)]


charges = st.lists(
    st.builds(Charged, st.integers(0, 2), st.integers(0, 3), st.integers(9, 12), st.booleans()), max_size=30
)
epsilons = st.tuples(*[st.integers(1, 2_500_000_000).map(lambda nano: nano / 1e9)] * 3)


async def _proven(redis: Redis, domain: str) -> str:
    """The token of a proof: nothing was ever published in this domain."""
    store = ProofStore(redis, domain)
    token = await store.prove(await store.run_id())
    assert token is not None
    return token


class Books:
    """A ledger under test: commits one after the other, then tells the day of each policy."""

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
            stores = {
                p.name: LedgerStore(redis, domain, p.name, p.max_hats_per_day, p.daily_limit_nano) for p in policies
            }
            token = await _proven(redis, domain)
            records = []
            for release in asked:
                proposal = Proposal(
                    release.release_id,
                    release.date,
                    release.place,
                    release.charge,
                    release.record(NOW),
                    release.exhausted().record(NOW),
                )
                (committed,) = await stores[release.policy.name].commit([proposal], token)
                found = await stores[release.policy.name].find(DATE, [release.release_id])
                assert found[0] is not None
                assert found[0].record == committed.record
                records.append(committed.record)
            days = [await store.summary(DATE) for store in stores.values()]
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
                days.append(ledger.summary(DATE))
        path.unlink()
        return records, days


@pytest.fixture(params=["redis", "file"])
def book(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Any:
    return getattr(Books(redis_server, tmp_path), request.param)


Book = Callable[[Sequence[Policy], Sequence[Release]], tuple[list[bytes], list[DaySummary]]]


@slow
@given(asked=charges, epsilon=epsilons)
def test_every_ledger_books_like_the_one_in_memory(
    book: Book, asked: list[Charged], epsilon: tuple[float, float, float]
) -> None:
    policies = policies_with(*epsilon)
    releases = [each.release(policies) for each in asked]
    model = Model(policies)
    expected = [model.commit(release) for release in releases]
    records, days = book(policies, releases)
    assert records == expected
    for day, policy in zip(days, policies, strict=True):
        wanted = model.summary(policy)
        # The levels of two days are equal if they count the same cells and slots.
        assert dict(day.levels) == {level: n for level, n in wanted.levels.items() if n}
        assert (day.releases, day.epsilon_sum, day.epsilon_user_day, day.sequence) == (
            wanted.releases,
            wanted.epsilon_sum,
            wanted.epsilon_user_day,
            wanted.sequence,
        )
        assert day.epsilon_user_day <= policy.daily_limit_nano


# The state of one partition.

# Enough of one partition for two chunks of users in a HAT.
AT_HOME = [sample.vehicle for n in range(1_600) if (sample := Sample(f"v{n}", 0)).partition == 0]
samples = st.lists(
    st.builds(
        Sample,
        st.sampled_from(AT_HOME),
        st.integers(NOON_MS, NOON_MS + 3 * HOUR_MS),
        st.integers(0, 1),
        st.floats(0, 200),
    ),
    max_size=120,
)
EVENTS = ("checkpoint", "restart", "stale", "twice")
batches = st.lists(st.tuples(samples, st.sampled_from(EVENTS)), min_size=1, max_size=8)


@slow
@given(batches=batches)
def test_a_partition_is_read_back_as_it_was_folded_whatever_checkpoints_are_refused(
    redis_server: RedisServer, batches: list[tuple[list[Sample], str]]
) -> None:
    name = f"t-laws-{uuid.uuid4().hex[:8]}"
    policy = policy_of(name=name, lateness="48h", drop_zero=False)
    asyncio.run(_compare(redis_server.url, policy, batches))
    redis_server.delete(f"{{{name}*")


async def _compare(url: str, policy: Policy, batches: list[tuple[list[Sample], str]]) -> None:
    whole, fold = folds(policy)[0], folds(policy)[0]
    async with Redis.from_url(url) as redis:
        store = PartitionStore(redis, policy.name, 1)
        base, _ = await store.open(0, 0)
        for batch, event in batches:
            apply(whole, batch)
            apply(fold, batch)
            following = base + max(len(batch), 1)
            changes = take_changes(fold)
            if event == "stale":
                before = await store.read(0)
                assert not await store.checkpoint(0, base + 1, following + 1, changes)
                assert await store.read(0) == before
            assert await store.checkpoint(0, base, following, changes)
            if event == "twice":  # a client that had no answer sends it again
                before = await store.read(0)
                assert not await store.checkpoint(0, base, following, changes)
                assert await store.read(0) == before
            base = following
            if event == "restart":
                fold = folds(policy)[0]
                offset, stored = await store.open(0, 0)
                assert offset == base
                restore(fold, stored)
            assert state(await read(policy, store.read)) == state(whole)
        await _delete_all(store, whole)


async def read(policy: Policy, reader: Callable[[int], Awaitable[Stored]]) -> Fold:
    fold = folds(policy)[0]
    restore(fold, await reader(0))
    return fold


async def _delete_all(store: PartitionStore, whole: Fold) -> None:
    """Final HATs are loaded whole and can be deleted; before their clock they can neither."""
    hats = [key.partition("/") for key in totals(whole.slots.values())]
    clock = whole.clock or 0
    early = [FinalHat(slot, cell, clock + 1) for cell, _, slot in hats]
    if early:
        assert await store.load(early) is None
        await store.delete(early)
    final = [FinalHat(slot, cell, clock) for cell, _, slot in hats]
    loaded = await store.load(final)
    assert loaded is not None
    assert all(loaded)
    await store.delete(final)
    assert (await store.read(0)).hats == {}
    assert await store.open_slots() == {}


def apply(fold: Fold, batch: Sequence[Sample]) -> None:
    """Fold samples; without any, a tick."""
    times = [each.time_ms for each in batch] or [NOON_MS]
    fold.apply(LATER_MS, times, [each.value for each in batch] or [b""])


def state(fold: Fold) -> object:
    return (
        fold.clock,
        {name: n for name, n in fold.outcomes.items() if n},
        totals(fold.slots.values()),
        {date: {user.pseudonym: user.entered for user in day.users.values()} for date, day in fold.days.items()},
        {
            key: {cell: {u: known.seen for u, known in hat.users.items()} for cell, hat in slot.hats.items()}
            for key, slot in fold.slots.items()
            if slot.hats
        },
    )
