"""A worker that was killed is noticed at once by another worker on its machine, long before its session ends."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.membership import member_folder
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.health import LISTEN, is_ready
from tests.services import KafkaServer, RedisServer

# Longer than any wait of these tests: without a member file they fail.
SESSION: dict[str, Any] = {"worker": {**LISTEN["worker"], "session_timeout": "10m"}}


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path / "pipeline", "killed", SESSION) as made:
        yield made


def wait_until_ready(pipeline: Pipeline, *workers: WorkerProcess) -> None:
    for worker in workers:
        pipeline.wait(lambda worker=worker: is_ready(worker), "ready worker", worker)  # type: ignore[misc]


def wait_for_files(pipeline: Pipeline, folder: Path, *workers: WorkerProcess) -> None:
    """Wait until each worker is a member of the group, and has written its id."""

    def are_written() -> bool:
        members = pipeline.members()
        written = {path.read_text() for path in folder.iterdir() if path.is_file()}
        return len(members) == len(workers) and written >= set(members)

    pipeline.wait(are_written, "file of each member", *workers)


def test_a_worker_that_is_started_in_the_place_of_a_killed_one_does_not_wait_for_its_session(
    pipeline: Pipeline,
) -> None:
    first = pipeline.worker()
    wait_until_ready(pipeline, first)
    wait_for_files(pipeline, member_folder(), first)
    first.kill()
    second = pipeline.worker()
    wait_until_ready(pipeline, second)
    assert len(pipeline.members()) == 1
    assert "removed killed workers from the group" in second.logged()


def test_the_others_remove_a_killed_worker(pipeline: Pipeline) -> None:
    shorter = pipeline.changed({"worker": {"session_timeout": "50s"}})  # a fifth of it passes until a worker rejoins
    one, two = pipeline.worker(config=shorter), pipeline.worker(config=shorter)
    wait_for_files(pipeline, member_folder(), one, two)
    one.kill()
    pipeline.wait(lambda: len(pipeline.members()) == 1, "group of one before the session ends", two, seconds=30)
    assert "removed killed workers from the group" in two.logged()


def test_a_killed_worker_without_partitions_is_removed_too(pipeline: Pipeline) -> None:
    few = pipeline.changed({"worker": {**LISTEN["worker"], "session_timeout": "50s"}, "kafka": {"partitions": 1}})
    one, two = pipeline.worker(config=few), pipeline.worker(config=few)
    pipeline.wait(lambda: any("partition started" in each.logged() for each in (one, two)), "owner", one, two)
    owner, standby = (one, two) if "partition started" in one.logged() else (two, one)
    wait_until_ready(pipeline, owner, standby)
    wait_for_files(pipeline, member_folder(), one, two)
    standby.kill()
    pipeline.wait(lambda: len(pipeline.members()) == 1, "group of one before the session ends", owner, seconds=30)


def fail_at_the_first_assignment() -> None:
    """In the worker."""

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    setattr(Ingest, Ingest.on_assigned.__name__, fail)


def test_a_worker_that_fails_while_it_starts_leaves_its_group(pipeline: Pipeline) -> None:
    worker = pipeline.worker(wrap=fail_at_the_first_assignment)
    assert worker.wait() == 1
    assert pipeline.members() == []


def test_a_worker_that_waits_for_its_group_leaves_it_when_it_is_asked_to_stop(pipeline: Pipeline) -> None:
    hanging = pipeline.worker()
    wait_until_ready(pipeline, hanging)
    hanging.pause()  # so nobody else is let in until its session ends
    waiting = pipeline.worker()
    pipeline.wait(lambda: len(pipeline.members()) == 2, "member that waits", waiting)
    assert waiting.terminate() == 0
    assert len(pipeline.members()) == 1


def test_a_worker_in_another_temporary_directory_is_not_removed(pipeline: Pipeline, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    one = pipeline.start("worker", env={"TMPDIR": str(elsewhere)})
    wait_until_ready(pipeline, one)
    wait_for_files(pipeline, next(elsewhere.iterdir()), one)
    one.kill()
    two = pipeline.worker()
    pipeline.wait(lambda: "serving metrics" in two.logged(), "start", two)
    pipeline.wait(lambda: len(pipeline.members()) == 2, "group of the dead and the living", two)
    assert "removed killed workers from the group" not in two.logged()


def test_a_worker_without_a_folder_for_its_file_says_so_and_works(pipeline: Pipeline, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / f"hatcast-{os.getuid()}").write_text("a file")
    worker = pipeline.start("worker", env={"TMPDIR": str(elsewhere)})
    wait_until_ready(pipeline, worker)
    assert "no member file" in worker.logged()


def test_a_worker_that_stops_leaves_no_file(pipeline: Pipeline, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    worker = pipeline.start("worker", env={"TMPDIR": str(elsewhere)})
    wait_until_ready(pipeline, worker)
    assert worker.terminate() == 0
    assert [list(folder.iterdir()) for folder in elsewhere.iterdir()] == [[]]
