"""A ledger and a partition in Redis, and every script that writes, ready to run."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from msgspec.structs import replace as replaced
from redis.asyncio import Redis

from hatcast.agents.redis.estimates import RunningSnapshot, StoredSnapshot
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.identity import StoredKey, claim_user_key, restore_made_key
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.policy_state import ClusteringStore, PolicyTransitionStore, SpentStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.stream.fold.checkpoint import FoldChanges, take_changes
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import AdoptionBatch, Answered, Position, Published
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import Mark
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal, StateChange
from hatcast.stream.ledger.recovery import RECOVERY_ROWS, Attempt, RecoveryCheck, begin
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Period
from hatcast.stream.records import ReservedRecord
from hatcast.stream.tracker.state import ModelState, SmootherState
from tests.integration.readings import HOUR_MS, LATER_MS, NOON_MS, Sample, folds, traffic
from tests.integration.recovering import OUTPUT, adopt, budget_record, guard_of_all, restore
from tests.laws.redis_scripts import DAY, NANO, PARTS, proposal
from tests.replayed import policy_of

NEXT = "2022-01-03"

Act = Callable[[], Awaitable[object]]


def published(name: str, slot: str, charge: int, record: bytes = b"sent", place: str = "a/12:00") -> Published:
    return Published(f"{name}/{DAY}T{slot}/a", name, DAY, place, charge, 7, 3, record)


def running_sum(name: str, slot: str, before: bytes | None, after: bytes) -> Proposal:
    """A running sum of the cell `a`, in the horizon that begins on DAY."""
    of_hat = proposal(name, slot, "a/12:00")
    return replace(of_hat, release_id=f"{name}/{DAY}T{slot}/a", change=StateChange(DAY, "a", before, after))


@dataclass
class Stage:
    """A ledger and a partition with something of everything in them, and every script that writes, ready to run."""

    redis: Redis
    name: str
    policy: Policy
    partition: PartitionStore
    changes: FoldChanges
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
        return await self.ledger.commit(wanted, await self.guard())

    async def fill(self) -> None:
        """What each of the scripts finds."""
        redis, keys, ledger, recovery = self.redis, DomainKeys(self.name), self.ledger, self.recovery
        self.token = (await guard_of_all(redis, self.name, self.policy.name)).token
        await self.commit([proposal(self.name, f"{h}:00", f"{c}/12:00") for h in (9, 10) for c in "ab"])
        await self.commit([running_sum(self.name, "6:00", None, b"first")])
        await adopt(recovery, RecoveryCheck.finished(self.token), [published(self.name, "8:00", NANO)])
        other = Answered(self.name, "other", Period(date.fromisoformat(NEXT), 1), 2, NANO)
        await restore(recovery, RecoveryCheck.finished(self.token), answered=[other])
        await ledger.progress.restore(NOON_MS + HOUR_MS, NOON_MS + HOUR_MS, [0])
        await claim_user_key(redis, keys, None)
        await PolicyTransitionStore(redis, self.name).claim("older", NextPolicy(DAY, "old"))
        await redis.hset(keys.row(rows.ledger(NEXT)), f"commits:{self.name}", "9")
        await redis.hset(keys.row(rows.ledger(DAY)), f"query:{self.name}:untold", f"0x{NANO}")
        await recovery.seals.seal("sealed", DAY, self.token)
        await redis.sadd(keys.row(rows.unsealed("sealed")), DAY)
        await redis.hset(keys.row(rows.OLDEST), f"t/0 {DAY} sealed", ":1")
        await redis.hset(keys.row(rows.releases(DAY, "sealed")), "id", "record")
        stored: Any = await redis.hgetall(keys.row(rows.RECOVERY))  # Any: bytes, but the types allow for text
        begun: Mapping[Any, Any] = {
            "attempt": "a",
            "attempt_run_id": stored[b"run_id"],
            "attempt_replid": stored[b"replid"],
        }
        await redis.hset(keys.row(rows.RECOVERY), mapping=begun)
        await redis.hset(keys.row(rows.ENDS), OUTPUT.field, ":0")
        await self.partition.open(0, 0)
        assert await self.partition.checkpoint(0, 0, 1, self.changes)
        await self.partition.final_hats.delete(self.hats()[:1], keep=True)

    def hats(self) -> list[FinalHat]:
        return [FinalHat(slot, cell, 0) for slot, cells in self.changes.hats.items() for cell in cells]

    def acts(self) -> dict[str, Act]:
        """By script: what a worker asks of it."""
        ledger, recovery, name, keys = self.ledger, self.recovery, self.name, DomainKeys(self.name)
        kept = RetainedStore(self.redis, name, 1)
        answer = AnswerProposal(f"{name}/{DAY}T12:00/a/q", DAY, [DAY, NEXT], "q", Reserved(1, NANO), *PARTS, 0)
        here = replaced(published(name, "6:00", NANO, b'{"seq":5}'), horizon=DAY, is_drawn=True)
        paid = replace(
            self.policy, selection_cost=SelectionCost(1.0, date.fromisoformat(DAY), date.fromisoformat("2022-01-05"))
        )
        reserved = (ReservedRecord(query="q", epsilon=1.0, places=2),)
        budget = budget_record("lost", DAY, 99, max_hats_per_day=3, queries=reserved)
        fresh = [published(name, f"{h}:00", NANO, place=f"{h}/12:00") for h in range(11, 14)]
        fresh[1] = replaced(fresh[1], horizon=NEXT)

        async def adopt_fresh() -> None:
            known = (await recovery.adopted()).get(OUTPUT)
            chunk = AdoptionBatch(OUTPUT, known, Position("", 9), list(enumerate(fresh, 1)))
            await recovery.adopt(
                RecoveryCheck.finished(self.token), chunk, frozenset(each.release_id for each in fresh)
            )

        attempt, check = Attempt("a", ours=True, is_fenced=True), RecoveryCheck.in_progress("a")
        seal = Sealed(policy="lost", through=DAY, rules="", partitions=1, starts={})
        fields = {"commits:lost": "1", "releases:lost": "1"}
        lost = SealedDay(
            policy="lost", date=DAY, cost=5, sequence=99, limit="7", total_limit="8", fields=fields, levels={"5": "1"}
        )
        return {
            "adopt": adopt_fresh,
            "begin": lambda: recovery._rows.decide(RECOVERY_ROWS, lambda view: begin(view, "own", "a", 0)),
            "store_ends": lambda: recovery.store_ends(attempt, {OUTPUT: Position("", 1)}),
            "finish": lambda: recovery.finish(attempt, {}, {}),
            "restore_day": lambda: recovery.seals.restore(check, {"lost": seal}, [lost]),
            "restore_key": lambda: restore_made_key(self.redis, keys, None, [StoredKey("f", b"key")]),
            "seal": lambda: recovery.seals.seal(name, "2022-01-01", self.token),
            "shrink": lambda: recovery.seals.shrink("sealed", [DAY]),
            "advance_progress": lambda: ledger.progress.advance(
                Mark.PUBLISHED, [0, 1], NOON_MS + 2 * HOUR_MS, self.token
            ),
            "answer": lambda: self.answer([answer]),
            "checkpoint": lambda: self.partition.checkpoint(0, 1, 2, self.changes),
            "claim": lambda: claim_user_key(self.redis, keys, None),
            "commit": lambda: self.commit([running_sum(name, "11:00", b"first", b"second")]),
            "delete": lambda: self.partition.final_hats.delete(self.hats(), keep=True),
            "delete_retained": lambda: kept.delete([(hat.slot, hat.cell) for hat in self.hats()]),
            "open": lambda: self.partition._open(
                keys=[PartitionKeys(name, 0).state], args=["0", "another", "", "", "next"]
            ),
            "restore_budget": lambda: restore(recovery, check, [budget]),
            "restore_reservation": lambda: restore(
                recovery, check, answered=[Answered(name, "q", Period(date.fromisoformat(DAY), 1), 1, NANO)]
            ),
            "restore_progress": lambda: ledger.progress.restore(NOON_MS, NOON_MS + 2 * HOUR_MS, [0, 1]),
            "skip": lambda: self.partition._skip(keys=[PartitionKeys(name, 0).state], args=["1", "9", "next"]),
            "book_spent": SpentStore(self.redis, name, paid).confirm,
            "discard": lambda: recovery.unsent.discard(attempt, here),
            "keep": lambda: recovery.unsent.keep(attempt, name, DAY, [here.release_id]),
            "unreserve": lambda: recovery.unsent.unreserve(attempt, [(name, DAY)]),
            "claim_next_policy": lambda: PolicyTransitionStore(self.redis, name).claim(
                name, NextPolicy("2022-02-01", "next")
            ),
            "supersede": lambda: recovery.supersede(
                check, here, replaced(published(name, "6:00", 2 * NANO), horizon=DAY, is_drawn=True)
            ),
            "store_tracker": lambda: ledger.tracker.store(DAY, b"state", self.token),
            "reserve_clustering": lambda: ClusteringStore(self.redis, name, self.policy).reserve("c", NEXT, NANO),
            "sweep": lambda: self.partition.final_hats.sweep(DAY, DAY),
        }


@asynccontextmanager
async def staged(url: str) -> AsyncIterator[Stage]:
    name = f"t-scripts-{uuid.uuid4().hex[:8]}"
    policy = policy_of(name=name, lateness="48h")
    fold = folds(policy)[0]
    vehicle = next(sample.vehicle for sample in traffic() if sample.partition == 0)
    fold.apply(LATER_MS, [NOON_MS] * 2, [Sample(vehicle, NOON_MS, place).value for place in (0, 3)])
    async with Redis.from_url(url) as redis:
        stage = Stage(redis, name, policy, PartitionStore(redis, name, 1), take_changes(fold))
        await stage.fill()
        yield stage
        keys = [key async for key in redis.scan_iter(f"{{{name}*")]
        await redis.delete(*keys)


def empty_snapshot(policy_id: str) -> StoredSnapshot:
    """A snapshot of the estimates of a policy that has no cell yet."""
    model = ModelState(
        cells=(), prior_scale=0, shared=b"", slopes=b"", variance=b"", drifted=b"", means=b"", intercepts=b""
    )
    state = SmootherState(
        policy_id=policy_id,
        date=DAY,
        model=model,
        start_ms=NOON_MS,
        calibration=(),
        usual=(0.0, 0.0),
    )
    return StoredSnapshot(positions={0: 7}, state=state, running=RunningSnapshot(days=1, dates=[DAY]))
