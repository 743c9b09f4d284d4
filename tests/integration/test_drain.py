"""`hatcast worker --drain` after the telemetry topic has grown: nothing is lost, and nobody is counted twice."""

import json
from collections.abc import Iterable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topics import check_topics
from hatcast.stream.readings.vehicles import by_murmur2
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import EXACT, HOUR_MS, Sample, assert_exact_means, traffic
from tests.services import Record
from tests.services.kafka_server import PARTITIONS

GROWN = PARTITIONS + 4
SMALL = {"policy": {"privacy": {**EXACT, "min_users": 1}}}
pytestmark = pytest.mark.pipeline(SMALL)


def send(pipeline: Pipeline, records: Iterable[Record]) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, records)


def grow(pipeline: Pipeline, *topics: str) -> None:
    """As somebody does who does not use `hatcast topics`; telemetry, if no topic is named."""
    names = topics or (pipeline.settings.topics.telemetry,)
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        for topic in names:
            admin.create_partitions({topic: NewPartitions(total_count=GROWN)})
    pipeline.wait(lambda: {check_topics(pipeline.settings).partitions[name] for name in names} == {GROWN}, "growth")


def fold_and_stop(pipeline: Pipeline, samples: Iterable[Sample]) -> None:
    """A worker folds these, closes no slot, and stops."""
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    send(pipeline, [sample.record() for sample in samples])
    pipeline.wait(pipeline.is_caught_up, "folded log", worker)
    assert worker.terminate() == 0


def by_grown_topic(sample: Sample, at_ms: int) -> Record:
    """As a feed sends it that knows of the new partitions."""
    return sample.record(at_ms, by_murmur2(sample.vehicle.encode(), GROWN))


def test_what_is_open_when_a_running_worker_finds_the_topic_grown_is_closed_by_a_drain(pipeline: Pipeline) -> None:
    samples = traffic()
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    send(pipeline, [sample.record() for sample in samples])
    pipeline.wait(pipeline.is_caught_up, "folded log", worker)
    grow(pipeline)
    assert worker.wait() == 1
    assert "hatcast worker --drain" in worker.logged().splitlines()[-1]

    shown = pipeline.hatcast("status")
    assert (shown.code, shown.err) == (0, "")
    assert "was started with 4 telemetry partitions, the topic now has 8" in " ".join(shown.out.split())
    status = pipeline.hatcast("status", "--json").json
    assert [row["offset"] for row in status["partitions"][PARTITIONS:]] == [None] * 4
    assert status["open_hats"]
    refused = pipeline.hatcast("worker")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "was started with 4 telemetry partitions, the topic now has 8: stop the feeds" in refused.err

    drained = pipeline.run("worker", "--drain")
    assert '"event": "drained"' in drained.err
    assert_exact_means(pipeline, samples)
    assert pipeline.is_settled()


def test_what_was_sent_before_the_topic_grew_and_not_folded_is_not_lost(pipeline: Pipeline) -> None:
    first, then = traffic(hours=1), [Sample(s.vehicle, s.time_ms + HOUR_MS, s.place, s.speed) for s in traffic(hours=1)]
    fold_and_stop(pipeline, first)
    send(pipeline, [sample.record() for sample in then])
    grow(pipeline)
    assert pipeline.hatcast("worker", "--drain").code == 0
    assert_exact_means(pipeline, [*first, *then])
    again = pipeline.hatcast("worker", "--drain")
    assert again.code == 0
    assert_exact_means(pipeline, [*first, *then])


def test_readings_in_added_partitions_are_never_left_out_in_silence(pipeline: Pipeline) -> None:
    first, then = traffic(hours=1), [Sample(s.vehicle, s.time_ms + HOUR_MS, s.place, s.speed) for s in traffic(hours=1)]
    fold_and_stop(pipeline, first)
    grow(pipeline)
    send(pipeline, [by_grown_topic(sample, sample.time_ms) for sample in then])
    refused = pipeline.hatcast("worker", "--drain")
    assert refused.code == 1
    assert "feeds have used partitions 4 to 7" in refused.err
    assert "--accept-gap" in refused.err
    assert pipeline.published() == {}
    assert pipeline.hatcast("worker", "--drain", "--accept-gap").code == 0
    records = [json.loads(value) for values in pipeline.published().values() for value in values]
    assert {record["status"] for record in records} == {"incomplete"}
    assert not any("mean" in record for record in records)
    assert {record["epsilon_sum"] for record in pipeline.budget_records().values()} == {0}
    status = pipeline.status()
    assert (status["open_hats"], status["unpublished"]) == (0, {})


def test_a_next_policy_counts_each_vehicle_in_its_new_partition_only(pipeline: Pipeline) -> None:
    samples = traffic(hours=1)
    fold_and_stop(pipeline, samples)
    grow(pipeline)
    assert pipeline.hatcast("worker", "--drain").code == 0
    topics = pipeline.settings.topics
    grown = pipeline.run("topics", "--grow", str(GROWN), "--yes")
    others = (topics.means, topics.queries, topics.estimates, topics.running)
    assert sorted(grown.out.splitlines()) == sorted(f"{name}  4 -> {GROWN} partitions" for name in others)
    assert f"{topics.telemetry}  {GROWN} partitions" in pipeline.hatcast("topics").out.splitlines()
    refused = pipeline.hatcast("topics", "--grow", "2", "--yes")
    assert (refused.code, "cannot take any away" in refused.err) == (1, True)
    assert "all topics have" in pipeline.hatcast("topics", "--grow", str(GROWN), "--yes").out
    pipeline.config = pipeline.changed({"policy": {"name": f"{pipeline.name}-next"}})
    pipeline.settings = load_settings(pipeline.config, {})
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    now = now_ms()
    again = [Sample(s.vehicle, now - (2 - s.place) * 60_000, s.place, s.speed) for s in samples]
    send(pipeline, [by_grown_topic(sample, now) for sample in again])
    moved = [s for s in samples if s.partition != by_murmur2(s.vehicle.encode(), GROWN)]
    assert 0 < len(moved) < len(samples)
    expected = {"accepted": 2 * len(samples) - len(moved), "wrong_partition": len(moved)}
    pipeline.wait(lambda: pipeline.outcomes() == expected, "each reading in its partition", worker)
    assert worker.terminate() == 0


def test_a_feed_that_goes_on_ends_a_drain_and_nothing_of_it_is_folded(pipeline: Pipeline) -> None:
    now = now_ms()
    fold_and_stop(pipeline, [Sample("GJ05BX0001", now, 0)])  # its hour ends later than this test
    before = pipeline.outcomes()
    drain = pipeline.worker("--drain")
    pipeline.wait(lambda: '"event": "draining"' in drain.logged(), "drain at work", drain)
    send(pipeline, [Sample("GJ05BX0002", now_ms(), 1).record()])
    assert drain.wait() == 1
    assert "a reading arrived during the drain: stop all feeds" in drain.logged().splitlines()[-1]
    assert pipeline.outcomes() == before


def test_a_drain_that_is_stopped_before_its_end_says_so_and_another_one_goes_on(pipeline: Pipeline) -> None:
    fold_and_stop(pipeline, [Sample("GJ05BX0001", now_ms(), 0)])  # its hour ends later than this test
    for _ in range(2):
        assert_stops_undrained(pipeline, pipeline.worker("--drain"))


def assert_stops_undrained(pipeline: Pipeline, drain: WorkerProcess) -> None:
    pipeline.wait(lambda: '"event": "draining"' in drain.logged(), "drain at work", drain)
    assert drain.terminate() == 1
    assert "stopped before all was drained: run `hatcast worker --drain` again" in drain.logged().splitlines()[-1]


def test_a_drain_of_a_policy_that_was_never_started_is_rejected(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("worker", "--drain")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "was never started" in done.err
    assert pipeline.settings.topics.telemetry not in pipeline.kafka.topics()
