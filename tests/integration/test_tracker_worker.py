"""`hatcast worker` with a tracker policy: killed at each step, and against `hatcast batch` over the same log."""

import json
import signal
from functools import partial
from typing import Any

import pytest

from tests.integration.crashing_worker import STEPS_OF_HATS, TRACKING, die_after
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import ticks, traffic
from tests.integration.test_continual_worker import published
from tests.integration.test_tracker import FIRST, NEXT_DAY_MS, TABLE, TIMED
from tests.timetables import write_speeds
from tests.unit.test_batch_tracker import rounded

pytestmark = pytest.mark.pipeline(TABLE, topics=True)
with_timetable = pytest.mark.pipeline(TIMED, topics=True)


def feed(pipeline: Pipeline) -> None:
    """A day's readings, and its end."""
    records = [sample.record(sample.time_ms) for sample in traffic(hours=3, vehicles=14, places=4)]
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [*records, *ticks(NEXT_DAY_MS)])


def public(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What follows from counts."""
    drop = {"seq", "released_at", "mean", "raw", "interval95"}
    found = {}
    for record in records:
        kept = {key: value for key, value in record.items() if key not in drop}
        if "query" in kept:
            kept["query"] = {key: value for key, value in kept["query"].items() if key != "sum"}
        found[record["release_id"]] = kept
    return found


@pytest.fixture
def timed(pipeline: Pipeline) -> Pipeline:
    write_speeds(pipeline.folder / "gtfs.zip", FIRST)
    return pipeline


@pytest.mark.timeout(240)
def test_the_releases_are_those_of_batch_but_for_the_noise(pipeline: Pipeline) -> None:
    assert_as_batch(pipeline)


@pytest.mark.timeout(240)
@with_timetable
def test_with_a_timetable_too_the_releases_are_those_of_batch(timed: Pipeline) -> None:
    workers, live = assert_as_batch(timed)
    assert {each.get("scheduled") for each in live} == {None, 18.0, 45.0}
    logged = [json.loads(line) for worker in workers for line in worker.logged().splitlines() if '"timetable"' in line]
    (taken,) = [each for each in logged if each["event"] == "timetable"]
    assert (taken["former"], taken["cells"]) == (None, 2)


@with_timetable
def test_a_worker_without_its_timetable_ends_with_one_line(timed: Pipeline) -> None:
    (timed.folder / "gtfs.zip").unlink()
    worker = timed.worker()
    assert worker.wait() == 1, worker.log_tail()
    assert f"{timed.folder / 'gtfs.zip'} does not exist; name the zip" in worker.logged().splitlines()[-1]


def assert_as_batch(pipeline: Pipeline) -> tuple[list[WorkerProcess], list[dict[str, Any]]]:
    first, second = pipeline.worker(), pipeline.worker()
    for worker in (first, second):
        pipeline.wait_for_partitions(worker)
    feed(pipeline)
    pipeline.wait(pipeline.is_settled, "the settled day", first, second)
    live = published(pipeline)
    assert any("Tsettlement" in each["release_id"] for each in live)
    dump = pipeline.folder / "telemetry.jsonl"
    assert pipeline.hatcast("dump", "telemetry", "--output", dump).code == 0
    arguments = ("batch", dump, "--format", "kafka", "--ledger", pipeline.folder / "ledger", "--json")
    batch = pipeline.run(*arguments)
    found = [json.loads(line) for line in batch.out.splitlines()]
    # Pseudonyms decide the order of users, and so the last bits of floats: the user keys differ.
    assert rounded(public(found)) == rounded(public(live))
    return [first, second], live


@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", [*TRACKING, "loaded", "committed", "sent", "acked", "marked"])
def test_a_worker_that_is_killed_at_a_step_leaves_one_value_of_each_query(step: str, pipeline: Pipeline) -> None:
    assert step in STEPS_OF_HATS | TRACKING
    dying = pipeline.worker(wrap=partial(die_after, step))
    feed(pipeline)
    assert dying.wait() == -signal.SIGKILL
    worker = pipeline.worker()
    pipeline.wait(pipeline.is_settled, "the settled day", worker)
    numbers = sorted(each["query"]["number"] for each in published(pipeline) if "query" in each)
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
    assert "no more queries" not in worker.logged()
    (budget,) = pipeline.budget_records().values()
    assert budget["epsilon_user_day"] == budget["limit"] == 5.0


def test_a_policy_that_registers_beside_a_tracker_is_warned_of_it_in_the_log(pipeline: Pipeline) -> None:
    first = pipeline.worker()
    pipeline.wait_for_partitions(first)
    assert "a tracker books a whole day" not in first.logged()
    beside = pipeline.worker(config=pipeline.changed({"policy": {"name": f"{pipeline.settings.policy.name}-beside"}}))
    pipeline.wait(lambda: "policy registered" in beside.logged(), "a second policy", beside)
    pipeline.wait(lambda: "a tracker books a whole day" in beside.logged(), "the warning", beside)
    (line,) = [json.loads(line) for line in beside.logged().splitlines() if "a tracker books a whole day" in line]
    assert (line["level"], line["beside"]) == ("warning", [pipeline.settings.policy.name])
