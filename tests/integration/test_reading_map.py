"""How records are read is fixed for a policy's life: another format or other reading rules do not join it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from hatcast.agents.kafka.registry import read_registry
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.worker import registration
from hatcast.agents.worker.registration import Registration
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.reading import READING_RULES
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import (
    EXACT,
    HOUR_MS,
    NOON_MS,
    PLACES,
    Sample,
    assert_exact_means,
    open_stores,
    ticks,
    traffic,
)
from tests.integration.tables import merged
from tests.integration.test_succession import following
from tests.integration.test_worker_refusals import assert_refused
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

ONE_HAT: Final = {"min_users": 1, "max_hats_per_day": 1, "epsilon": 1.0, "daily_limit": 1.0}
CAPMETRO: Final = {"topics": {"telemetry_format": "capmetro"}}


@pytest.fixture
def pipeline(
    request: pytest.FixtureRequest, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "map", {"policy": {"privacy": request.param}}) as opened:
        ensure_topics(opened.settings)
        yield opened


def capmetro(sample: Sample, arrival_ms: int) -> Record:
    latitude, longitude = PLACES[sample.place]
    time = datetime.fromtimestamp(sample.time_ms / 1000, UTC).isoformat()
    line = f"{sample.vehicle},{time},{sample.speed / 3.6},r,t,{latitude},{longitude},h"
    return Record(line.encode(), sample.vehicle.encode(), sample.partition, arrival_ms)


@pytest.mark.parametrize("pipeline", [ONE_HAT], indirect=True)
def test_another_format_at_noon_and_an_emptied_redis_do_not_let_buses_into_a_second_hat(pipeline: Pipeline) -> None:
    telemetry, closes = pipeline.settings.topics.telemetry, NOON_MS + HOUR_MS + pipeline.settings.policy.lateness_ms
    noon = [Sample(f"GJ05BX{bus:04}", NOON_MS + 60_000, 0, 20.0 + bus) for bus in range(12)]
    later = [Sample(each.vehicle, each.time_ms + HOUR_MS, 1, each.speed) for each in noon]
    pipeline.kafka.produce(telemetry, [*[each.record() for each in noon], *ticks(closes)])
    worker = pipeline.worker()
    pipeline.wait(lambda: len(pipeline.published()) == 1, "the first HAT", worker)
    assert worker.terminate() == 0
    pipeline.forget()
    pipeline.kafka.produce(telemetry, [*[capmetro(each, closes + 1000) for each in later], *ticks(closes + HOUR_MS)])
    done = pipeline.hatcast("worker", config=pipeline.changed(CAPMETRO))
    assert_refused(
        done, "topics.telemetry_format is 'capmetro'", "was started with 'jsonl'", "to 'jsonl' again", "replace it"
    )
    again = pipeline.worker()
    pipeline.wait(pipeline.is_settled, "the log folded again", again)
    assert pipeline.outcomes()["undecodable"] == len(later)
    (release,) = pipeline.published().values()
    assert len(set(release)) == 1


@pytest.mark.parametrize("pipeline", [EXACT], indirect=True)
def test_a_second_worker_with_another_format_does_not_join_and_all_means_are_right(pipeline: Pipeline) -> None:
    worker, samples = pipeline.worker(), traffic()
    pipeline.wait_for_partitions(worker)
    other = pipeline.changed({"topics": {"telemetry_format": "hfp"}})
    assert_refused(pipeline.hatcast("worker", config=other), "topics.telemetry_format is 'hfp'", "with 'jsonl'")
    doctor = pipeline.hatcast("doctor", "--json", config=other).json["checks"]
    assert [check["name"] for check in doctor if check["state"] == "problem"] == ["registry"]
    end = NOON_MS + 2 * HOUR_MS + pipeline.settings.policy.lateness_ms
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [*[each.record() for each in samples], *ticks(end)])
    pipeline.wait(pipeline.is_settled, "releases", worker)
    assert_exact_means(pipeline, samples)


async def register(pipeline: Pipeline) -> None:
    async with open_stores(pipeline, claim=False) as stores:
        registering = Registration(pipeline.settings, stores.redis, PARTITIONS, {})
        await registering.check()
        await registering.register()


@pytest.mark.parametrize("pipeline", [ONE_HAT], indirect=True)
async def test_other_reading_rules_and_another_format_need_a_policy_that_replaces_the_first(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(pipeline)
    monkeypatch.setattr(registration, "READING_RULES", READING_RULES + 1)
    with pytest.raises(
        HatcastError, match=rf"one bus could count as two: run a hatcast with rules {READING_RULES}, or let a policy"
    ):
        await register(pipeline)
    follower = following(pipeline)
    await register(replace(follower, table=merged(follower.table, CAPMETRO)))
    records: dict[str, Any] = dict(read_registry(pipeline.settings, pipeline.settings.topics.registry).policies)
    assert [(each.telemetry_format, each.reading_rules) for each in records.values()] == [
        ("jsonl", READING_RULES),
        ("capmetro", READING_RULES + 1),
    ]


@pytest.mark.parametrize("pipeline", [ONE_HAT], indirect=True)
async def test_another_format_does_not_join_by_a_registry_that_was_made_again_as_long_as_redis_knows_the_first(
    pipeline: Pipeline,
) -> None:
    await register(pipeline)
    pipeline.kafka.delete_topics([pipeline.settings.topics.registry])
    ensure_topics(pipeline.settings)
    with pytest.raises(HatcastError, match=r"topics\.telemetry_format is 'capmetro', policy .* started with 'jsonl'"):
        await register(replace(pipeline, table=merged(pipeline.table, CAPMETRO)))
    await register(pipeline)
    (record,) = read_registry(pipeline.settings, pipeline.settings.topics.registry).policies.values()
    assert record.telemetry_format == "jsonl"
