"""Damaged records, services that are away, and errors whose texts hold data."""

import json
from contextlib import closing
from functools import partial
from typing import Final

from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.readings.vehicles import Pseudonyms, by_murmur2
from tests.integration.harness import WorkerProcess
from tests.integration.health import is_ready, missing
from tests.integration.readings import HOUR_MS, NOON_MS
from tests.leaks.cities import DATE, KEY, City
from tests.leaks.marks import PLATE, Marked
from tests.leaks.stumbling_worker import FATAL_RECORD, stumble
from tests.leaks.system import Run, Started
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

OVER_MS: Final = NOON_MS + 2 * HOUR_MS + 600_000
FUTURE_MS: Final = 4_102_444_800_000  # in 2100


def error_text(city: City) -> str:
    """The text of an error that holds a record, a pseudonym, a sum and a mean."""
    one = city.readings[0]
    sums = [each.milli for each in city.readings if (each.cell, each.time_ms // HOUR_MS) == (one.cell, _hour(one))]
    pseudonym = Pseudonyms(KEY).of(one.vehicle, DATE).hex()
    mean = sum(sums) / len(sums) / 1000
    return f"cannot take {one.line} of user {pseudonym} in a sum of {sum(sums)}, a mean of {mean!r}"


def _hour(each: Marked) -> int:
    return each.time_ms // HOUR_MS


def damaged(city: City) -> list[Record]:
    """Records that cannot be counted, each with a plate: by their form, their types, their size and their times."""
    one = json.loads(city.readings[0].line)
    changes = [
        {"speed": "fast"},
        {"lat": None},
        {"lat": 1e9},
        {"time": "yesterday"},
        {"time": FUTURE_MS},
        {"time": 0},
        {"unit": "furlongs"},
        {"speed": 1e308},
        {"vehicle": [PLATE]},
        {"vehicle": PLATE * 40},
    ]
    values = [json.dumps(one | change).encode() for change in changes]
    whole = city.readings[0].line.encode()
    values += [whole[:-9], whole + b"x" * 200_000, b"\xff\xfe" + whole, b"[" * 5_000 + whole, b"", PLATE.encode()]
    key = f"{PLATE}-9999".encode()
    at = city.readings[0].arrival_ms
    elsewhere = (by_murmur2(city.readings[0].vehicle.encode(), PARTITIONS) + 1) % PARTITIONS
    return [*(Record(value, key, None, at) for value in values), Record(whole, key, elsewhere, at)]


def stumbling(run: Run, fatal: str) -> Started:
    """A worker that meets every error, and has met those of its start."""
    worker = run.worker(f"stumbling-{fatal}", partial(stumble, error_text(run.city), fatal))
    run.pipeline.wait(lambda: "stumbled" in worker.logged(), "worker that has stumbled", worker)
    return worker


def break_a_key(run: Run, worker: WorkerProcess) -> None:
    """A key of the state is of another type for a while: Redis refuses what a script does with it."""
    pipeline, reading = run.pipeline, run.city.readings[0]
    partition = by_murmur2(reading.vehicle.encode(), PARTITIONS)
    key = PartitionKeys(pipeline.settings.policy.name, partition).state
    with closing(pipeline.redis_server.client()) as redis:
        kept = redis.dump(key)
        assert isinstance(kept, bytes)
        redis.set(key, reading.line)
        pipeline.kafka.produce(pipeline.name, [reading.record])
        pipeline.wait(lambda: "WRONGTYPE" in worker.logged(), "refused script", worker)
        redis.restore(key, 0, kept, replace=True)
    pipeline.wait(pipeline.is_caught_up, "folded record", worker)


def fail_at_a_record(run: Run, worker: WorkerProcess) -> None:
    run.pipeline.kafka.produce(run.pipeline.name, [Record(FATAL_RECORD, b"fatal", 1, OVER_MS)])
    assert worker.wait() == 1, worker.log_tail()


def outages(run: Run, redis_server: RedisServer, kafka: KafkaServer, *workers: WorkerProcess) -> None:
    """Redis is away for a while, and so is Kafka."""
    kafka.produce(run.pipeline.name, damaged(run.city))
    for stop in (redis_server.stop, kafka.pause):
        stop()
        try:
            run.pipeline.wait(lambda: all(map(missing, workers)), "workers that are not ready", *workers)
            run.look(*workers)
        finally:
            redis_server.heal()
            kafka.heal()
        run.pipeline.wait(lambda: all(map(is_ready, workers)), "workers that are ready again", *workers)
