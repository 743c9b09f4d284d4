"""A Redis that is full (`maxmemory`, `noeviction`): nothing is written by halves or lost, and one line says so."""

import dataclasses
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from hatcast.agents.errors.causes import is_full
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.identity import StoredKey, claim_policy, restore_made_key
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.policy_state import ClusteringStore, PolicyTransitionStore, SpentStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import AdoptionBatch, Answered, Position, Published
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import Mark
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal
from hatcast.stream.ledger.recovery import Attempt, RecoveryCheck
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from tests.integration.health import LISTEN, is_ready, missing
from tests.integration.readings import (
    EXACT,
    HOUR_MS,
    LATER_MS,
    NOON_MS,
    assert_exact_means,
    folds,
    ticks,
    traffic,
)
from tests.integration.recovering import OUTPUT, budget_record, guard_of_all, restore
from tests.integration.test_own_redis import pipeline_on
from tests.laws.script_stage import staged
from tests.replayed import policy_of
from tests.services import KafkaServer, local_redis
from tests.services.data import ROOT

DATE = "2022-01-02"
RECORDS = 250  # a megabyte of them
USERS = Pseudonyms(bytes(KEY_BYTES))
KEY = StoredKey.of(USERS, made=True)
SEALED = Sealed(policy="other", through="2022-01-01", rules="", partitions=2, starts={})
SEALED_DAY = SealedDay(
    policy="other",
    date="2022-01-01",
    cost=10**9,
    sequence=1,
    limit=str(10**10),
    total_limit="",
    fields={"commits:other": "1", "releases:other": "1", "cap:other": "5"},
    levels={str(10**9): "1"},
)


async def test_every_script_writes_all_or_nothing_where_redis_is_full() -> None:
    with local_redis() as server:
        await _refuse_each(server.url)


async def _refuse_each(url: str) -> None:
    policy = policy_of(name="full", lateness="48h")
    paid = dataclasses.replace(policy, selection_cost=SelectionCost(1.0, date(2022, 1, 5), date(2022, 1, 6)))
    parts = (b'{"seq":', b"}"), (b"{", b"}")
    proposal = Proposal(f"full/{DATE}T12:00/c", DATE, "c/12:00", 10**9, *parts, release_partition=0)
    answer = AnswerProposal(f"full/{DATE}T12:00/c/q", DATE, [DATE], "q", Reserved(1, 10**9), *parts, 0)
    unsent = Published(proposal.release_id, "full", DATE, proposal.place, 10**9, 100, 0, b'{"seq":100}')
    answered = Answered("full", "other", Period(date.fromisoformat(DATE), 1), 1, 10**9)
    budget = budget_record("full", DATE, 9)
    fold = folds(policy)[0]
    fold.apply(LATER_MS, [NOON_MS], [next(s for s in traffic() if s.partition == 0).value])
    changes = take_changes(fold)
    async with Redis.from_url(url) as redis:
        store, recovery = PartitionStore(redis, "full", 2), RecoveryStore(redis, "full", "full")
        ledger = LedgerStore(redis, "full", policy)
        clusterings = ClusteringStore(redis, "full", policy)
        await store.open(0, 0)
        await redis.hset(
            DomainKeys("full").row(rows.ledger(DATE)), "commits:full", "99"
        )  # numbers that were lost unsent
        token = (await guard_of_all(redis, "full", "full")).token
        begun, finished = list[Attempt](), RecoveryCheck.finished(token)

        async def begin() -> None:
            begun.append(await recovery.begin())

        writes: dict[str, Callable[[], Awaitable[object]]] = {
            "checkpoint": lambda: store.checkpoint(0, 0, 1, changes),
            "open": lambda: store.open(1, 0),
            "skip": lambda: store._skip(keys=["{full:0}:state"], args=["1", "9"]),
            "commit": lambda: ledger.commit([proposal], CommitGuard(token, {0: 0})),
            "answer": lambda: ledger.commit([answer], CommitGuard(token, {0: 1})),
            "reserve_clustering": lambda: clusterings.reserve("clustering-1", DATE, 10**9),
            "restore_reservation": lambda: restore(recovery, finished, answered=[answered]),
            "adopt": lambda: recovery.adopt(RecoveryCheck.finished(token), _chunk(1, Position("", 0)), _ids(1)),
            "supersede": lambda: recovery.supersede(finished, _published(1)[0], replace(_published(1)[0], record=b"y")),
            "restore_budget": lambda: restore(recovery, finished, [budget]),
            "advance_progress": lambda: ledger.progress.advance(Mark.COMMITTED, [0], NOON_MS, token),
            "store_tracker": lambda: ledger.tracker.store(DATE, b"state", token),
            "restore_progress": lambda: ledger.progress.restore(NOON_MS, NOON_MS + HOUR_MS, [0]),
            "restore_key": lambda: restore_made_key(redis, DomainKeys("full"), USERS.fingerprint, [KEY]),
            "claim": lambda: claim_policy(redis, DomainKeys("full"), policy, 2),
            "book_spent": SpentStore(redis, "full", paid).book,
            "claim_next_policy": lambda: PolicyTransitionStore(redis, "full").claim("old", NextPolicy(DATE, "full")),
            "seal": lambda: recovery.seals.seal("full", "2022-01-01", token),
            "restore_day": lambda: recovery.seals.restore(finished, {"other": SEALED}, [SEALED_DAY]),
            "begin": begin,
            "discard": lambda: recovery.unsent.discard(begun[-1], unsent),
            "store_ends": lambda: recovery.store_ends(begun[-1], {OUTPUT: Position("", 1)}),
            "finish": lambda: recovery.finish(begun[-1], {}, {}),
        }
        make_room, reads = {"delete", "delete_retained", "sweep"}, {"load", "list_retained", "load_retained", "read"}
        files = {path.stem for path in (ROOT / "agents" / "redis").glob("*.lua")}
        assert files - make_room - reads - {"apply", "index", "staging"} <= writes.keys()
        for name, write in writes.items():
            before = await _everything(redis)
            await redis.config_set("maxmemory", "1")
            if name in ("begin", "finish"):  # they delete a key first, so that they run to their end
                await write()
            else:
                with pytest.raises(ResponseError, check=is_full):
                    await write()
                assert await _everything(redis) == before, name
            await redis.config_set("maxmemory", "0")
            if name not in ("begin", "finish"):
                await write()
            assert await _everything(redis) != before, name


def _published(records: int) -> list[Published]:
    return [
        Published(f"full/{DATE}T13:00/{n}", "full", DATE, f"{n}/13:00", 10**9, n, 0, b"x" * 4_000)
        for n in range(records)
    ]


def _ids(records: int) -> frozenset[str]:
    return frozenset(record.release_id for record in _published(records))


def _chunk(records: int, known: Position | None = None) -> AdoptionBatch:
    """The first records of an output partition."""
    return AdoptionBatch(OUTPUT, known, Position("", records), list(enumerate(_published(records))))


async def _everything(redis: Redis) -> dict[bytes, bytes | None]:
    return {key: await redis.dump(key) async for key in redis.scan_iter()}


@pytest.mark.parametrize("script", ["delete", "delete_retained", "sweep"])
async def test_a_full_redis_deletes_what_is_not_needed_any_more(script: str) -> None:
    async def keys_left(url: str) -> tuple[int, int]:
        async with staged(url) as stage:
            before = await stage.redis.dbsize()
            await stage.redis.config_set("maxmemory", "1")
            await stage.acts()[script]()
            await stage.redis.config_set("maxmemory", "0")
            return before, await stage.redis.dbsize()

    with local_redis() as server:
        before, after = await keys_left(server.url)
    assert after < before


async def test_a_script_that_would_fill_redis_is_refused_before_it_writes_or_runs_to_its_end() -> None:
    with local_redis() as server:
        whole = await _adopt_at_limits(server.url)
    assert set(whole) == {False, True}


async def _adopt_at_limits(url: str) -> list[bool]:
    """Whether a script of 1 MB was run, at limits that leave it more and more room."""
    whole: list[bool] = []
    async with Redis.from_url(url) as redis:
        recovery = RecoveryStore(redis, "full", "full")
        attempt = await recovery.begin()
        begun = await _everything(redis)
        used = int((await redis.info("memory"))["used_memory"])
        for room in range(0, 6_000_000, 50_000):
            await redis.config_set("maxmemory", used + room)
            try:
                await recovery.adopt(RecoveryCheck.in_progress(attempt.token), _chunk(RECORDS), _ids(RECORDS))
            except ResponseError as error:
                assert is_full(error)
                assert await _everything(redis) == begun
                whole.append(False)
            else:
                assert await redis.hlen(DomainKeys("full").row(rows.releases(DATE, "full"))) == RECORDS
                assert (await recovery.adopted())[OUTPUT] == Position("", RECORDS)
                await redis.config_set("maxmemory", 0)
                await redis.flushdb()
                attempt = await recovery.begin()
                begun = await _everything(redis)
                whole.append(True)
    return whole


def test_a_worker_whose_redis_is_full_waits_says_so_once_and_loses_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    changes = {**LISTEN, "policy": {"privacy": EXACT}}
    with (
        local_redis() as server,
        closing(server.client()) as redis,
        pipeline_on(kafka, server, tmp_path, changes) as pipeline,
    ):
        samples, telemetry = traffic(4), pipeline.settings.topics.telemetry
        ensure_topics(pipeline.settings)
        worker = pipeline.worker()
        kafka.produce(telemetry, [sample.record() for sample in samples if sample.time_ms < NOON_MS + HOUR_MS])
        pipeline.wait(pipeline.is_caught_up, "first hour", worker)
        redis.config_set("maxmemory", "1")
        kafka.produce(telemetry, [sample.record() for sample in samples if sample.time_ms >= NOON_MS + HOUR_MS])
        kafka.produce(telemetry, ticks(NOON_MS + 5 * HOUR_MS))
        pipeline.wait(lambda: "checkpoint" in missing(worker), "worker that is not ready", worker)
        before = pipeline.folded()
        assert before < len(samples)
        said = [json.loads(line) for line in worker.logged().splitlines() if "Redis is full: raise" in line]
        assert {"ingest"} <= {line["loop"] for line in said} <= {"ingest", "release"}
        assert len(said) == len({line["loop"] for line in said})
        assert pipeline.published() == {}
        redis.config_set("maxmemory", "0")
        pipeline.wait(lambda: pipeline.is_settled() and is_ready(worker), "releases of everything", worker)
        assert pipeline.outcomes() == {"accepted": len(samples)}
        assert_exact_means(pipeline, samples)
