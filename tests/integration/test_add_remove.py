"""Releases under `add_remove` against real Kafka and Redis: every listed cell of every slot, whoever was there."""

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest
from redis import Redis

from hatcast.agents.clock import now_ms
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release.hats import DueHat
from hatcast.agents.release.kind import release_partition_of
from hatcast.agents.release.queries import DueAnswer
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from tests.integration.answering import answering
from tests.integration.crashing_worker import die_after
from tests.integration.harness import Pipeline
from tests.integration.hidden import (
    CELLS,
    EPSILON,
    SLOTS,
    in_partitions,
    open_hidden,
    progress_key,
    release_ids,
    stamp_by,
)
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample, open_stores, store_closed, ticks, traffic
from tests.integration.test_release import STEPS, CrashError, CrashingProducers, crash_after, releasing
from tests.services import KafkaServer, Received, Record, RedisServer
from tests.services.data import recording
from tests.services.kafka_server import PARTITIONS

DATE = "2022-01-02"
DAY_MS = 24 * HOUR_MS
OVER_MS = NOON_MS + 3 * HOUR_MS + 300_000  # closes 14:00
DAY = [f"{DATE}T{slot}" for slot in SLOTS]
HALVES = frozenset(range(2)), frozenset(range(2, PARTITIONS))
ANSWER = {"status", "mean", "raw", "unit", "noise", "interval95", "covers"}


OVER_LIMIT = [{"name": "over", "kind": "over_speed_limit", "days": 1, "epsilon": EPSILON / 10, "speed_limit": 5.0}]


def records(pipeline: Pipeline) -> list[dict[str, Any]]:
    """One of each release, in the order of release_ids."""
    published = pipeline.published(committed=False)
    assert {name: len(set(values)) for name, values in published.items() if len(set(values)) != 1} == {}
    return [json.loads(published[name][0]) for name in sorted(published)]


def assert_all_released_once(pipeline: Pipeline, slots: Sequence[str]) -> None:
    """Every listed cell of these slots: one value, one charge, in the order of cells in each partition."""
    assert [each["release_id"] for each in records(pipeline)] == release_ids(pipeline, *slots)
    for log in in_partitions(pipeline):
        seen = list(dict.fromkeys(received.key.decode() for received in log))
        assert seen == sorted(seen)
    for each in records(pipeline):
        end = datetime.fromisoformat(each["end"]).timestamp()
        assert datetime.fromisoformat(each["released_at"]).timestamp() == end + 300
        assert "seq" not in each
    days = pipeline.budget_records()
    assert {key.rpartition("/")[2] for key in days} == {slot[:10] for slot in slots}
    for key, day in days.items():
        hats = len(CELLS) * sum(slot[:10] == key.rpartition("/")[2] for slot in slots)
        assert (day["releases"], day["seq"]) == (hats, hats)
        assert day["releases"] * EPSILON == day["epsilon_sum"]


def progress(pipeline: Pipeline) -> dict[str, int]:
    with closing(pipeline.redis_server.client()) as redis:
        stored: Any = redis.hgetall(progress_key(pipeline))
    return {field.decode(): int(value) for field, value in stored.items()}


def send(pipeline: Pipeline, *each: Record) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, each)


# Processes


def hold_recovery(redis: Redis, pipeline: Pipeline) -> None:
    """Begin to recover the ledger, as another worker does that has not fenced the publishers yet: all others wait.

    They give a recovery up that stays so; each call begins another.
    """
    server, replication = redis.info("server"), redis.info("replication")
    attempt: Mapping[Any, Any] = {  # Any: redis-py's types want each kind of field
        "attempt": secrets.token_hex(16),
        "attempt_run_id": server["run_id"],
        "attempt_replid": replication["master_replid"],
    }
    redis.hset(DomainKeys(pipeline.name).row(rows.RECOVERY), mapping=attempt)


@pytest.mark.timeout(240)
def test_two_workers_one_killed_release_each_listed_cell_and_slot_once_as_batch_does_and_go_on_after_a_flushall(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_hidden(kafka, redis_server, tmp_path, "hidden") as pipeline, closing(redis_server.client()) as redis:
        stamp_by(kafka, pipeline, "CreateTime")
        earlier = [Sample(f"GJ05BX{n:04}", NOON_MS - 60_000).record(NOON_MS + n) for n in range(5)]
        unlisted = [Sample(f"GJ05BX{n:04}", NOON_MS + 1000, place=4).record() for n in range(5)]
        send(pipeline, *earlier, *unlisted, *(sample.record() for sample in traffic()), *ticks(OVER_MS))
        stamp_by(kafka, pipeline, "LogAppendTime")
        hold_recovery(redis, pipeline)  # nothing is released before both are there
        dying = pipeline.worker(wrap=partial(die_after, "sent"))
        other = pipeline.worker()

        def is_folded_by_both() -> bool:
            hold_recovery(redis, pipeline)
            return all("partition started" in each.logged() for each in (dying, other)) and pipeline.is_caught_up()

        pipeline.wait(is_folded_by_both, "the whole log", dying, other)
        assert pipeline.outcomes() == {"accepted": 5 + 72, "outside_cells": 5}
        redis.hdel(DomainKeys(pipeline.name).row(rows.RECOVERY), "attempt")
        pipeline.wait(lambda: dying.code == -9, "kill -9 in a release", other)
        pipeline.wait(lambda: is_released(pipeline), "releases of everything", other)
        assert_all_released_once(pipeline, DAY)
        assert_means_are_true(pipeline)
        before = pipeline.published(committed=False)
        assert batch(pipeline) == [before[name][0] for name in sorted(before)]

        assert other.terminate() == 0
        pipeline.forget()  # FLUSHALL, for all that is ours
        third = pipeline.worker()
        pipeline.wait(lambda: is_released(pipeline), "the state as it was", third)
        assert progress(pipeline)["first"] == NOON_MS, (
            "the first slot is the first that was published, not one of today"
        )
        assert_all_released_once(pipeline, DAY)
        after = pipeline.published(committed=False)
        assert {name: values[0] for name, values in after.items()} == {
            name: values[0] for name, values in before.items()
        }


def is_released(pipeline: Pipeline) -> bool:
    return pipeline.is_settled() and pipeline.status()["released_through"] == "2022-01-02T15:00:00+00:00"


def assert_means_are_true(pipeline: Pipeline) -> None:
    """Twelve buses at 10, 11, .. km/h and one more a place, in two hours; nobody anywhere else."""
    means = {(DATE, slot, cell_of(place)): 15.5 + place for place in range(3) for slot in SLOTS[:2]}
    for each in records(pipeline):
        assert each.get("mean") == means.get((each["date"], each["slot"], each["cell"]))
        assert each["status"] == ("suppressed" if each.get("mean") is None else "released")


def cell_of(place: int) -> str:
    latitude, longitude = PLACES[place]
    return str(h3.latlng_to_cell(latitude, longitude, 7))


def batch(pipeline: Pipeline) -> list[bytes]:
    """What `hatcast batch --ledger` releases of the same log."""
    dump = pipeline.folder / "dump.jsonl"
    assert pipeline.hatcast("dump", "telemetry", "--output", dump).code == 0
    done = pipeline.run("batch", dump, "--format", "kafka", "--ledger", pipeline.folder / "ledger", "--json")
    return [line.encode() for line in done.out.splitlines()]


def test_a_first_start_begins_with_the_running_slot_by_the_brokers_clock_and_no_recording_may_be_replayed(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_hidden(kafka, redis_server, tmp_path, "first", {"policy": {"hours": [0, 24]}}) as pipeline:
        redis_server.delete(progress_key(pipeline))
        refused = pipeline.hatcast("feed", "replay", recording("golden/edge.jsonl"), "--format", "jsonl")
        assert (refused.code, "LogAppendTime, so a recording would lose its timestamps" in refused.err) == (1, True)
        calendar = Calendar(pipeline.settings.policy)
        began = now_ms()
        worker = pipeline.worker()
        pipeline.wait_for_partitions(worker)
        send(pipeline, *(sample.record() for sample in traffic(1)), *ticks(NOON_MS))  # CreateTime of 2022
        pipeline.wait(pipeline.is_caught_up, "the log", worker)
        status = pipeline.status()
        assert all(began - 60_000 < each["clock"] <= now_ms() + 60_000 for each in status["partitions"])
        possible = {calendar.local(calendar.slot_at(at).start_ms).isoformat() for at in (began, now_ms())}
        assert status["first_slot"] in possible
        assert status["released_through"] is None
        assert pipeline.published() == {}


# Steps, in this process


async def test_after_a_crash_at_each_step_and_two_days_of_silence_every_slot_between_is_released_once(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def crash_and_go_on(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS + 2 * DAY_MS)
            for step in STEPS:
                producers = CrashingProducers if step == "sent" else TransactionalProducers
                with pytest.raises(CrashError):
                    async with releasing(pipeline, stores, producers) as releaser:
                        crash_after(releaser.hats_path, step)
                        await releaser.round(asyncio.Event())
            async with releasing(pipeline, stores) as releaser:
                assert await releaser.round(asyncio.Event()) > 0
                assert not await releaser.final_slots()
                assert await releaser.round(asyncio.Event()) == 0
            assert await stores.partitions.open_slots() == {}

    with open_hidden(kafka, redis_server, tmp_path, "silence", {"policy": {"hours": [12, 14]}}) as pipeline:
        await crash_and_go_on(pipeline)
        assert_all_released_once(pipeline, [f"2022-01-0{2 + n}T{slot}" for n in range(3) for slot in SLOTS[:2]])
        assert_means_are_true(pipeline)


async def test_a_slot_is_sent_by_no_worker_before_all_of_it_has_records_and_the_budget_is_told_by_whole_slots(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def one_after_the_other(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            async with (
                releasing(pipeline, stores, owned=lambda: HALVES[0]) as one,
                releasing(pipeline, stores, owned=lambda: HALVES[1]) as other,
            ):
                assert await one.round(asyncio.Event()) == 0
                assert pipeline.published(committed=False) == {}, "the other half has no records yet"
                policy, names = pipeline.settings.policy, release_ids(pipeline, f"{DATE}T{SLOTS[0]}")
                ends = {name: release_partition_of(policy, name, name.split("/")[2], PARTITIONS) for name in names}
                half = {name for name, partition in ends.items() if partition in HALVES[1]}
                assert await other.round(asyncio.Event()) == len(half)
                assert pipeline.published(committed=False).keys() == half
                for _ in range(4):
                    await asyncio.gather(one.round(asyncio.Event()), other.round(asyncio.Event()))

    with open_hidden(kafka, redis_server, tmp_path, "together") as pipeline:
        await one_after_the_other(pipeline)
        assert_all_released_once(pipeline, DAY)
        told = [json.loads(each.value or b"") for each in pipeline.kafka.read(pipeline.settings.topics.budget)]
        assert {each["releases"] for each in told} == {len(CELLS) * n for n in (1, 2, 3)}
        assert len({json.dumps(each) for each in told}) == 3


async def test_days_with_deleted_records_are_incomplete_and_a_slot_beyond_the_budget_is_exhausted_as_a_whole(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    # All days may cost 20 HATs: the three complete slots have 18, and two of the next one would fit.
    privacy = {"unit": "user", "epsilon": 1e5, "total_limit": 2e6}

    async def release_by_two(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS + 2 * DAY_MS)
            await stores.redis.hset(f"{{{pipeline.name}:3}}:state", "complete_from", str(NOON_MS))
            async with (
                releasing(pipeline, stores, owned=lambda: HALVES[0]) as one,
                releasing(pipeline, stores, owned=lambda: HALVES[1]) as other,
            ):
                await one.round(asyncio.Event())  # recovers the ledger, which takes every producer
                while await one.final_slots():
                    await asyncio.gather(one.round(asyncio.Event()), other.round(asyncio.Event()))

    changes = {"policy": {"hours": [12, 14], "privacy": privacy}}
    with open_hidden(kafka, redis_server, tmp_path, "spent", changes) as pipeline:
        await release_by_two(pipeline)
        found: dict[str, set[str]] = {}
        for each in records(pipeline):
            found.setdefault(f"{each['date']}T{each['slot']}", set()).add(each["status"])
            assert ("mean" in each) == (each["status"] == "released")
        assert found == {
            "2022-01-02T12:00": {"incomplete"},
            "2022-01-02T13:00": {"incomplete"},
            "2022-01-03T12:00": {"suppressed"},
            "2022-01-03T13:00": {"suppressed"},
            "2022-01-04T12:00": {"suppressed"},
            "2022-01-04T13:00": {"budget_exhausted"},
        }
        charged = {key.rpartition("/")[2]: day["releases"] for key, day in pipeline.budget_records().items()}
        assert charged == {"2022-01-02": 0, "2022-01-03": 12, "2022-01-04": 6}


def test_neighbouring_logs_lead_to_the_same_topics_but_for_the_answers(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (DueHat, DueAnswer):
        monkeypatch.setattr(kind, "max_users", 14)  # batches that are loaded at once do depend on the users

    async def release(pipeline: Pipeline, samples: Iterable[Sample]) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, samples, OVER_MS)
            async with answering(pipeline, stores) as (releaser, _):
                assert await releaser.round(asyncio.Event()) == 3 * len(CELLS)

    def seen(title: str, samples: Iterable[Sample]) -> tuple[str, list[Any]]:
        with open_hidden(kafka, redis_server, tmp_path / title, title, {"policy": {"query": OVER_LIMIT}}) as pipeline:
            asyncio.run(release(pipeline, samples))
            topics = pipeline.settings.topics
            means, budget = (sorted(kafka.read(topic, committed=False)) for topic in (topics.means, topics.budget))
            queried = sorted(kafka.read(topics.queries, committed=False))
            assert len(queried) == 3 * len(CELLS)
            means += queried
            answers = "".join(json.loads(each.value or b"")["status"][0] for each in means)
            answers += "".join(str(json.loads(each.value or b"")["mean"]) for each in queried)
            # Offsets tell where transactions end. In the one partition that all producers send to, the broker writes
            # these ends when it comes to it.
            budget = [replace(each, offset=at) for at, each in enumerate(budget)]
            return answers, [str(public(each)).replace(pipeline.name, "NAME") for each in [*means, *budget]]

    def public(received: Received) -> Any:
        record = json.loads(received.value or b"")
        return replace(received, value=None), {key: record[key] for key in record if key not in ANSWER}

    bus = traffic(vehicles=1)  # alone at the place 1
    others = [sample for sample in traffic() if sample.place != 1 and sample.vehicle != bus[0].vehicle]
    without, alone = seen("without", others), seen("with", [*bus, *others])
    assert without[0] != alone[0], "the bus made no difference, so that nothing was shown"
    assert without[1] == alone[1]
