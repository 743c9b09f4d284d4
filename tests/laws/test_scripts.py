"""Laws of the scripts in Redis: each writes all of its changes or none, whatever it finds, and counts exactly."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hatcast.agents.redis import scripts
from hatcast.agents.redis.adoption import AdoptionBatch, Answered, Position, Published
from hatcast.agents.redis.attempts import Attempt, RecoveryCheck
from hatcast.agents.redis.errors import Damaged, Overflow
from hatcast.agents.redis.guard import CommitGuard
from hatcast.agents.redis.identity import claim_user_key
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.partition_state import FinalHat, PartitionStore
from hatcast.agents.redis.policy_transition import NextPolicy, PolicyTransitionStore
from hatcast.agents.redis.proposals import AnswerProposal, Proposal
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.sealed_days import Sealed, SealedDay
from hatcast.agents.redis.slot_progress import Mark
from hatcast.agents.redis.spent_cells import SpentStore
from hatcast.agents.redis.user_keys import StoredKey, restore_made_key
from hatcast.stream.accounting.ledger import DayLedger, PolicyDay, Reserved, Total
from hatcast.stream.fold.checkpoint import Changes, take_changes
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import Period
from hatcast.stream.records import ReservedRecord
from tests.integration.readings import HOUR_MS, LATER_MS, NOON_MS, folds, traffic
from tests.integration.recovering import OUTPUT, adopt, budget_record, guard_of_all
from tests.replayed import policy_of
from tests.services import RedisServer

DAY, NEXT = "2022-01-02", "2022-01-03"
PARTS = (b'{"seq":', b"}"), (b"{", b"}")
NANO = 10**9
MOST = 2**52 * NANO  # what a sum may be

Contents = dict[bytes, object]
Act = Callable[[], Awaitable[object]]


async def contents(redis: Redis, name: str) -> Contents:
    """What the keys of a domain, and of a policy's partitions, hold."""
    keys: list[Any] = sorted(await redis.keys(f"{{{name}*"))
    async with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = await pipe.execute()
        reads = {b"hash": pipe.hgetall, b"set": pipe.smembers, b"string": pipe.get, b"list": pipe.llen}
        for key, kind in zip(keys, kinds, strict=True):
            reads[kind](key)
        return dict(zip(keys, await pipe.execute(), strict=True))


def proposal(name: str, slot: str, place: str, charge: int = NANO) -> Proposal:
    return Proposal(f"{name}/{DAY}T{slot}/{place}", DAY, place, charge, *PARTS, fineness=3, release_partition=0)


def published(name: str, slot: str, charge: int, record: bytes = b"sent", place: str = "a/12:00") -> Published:
    return Published(f"{name}/{DAY}T{slot}/a", name, DAY, place, charge, 7, 3, record)


@dataclass
class Stage:
    """A ledger and a partition with something of everything in them, and every script that writes, ready to run."""

    redis: Redis
    name: str
    policy: Policy
    partition: PartitionStore
    changes: Changes
    token: str = ""

    @property
    def recovery(self) -> RecoveryStore:
        return RecoveryStore(self.redis, self.name, self.policy.name)

    @property
    def ledger(self) -> LedgerStore:
        return LedgerStore(self.redis, self.name, self.policy)

    async def guard(self) -> CommitGuard:
        """What owns release partition 0 now."""
        guard = CommitGuard(self.token)
        guard.own((await self.recovery.read_state([0])).sequences)
        return guard

    async def commit(self, wanted: Sequence[Proposal]) -> object:
        return await self.ledger.commit(wanted, await self.guard())

    async def answer(self, wanted: Sequence[AnswerProposal]) -> object:
        return await self.ledger.commit_answers(wanted, await self.guard())

    async def fill(self) -> None:
        """What each of the scripts finds."""
        redis, keys, ledger, recovery = self.redis, DomainKeys(self.name), self.ledger, self.recovery
        self.token = (await guard_of_all(redis, self.name, self.policy.name)).token
        await self.commit([proposal(self.name, f"{h}:00", f"{c}/12:00") for h in (9, 10) for c in "ab"])
        await adopt(recovery, RecoveryCheck.finished(self.token), [published(self.name, "8:00", NANO)])
        await recovery.restore_reservation(Answered(self.name, "other", Period(date.fromisoformat(NEXT), 1), 2, NANO))
        await ledger.progress.restore(NOON_MS + HOUR_MS, NOON_MS + HOUR_MS, [0])
        await claim_user_key(redis, keys, None)
        await PolicyTransitionStore(redis, self.name).claim("older", NextPolicy(DAY, "old"))
        await redis.hset(keys.ledger(NEXT), f"commits:{self.name}", "9")
        await redis.hset(keys.ledger(DAY), f"query:{self.name}:untold", f"0x{NANO}")
        await recovery.seals.seal("sealed", DAY, self.token)
        await redis.sadd(keys.unsealed("sealed"), DAY)
        await redis.hset(keys.oldest, f"t/0 {DAY} sealed", ":1")
        await redis.hset(keys.releases(DAY, "sealed"), "id", "record")
        stored: Any = await redis.hgetall(keys.recovery)  # Any: bytes, but the types allow for text
        begun: Mapping[Any, Any] = {
            "attempt": "a",
            "attempt_run_id": stored[b"run_id"],
            "attempt_replid": stored[b"replid"],
        }
        await redis.hset(keys.recovery, mapping=begun)
        await redis.hset(keys.ends, OUTPUT.field, ":0")
        await self.partition.open(0, 0)
        assert await self.partition.checkpoint(0, 0, 1, self.changes)
        await self.partition.delete(self.hats()[:1], keep=True)

    def hats(self) -> list[FinalHat]:
        return [FinalHat(slot, cell, 0) for slot, cells in self.changes.hats.items() for cell in cells]

    def acts(self) -> dict[str, Act]:
        """By script: what a worker asks of it."""
        ledger, recovery, name, keys = self.ledger, self.recovery, self.name, DomainKeys(self.name)
        kept = RetainedStore(self.redis, name, 1)
        answer = AnswerProposal(f"{name}/{DAY}T12:00/a/q", DAY, [DAY, NEXT], "q", Reserved(1, NANO), *PARTS, 0)
        here = published(name, "9:00", NANO, b'{"seq":1}')
        paid = replace(
            self.policy, selection_cost=SelectionCost(1.0, date.fromisoformat(DAY), date.fromisoformat("2022-01-05"))
        )
        reserved = (ReservedRecord(query="q", epsilon=1.0, places=2),)
        budget = budget_record("lost", DAY, 99, max_hats_per_day=3, queries=reserved)
        fresh = [published(name, f"{h}:00", NANO, place=f"{h}/12:00") for h in range(11, 14)]

        async def adopt_fresh() -> None:
            known = (await recovery.adopted()).get(OUTPUT)
            chunk = AdoptionBatch(OUTPUT, known, Position("", 9), list(enumerate(fresh, 1)))
            await recovery.adopt(
                RecoveryCheck.finished(self.token), chunk, frozenset(each.release_id for each in fresh)
            )

        seal = Sealed(policy="lost", through=DAY, partitions=1, starts={})
        fields = {"commits:lost": "1", "releases:lost": "1"}
        lost = SealedDay(
            policy="lost", date=DAY, cost=5, sequence=99, limit="7", total_limit="8", fields=fields, levels={"5": "1"}
        )
        return {
            "adopt": adopt_fresh,
            "begin": lambda: recovery._begin(keys=[keys.recovery, keys.ends], args=["own", "a", "0"]),
            "store_ends": lambda: recovery._store_ends(keys=[keys.recovery, keys.ends], args=["a", OUTPUT.field, ":1"]),
            "finish": lambda: recovery._finish(keys=[keys.recovery, keys.ends, keys.adopted], args=["a"]),
            "read_recovery": lambda: recovery.read_state([0]),
            "restore_day": lambda: recovery.seals.restore({"lost": seal}, [lost]),
            "restore_key": lambda: restore_made_key(self.redis, keys, None, [StoredKey("f", b"key")]),
            "seal": lambda: recovery.seals.seal(name, "2022-01-01", self.token),
            "shrink": lambda: recovery.seals.shrink("sealed", [DAY]),
            "advance_progress": lambda: ledger.progress.advance(
                Mark.PUBLISHED, [0, 1], NOON_MS + 2 * HOUR_MS, self.token
            ),
            "answer": lambda: self.answer([answer]),
            "checkpoint": lambda: self.partition.checkpoint(0, 1, 2, self.changes),
            "claim": lambda: claim_user_key(self.redis, keys, None),
            "commit": lambda: self.commit([proposal(name, "11:00", "a/12:00")]),
            "delete": lambda: self.partition.delete(self.hats(), keep=True),
            "delete_retained": lambda: kept.delete([(hat.slot, hat.cell) for hat in self.hats()]),
            "open": lambda: self.partition._open(keys=[PartitionKeys(name, 0).state], args=["0", "another", "", ""]),
            "restore_budget": lambda: recovery.restore_budget(budget),
            "restore_reservation": lambda: recovery.restore_reservation(
                Answered(name, "q", Period(date.fromisoformat(DAY), 1), 1, NANO)
            ),
            "restore_progress": lambda: ledger.progress.restore(NOON_MS, NOON_MS + 2 * HOUR_MS, [0, 1]),
            "skip": lambda: self.partition._skip(keys=[PartitionKeys(name, 0).state], args=["1", "9"]),
            "book_spent": SpentStore(self.redis, name, paid).confirm,
            "discard": lambda: recovery.unsent.discard(Attempt("a", ours=True, is_fenced=True), here),
            "unreserve": lambda: recovery.unsent.unreserve(Attempt("a", ours=True, is_fenced=True), [(name, DAY)]),
            "claim_next_policy": lambda: PolicyTransitionStore(self.redis, name).claim(
                name, NextPolicy("2022-02-01", "next")
            ),
            "supersede": lambda: recovery.supersede(here, published(name, "9:00", 2 * NANO)),
            "sweep": lambda: self.partition.sweep(DAY),
        }


@asynccontextmanager
async def staged(url: str) -> AsyncIterator[Stage]:
    name = f"t-scripts-{uuid.uuid4().hex[:8]}"
    policy = policy_of(name=name, lateness="48h")
    fold = folds(policy)[0]
    fold.apply(LATER_MS, [NOON_MS], [next(s for s in traffic() if s.partition == 0).value])
    async with Redis.from_url(url) as redis:
        stage = Stage(redis, name, policy, PartitionStore(redis, name, 1), take_changes(fold))
        await stage.fill()
        yield stage
        keys = [key async for key in redis.scan_iter(f"{{{name}*")]
        await redis.delete(*keys)


Harm = Callable[[Redis, bytes], Awaitable[object]]


def harms(before: Contents, after: Contents) -> Iterator[tuple[str, bytes, bytes | None, object]]:
    """What may be wrong with a key: another type, a number that is none, and one that is too large."""
    for key in sorted(before.keys() | after.keys()):
        yield "type", key, None, None
        found = [fields for fields in (before.get(key), after.get(key)) if isinstance(fields, dict)]
        for field in sorted({field for fields in found for field, value in fields.items() if value.isdigit()}):
            yield "text", key, field, b"x"
            yield "size", key, field, b"9" * 40


async def harm(redis: Redis, key: bytes, field: bytes | None, value: Any) -> None:
    if field is None:
        await redis.delete(key)
        await redis.rpush(key, "of another type")
    else:
        await redis.hset(key, field, value)


def without(found: Contents, key: bytes, field: bytes | None) -> Contents:
    """All but what was harmed."""
    rest = {each: value for each, value in found.items() if each != key}
    fields = found.get(key)
    if field is not None and isinstance(fields, dict):
        rest[key] = {each: value for each, value in fields.items() if each != field}
    return rest


async def check_each_harm(url: str, only: frozenset[str] = frozenset()) -> dict[str, int]:
    """Run each script beside each harm: it writes all or nothing. Returns how often each wrote nothing."""
    refused: dict[str, int] = {}
    async with staged(url) as stage:
        redis, saved = stage.redis, dict[bytes, bytes]()
        async for key in redis.scan_iter(f"{{{stage.name}*"):
            saved[key] = await redis.dump(key) or b""

        async def go_back() -> None:
            async with redis.pipeline() as pipe:
                pipe.delete(*await redis.keys(f"{{{stage.name}*"), "-")
                for key, dump in saved.items():
                    pipe.restore(key, 0, dump)
                await pipe.execute()

        intact = await contents(redis, stage.name)
        for script, act in stage.acts().items():
            if only and script not in only:
                continue
            await go_back()
            await act()
            whole, refused[script] = await contents(redis, stage.name), 0
            for what, key, field, value in harms(intact, whole):
                await go_back()
                await harm(redis, key, field, value)
                before = await contents(redis, stage.name)
                try:
                    await act()
                except (RedisError, ValueError):  # ValueError: the shell reads what stands there
                    refused[script] += 1
                after = await contents(redis, stage.name)
                unchanged = after == before
                done = without(after, key, field) == without(whole, key, field)
                assert unchanged or done, f"{script} wrote a part beside {what} of {key!r} {field!r}"
    return refused


def test_every_script_writes_all_or_nothing_whatever_is_wrong_with_a_key(redis_server: RedisServer) -> None:
    refused = asyncio.run(check_each_harm(redis_server.url))
    # Without a key that it could stumble over, a script proves nothing here.
    assert all(refused.values()), refused
    writing = {path.name.removesuffix(".lua") for path in _scripts() if "redis.call('H" in path.read_text()}
    reading = {"load", "list_retained", "load_retained", "summary"}
    parts = {"amounts", "booking", "deciding", "staging"}
    assert refused.keys() | reading | parts >= writing


def _scripts() -> list[Any]:
    from importlib import resources

    return [path for path in resources.files("hatcast.agents.redis").iterdir() if path.name.endswith(".lua")]


# A part of the scripts, and what a mutant has in its place.
WRITES_ANYWAY = ("staging", "if rejection then return rejection end", "")
WRITES_AT_ONCE = (
    "staging",
    "hash.known[field] = value\n",
    "hash.known[field] = value\n  if value then redis.call('HSET', key, field, value) end\n",
)
LOOKS_AT_NO_TYPE = (
    "staging",
    "local function is_a(kind, key) return",
    "local function is_a(kind, key) return true or",
)
ROUNDS = (
    "amounts",
    "return amount_of(a[1] + b[1], a[2] + b[2]) end",
    "return amount_of(0, (a[1] + b[1]) * 1e9 + a[2] + b[2]) end",
)
COUNTS_ON = ("amounts", "if not (value[1] < MOST) then reject('overflow', key) end", "")


def break_scripts(monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, str, str]) -> None:
    part, product, broken = mutant
    text = scripts._text
    assert text(part).count(product) == 1

    def mutated(name: str) -> str:
        return text(name).replace(product, broken) if name == part else text(name)

    monkeypatch.setattr(scripts, "_text", mutated)


@pytest.mark.parametrize("mutant", [WRITES_ANYWAY, WRITES_AT_ONCE, LOOKS_AT_NO_TYPE])
def test_the_check_sees_scripts_that_write_before_they_know(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, str, str]
) -> None:
    break_scripts(monkeypatch, mutant)
    with pytest.raises(AssertionError, match="wrote a part"):
        asyncio.run(check_each_harm(redis_server.url, frozenset({"commit", "checkpoint"})))


def test_a_script_that_writes_nothing_says_so_in_one_line_with_the_key_and_what_to_do(
    redis_server: RedisServer,
) -> None:
    async def ask() -> None:
        async with staged(redis_server.url) as stage:
            ledger = DomainKeys(stage.name).ledger(DAY)
            await stage.redis.hset(ledger, f"releases:{stage.name}", "x")
            with pytest.raises(Damaged, match=r"ledger:2022-01-02.*nothing was written: restore all of Redis"):
                await stage.acts()["commit"]()
            await stage.redis.hset(ledger, f"releases:{stage.name}", str(2**53 - 1))
            with pytest.raises(Overflow, match=r"ledger:2022-01-02.*nothing was written: start"):
                await stage.acts()["commit"]()

    asyncio.run(ask())


# Numbers


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
    own, charge = PolicyDay(found.cap), found.charge
    for level, number in found.levels.items():
        for n in range(number):
            own.add_charge(f"{level}-{n}", level)
    day = DayLedger({name: own, "other": PolicyDay(1, hats=found.of_day)})
    total = Total(day.cost + found.of_others)
    place = min(own.costs, default="new") if found.again else "new"
    keys = DomainKeys(name)
    async with Redis.from_url(url) as redis:
        guard = await guard_of_all(redis, name, policy.name)
        costs = {f"cap:{name}": own.cap, "cost": day.cost, f"cost:{name}": own.cost, "cost:other": found.of_day}
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
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, str, str]
) -> None:
    _large(redis_server.url)
    break_scripts(monkeypatch, mutant)
    with pytest.raises(AssertionError):
        _large(redis_server.url)
