"""`hats.estimates` and `hats.running` on real services: workers publish what `hatcast batch` prints."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatcast.stream.records import RUNNING as RUNNING_RECORD
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.hidden import CELLS, SLOTS, open_hidden, stamp_by
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.integration.tables import golden_table, merged
from tests.integration.test_tracker import NEXT_DAY_MS
from tests.integration.test_tracker import TABLE as TRACKER_TABLE
from tests.services import KafkaServer, RedisServer
from tests.services.data import golden, golden_recording

NAME = "capmetro_2017-03-21"
RUNNING = [{"name": "today", "window": "today"}, {"name": "day", "window": "24h", "of": "estimates"}]
PRIVACY = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0, "min_users": 3}


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    table = merged(golden_table(golden(NAME)), {"policy": {"privacy": PRIVACY, "hours": [0, 10], "running": RUNNING}})
    with open_pipeline(kafka, redis_server, tmp_path, "estimates", table) as made:
        yield made


def published(pipeline: Pipeline) -> dict[str, bytes]:
    """Key -> the last value on `hats.estimates`: what compaction leaves."""
    records = pipeline.kafka.read(pipeline.settings.topics.estimates)
    return {(record.key or b"").decode(): record.value or b"" for record in records}


def computed(pipeline: Pipeline, *arguments: object) -> dict[str, bytes]:
    """The same of `hatcast batch --estimates`."""
    done = pipeline.run("batch", *arguments, "--estimates")
    records = [line for line in done.out.splitlines() if '"estimate_id"' in line]
    return {json.loads(line)["estimate_id"]: line.encode() for line in records}


def running_means(pipeline: Pipeline) -> dict[str, bytes]:
    """Key -> the last value on `hats.running`: what compaction leaves."""
    records = pipeline.kafka.read(pipeline.settings.topics.running)
    return {(record.key or b"").decode(): record.value or b"" for record in records}


def computed_running(pipeline: Pipeline, dump: Path) -> dict[str, bytes]:
    """The same of `hatcast batch --running`; every record that is on the topic is one of those that it prints."""
    done = pipeline.run("batch", dump, "--format", "kafka", "--running")
    lines = [line.encode() for line in done.out.splitlines()]
    assert {record.value for record in pipeline.kafka.read(pipeline.settings.topics.running)} <= set(lines)
    read = [RUNNING_RECORD.decode(line) for line in lines]
    return {f"{each.policy}/{each.name}/{each.cell}": line for each, line in zip(read, lines, strict=True)}


def dumped(pipeline: Pipeline, file: str) -> Path:
    dump = pipeline.folder / file
    made = pipeline.hatcast("dump", "means", "--output", dump)
    assert (made.code, made.err) == (0, "")
    return dump


@pytest.mark.timeout(240)
def test_workers_publish_what_batch_computes_from_a_dump_of_the_means_also_after_a_kill(pipeline: Pipeline) -> None:
    form, files = golden_recording(NAME)
    first, second = pipeline.worker(), pipeline.worker()
    for worker in (first, second):
        pipeline.wait_for_partitions(worker)
    feed = pipeline.start("feed", "replay", *files, "--format", form, "--speedup", 4000)
    pipeline.wait(lambda: len(published(pipeline)) > 200, "estimates", first, second)
    first.kill()
    pipeline.wait(lambda: not feed.running, "end of the replay", second)
    third = pipeline.worker()
    pipeline.wait(pipeline.is_settled, "releases", second, third)
    dump = dumped(pipeline, "means.jsonl")
    expected = computed(pipeline, dump, "--format", "kafka")
    assert len(expected) > 500
    pipeline.wait(lambda: published(pipeline) == expected, "the same estimates", second, third)
    running = computed_running(pipeline, dump)
    assert {key.split("/")[1] for key in running} == {"today", "day"}
    pipeline.wait(lambda: running_means(pipeline) == running, "the same running means", second, third)
    stages = {json.loads(value)["stage"] for value in expected.values()}
    assert stages == {"predicted", "settled"}  # the last hour ends the date

    # A worker that starts anew publishes the same bytes once more, from the snapshot or from the beginning.
    for worker in (second, third):
        worker.terminate()
    pipeline.redis_server.delete(f"{{{pipeline.settings.topics.telemetry}}}:estimates:*")
    before = len([*pipeline.kafka.read(pipeline.settings.topics.estimates)])
    again = pipeline.worker()
    pipeline.wait(lambda: len([*pipeline.kafka.read(pipeline.settings.topics.estimates)]) > before, "estimates", again)
    pipeline.wait(lambda: published(pipeline) == expected, "the same estimates", again)
    pipeline.wait(lambda: running_means(pipeline) == running, "the same running means", again)
    pipeline.hatcast("dump", "running", "--output", pipeline.folder / "running.jsonl")
    lines = pipeline.hatcast("tail", "--running", "--from-beginning", "--max", 5).out.splitlines()
    assert len(lines) == 5
    assert all(" km/h " in line and " mean of " in line for line in lines)


@pytest.mark.timeout(120)
def test_batch_with_a_ledger_prints_the_estimates_of_its_releases(pipeline: Pipeline) -> None:
    form, files = golden_recording(NAME)
    ledger = pipeline.folder / "ledger"
    made = computed(pipeline, *files, "--format", form, "--ledger", ledger, "--json")
    assert made
    again: dict[str, Any] = computed(pipeline, *files, "--format", form, "--ledger", ledger, "--json")
    assert again == made


@pytest.mark.timeout(120)
def test_tail_shows_estimates(pipeline: Pipeline) -> None:
    form, files = golden_recording(NAME)
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    pipeline.replay(files, form)
    pipeline.wait(lambda: len(published(pipeline)) > 50, "estimates", worker)
    done = pipeline.run("tail", "--estimates", "--from-beginning", "--max", 5)
    lines = done.out.splitlines()
    assert len(lines) == 5
    assert all(" km/h " in line and line.split()[-1] in ("live", "predicted", "settled") for line in lines)


@pytest.mark.timeout(120)
def test_estimates_that_fail_do_not_stop_releases(pipeline: Pipeline) -> None:
    form, files = golden_recording(NAME)
    worker = pipeline.worker(wrap=without_estimates)
    pipeline.wait_for_partitions(worker)
    pipeline.replay(files, form)
    pipeline.wait(pipeline.is_settled, "releases", worker)
    assert pipeline.published()
    assert not published(pipeline)
    assert "estimates failed" in worker.logged()
    assert worker.terminate() == 0


def without_estimates() -> None:
    """Let every reading of the means fail, in a worker's process."""
    from hatcast.agents.release.estimates import MeansReader

    def fail(self: MeansReader) -> Any:
        raise ValueError("a mistake")

    MeansReader.read = fail  # type: ignore[method-assign]


@pytest.mark.timeout(240)
def test_estimates_of_a_tracker_are_settled_with_its_day_also_after_a_kill(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    table = merged(TRACKER_TABLE, {"policy": {"running": RUNNING}})
    with open_pipeline(kafka, redis_server, tmp_path, "tracked-estimates", table) as pipeline:
        first = pipeline.worker()
        pipeline.wait_for_partitions(first)
        samples = [sample.record() for sample in traffic(hours=3, vehicles=14, places=4)]
        pipeline.kafka.produce(pipeline.settings.topics.telemetry, [*samples, *ticks(NOON_MS + 2 * HOUR_MS + 300_000)])
        pipeline.wait(lambda: len(published(pipeline)) > 0, "estimates of the first hours", first)
        live = {json.loads(value)["stage"] for value in published(pipeline).values()}
        assert "settled" not in live
        first.kill()
        pipeline.kafka.produce(pipeline.settings.topics.telemetry, ticks(NEXT_DAY_MS))
        second, third = pipeline.worker(), pipeline.worker()
        pipeline.wait(
            lambda: {json.loads(value)["stage"] for value in published(pipeline).values()} >= {"settled"},
            "the estimates of a settled day",
            second,
            third,
        )
        dump = dumped(pipeline, "means.jsonl")
        expected = computed(pipeline, dump, "--format", "kafka")
        pipeline.wait(lambda: published(pipeline) == expected, "the same estimates", second, third)
        running = computed_running(pipeline, dump)
        pipeline.wait(lambda: running_means(pipeline) == running, "the same running means", second, third)
        assert {json.loads(value)["stage"] for value in running.values()} == {"settled"}
        # Every HAT with enough users is settled; one without is only predicted.
        stages = [json.loads(value) for value in expected.values()]
        assert {each["stage"] for each in stages if "mean" in each} == {"settled"}
        assert any("residual_z" in each for each in stages)


@pytest.mark.timeout(120)
def test_under_add_remove_every_listed_cell_has_an_estimate_after_each_published_slot(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_hidden(kafka, redis_server, tmp_path, "hidden-estimates") as pipeline:
        stamp_by(kafka, pipeline, "CreateTime")
        samples = [*(sample.record() for sample in traffic()), *ticks(NOON_MS + 3 * HOUR_MS + 300_000)]
        pipeline.kafka.produce(pipeline.settings.topics.telemetry, samples)
        stamp_by(kafka, pipeline, "LogAppendTime")
        worker = pipeline.worker()
        wanted = {f"{pipeline.name}/2022-01-02T{slot}/{cell}" for slot in SLOTS for cell in CELLS}
        pipeline.wait(lambda: published(pipeline).keys() == wanted, "estimates of all slots", worker)
        expected = computed(pipeline, dumped(pipeline, "means.jsonl"), "--format", "kafka")
        pipeline.wait(lambda: published(pipeline) == expected, "the same estimates", worker)
        assert {json.loads(value)["stage"] for value in expected.values()} == {"settled", "predicted"}
