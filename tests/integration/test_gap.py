"""Telemetry that was deleted unread: refused, and where that is accepted, never passed off as complete."""

import json
from collections.abc import Iterable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, TopicPartition

from hatcast.agents.kafka.topics import topic_range
from tests.integration.harness import Pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks, traffic
from tests.services import Record

DAY_MS = 24 * HOUR_MS
SMALL = {"policy": {"privacy": {"min_users": 1}}}
pytestmark = pytest.mark.pipeline(SMALL, topics=True)


def day(number: int) -> list[Record]:
    """Two hours of traffic on the day `number`, and what closes them."""
    moved = [Sample(s.vehicle, s.time_ms + number * DAY_MS, s.place, s.speed).record() for s in traffic()]
    return [*moved, *ticks(NOON_MS + number * DAY_MS + 3 * HOUR_MS)]


def send(pipeline: Pipeline, records: Iterable[Record]) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, records)


def delete_all(pipeline: Pipeline) -> None:
    """What retention does, at once."""
    topic = pipeline.settings.topics.telemetry
    ends = {
        TopicPartition(topic, p): end
        for p, (_, end) in enumerate(topic_range(pipeline.settings, pipeline.settings.topics.telemetry))
    }
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.delete_records(ends)


def statuses(pipeline: Pipeline) -> dict[str, set[str]]:
    """Date -> statuses on `hats.means`."""
    found: dict[str, set[str]] = {}
    for values in pipeline.published().values():
        for record in map(json.loads, values):
            found.setdefault(record["date"], set()).add(record["status"])
    return found


def statuses_of_batch(pipeline: Pipeline) -> dict[str, str]:
    """release_id -> status, of one process over a dump."""
    dump, ledger = pipeline.folder / "dump", pipeline.folder / "ledger"
    assert pipeline.hatcast("dump", "telemetry", "--output", dump).code == 0
    folded = pipeline.run("batch", dump, "--format", "kafka", "--ledger", ledger, "--json")
    records = map(json.loads, folded.out.splitlines())
    return {record["release_id"]: record["status"] for record in records}


def test_a_first_start_above_the_logs_beginning_calls_the_days_it_cannot_know_incomplete(pipeline: Pipeline) -> None:
    send(pipeline, day(0)[:10])
    delete_all(pipeline)
    send(pipeline, [*day(0), *day(1)])
    worker = pipeline.worker()
    pipeline.wait(lambda: len(pipeline.published()) == 12, "twelve releases", worker)
    assert statuses(pipeline) == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}
    budget = {record["date"]: record["releases"] for record in pipeline.budget_records().values()}
    assert budget == {"2022-01-02": 0, "2022-01-03": 6}
    published = {name: json.loads(values[0])["status"] for name, values in pipeline.published().items()}
    assert published == statuses_of_batch(pipeline)


def test_records_deleted_before_they_were_folded_stop_a_worker_unless_the_gap_is_accepted(pipeline: Pipeline) -> None:
    send(pipeline, day(0)[:20])  # nothing of it closes
    worker = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "a folded log", worker)
    assert worker.terminate() == 0
    send(pipeline, day(0)[20:])
    delete_all(pipeline)
    refused = pipeline.hatcast("worker")
    assert refused.code == 1
    assert "--accept-gap" in refused.err
    assert "Traceback" not in refused.err

    send(pipeline, [*ticks(NOON_MS + 3 * HOUR_MS), *day(1)])
    worker = pipeline.worker("--accept-gap")
    pipeline.wait(lambda: "2022-01-03" in statuses(pipeline), "the next day's releases", worker)
    pipeline.wait(pipeline.is_settled, "all released", worker)
    assert statuses(pipeline) == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}
