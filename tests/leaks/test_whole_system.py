"""Nothing that a whole system writes, for the public or for operators, holds the data of a vehicle."""

import re
from pathlib import Path

import pytest

from tests.integration.harness import WorkerProcess
from tests.integration.health import is_ready
from tests.integration.hidden import stamp_by
from tests.integration.readings import HOUR_MS
from tests.leaks.cities import ADD_REMOVE, CONTINUAL, HYBRID, REPLACE, TRACKER, City
from tests.leaks.faults import OVER_MS, break_a_key, fail_at_a_record, outages, stumbling
from tests.leaks.steps import (
    NEXT_DAY_MS,
    ask,
    bridge,
    close_slots,
    go_through,
    of_files,
    own_device,
    replay,
    send,
    shown,
    wait_for_releases,
)
from tests.leaks.stumbling_worker import SAID
from tests.leaks.system import opened
from tests.leaks.verdict import assert_no_leak
from tests.services import KafkaServer, RedisServer
from tests.services.mosquitto import Mosquitto


def assert_were_met(worker: WorkerProcess, last: str) -> None:
    """All errors were met, and are in the log by their kinds and their places."""
    log = worker.logged()
    for said in SAID:
        assert said in log, said
    line = rf"\nhatcast: the worker failed \({last}:?\d+\); its log has the details\n$"
    assert re.search(line, log), worker.log_tail()


@pytest.mark.timeout(400)
def test_under_replace_nothing_leaks_whatever_errors_a_worker_meets(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with opened(kafka, redis_server, tmp_path, REPLACE) as run:
        first = stumbling(run, "fold")
        with shown(run):
            replay(run)
            close_slots(run)
            wait_for_releases(run, first)
            break_a_key(run, first)
        run.look(first)
        fail_at_a_record(run, first)
        ask(run, *of_files(run))
        outputs = run.outputs()
    assert_no_leak(REPLACE, outputs)
    assert_were_met(first, r"ValueError at hatcast/\S*")


@pytest.mark.timeout(400)
def test_with_a_tracker_nothing_leaks_while_services_are_away_and_a_worker_is_killed(
    breakable_kafka: KafkaServer, breakable_redis: RedisServer, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    with opened(breakable_kafka, breakable_redis, tmp_path, TRACKER) as run:
        workers = [run.worker("first"), run.worker("second")]
        with shown(run):
            run.pipeline.wait(lambda: all(map(is_ready, workers)), "workers that are ready", *workers)
            replay(run)
            outages(run, breakable_redis, breakable_kafka, *workers)
            workers[0].kill()
            workers.append(run.worker("third"))
            close_slots(run, NEXT_DAY_MS)
            wait_for_releases(run, *workers[1:])
        bridge(run, mosquitto)
        run.look(*workers[1:])
        assert [each.terminate() for each in workers[1:]] == [0, 0]
        ask(run)
        outputs = run.outputs()
    assert_no_leak(TRACKER, outputs)


@pytest.mark.timeout(400)
def test_under_add_remove_neither_data_nor_counts_leak_whatever_errors_a_worker_meets(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with opened(kafka, redis_server, tmp_path, ADD_REMOVE) as run:
        send(run)
        close_slots(run)
        stamp_by(kafka, run.pipeline, "LogAppendTime")
        first = stumbling(run, "draw")
        with shown(run):
            wait_for_releases(run, first)
            run.look(first)
        stamp_by(kafka, run.pipeline, "CreateTime")
        close_slots(run, OVER_MS + HOUR_MS)
        assert first.wait() == 1, first.log_tail()
        ask(run)
        outputs = run.outputs()
    assert_no_leak(ADD_REMOVE, outputs)
    assert_were_met(first, r"KeyError at hatcast/agents/release/\w+.py")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("city", [HYBRID, CONTINUAL], ids=lambda city: city.name)
def test_with_devices_and_with_running_sums_nothing_leaks(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, city: City
) -> None:
    with opened(kafka, redis_server, tmp_path, city) as run:
        go_through(run)
        ask(run, *own_device(run))
        outputs = run.outputs()
    assert_no_leak(city, outputs)
