"""`hatcast doctor --topic` on a real Kafka: topics that others made, and the change that each one needs."""

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from hatcast.agents.clock import now_ms
from hatcast.stream.readings.vehicles import by_crc32
from tests.integration.bridging import SECONDS
from tests.integration.harness import Finished, Pipeline
from tests.integration.tables import merged
from tests.services import Record

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
GOOD = {
    "cleanup.policy": "delete",
    "retention.ms": str(96 * HOUR_MS),
    "message.timestamp.after.max.ms": "60000",
    "max.message.bytes": "1048588",
}
VEHICLES = [f"tram {number}" for number in range(40)]
SPEED = 31.415926


def value(vehicle: str, at: int, **changes: Any) -> bytes:
    fields = {"vehicle": vehicle, "time": at, "lat": 21.2, "lon": 72.8, "speed": SPEED} | changes
    return json.dumps({name: field for name, field in fields.items() if field is not None}).encode()


def topic_of(pipeline: Pipeline, name: str, **settings: str) -> str:
    topic = f"{pipeline.name}.{name}"
    ahead = {"message.timestamp.after.max.ms": str(pipeline.settings.policy.max_ahead_ms)}
    changes = {key.replace("_", "."): text for key, text in settings.items()}
    pipeline.kafka.create_topic(topic, 4, GOOD | ahead | changes)
    return topic


def fill(pipeline: Pipeline, topic: str, rounds: int = 5, *, lag_ms: int = 2_000, **how: Any) -> None:
    """Readings of each vehicle. how: `partition` of a vehicle, `key` of a vehicle, `changes` of the fields."""
    begin = now_ms() - rounds * 1_000
    records = []
    for number in range(rounds):
        for vehicle in VEHICLES:
            ts = begin + number * 1_000
            body = value(vehicle, ts - lag_ms, **how.get("changes", {}))
            key = how.get("key", str.encode)(vehicle)
            partition = how["partition"](vehicle) if "partition" in how else None
            records.append(Record(body, key, partition, ts))
    pipeline.kafka.produce(topic, records)


def doctor(pipeline: Pipeline, topic: str, *options: object, code: int = 0) -> dict[str, Any]:
    done = pipeline.hatcast("doctor", "--topic", topic, "--json", *options)
    assert done.code == code, done.out + done.err
    checks: dict[str, Any] = {}
    for check in done.json["checks"]:
        checks.setdefault(check["name"], check)
    is_private(done)
    return checks


def is_private(done: Finished) -> None:
    assert "tram" not in done.out
    assert "31.4" not in done.out


def states(checks: dict[str, Any]) -> set[str]:
    return {check["state"] for check in checks.values()}


def test_a_topic_keyed_by_vehicle_with_the_partitioner_of_java_is_well(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "java")
    fill(pipeline, topic)
    checks = doctor(pipeline, topic)
    assert states(checks) == {"ok"}
    assert set(checks) == {"topic settings", "sample", "format", "partitions of vehicles", "times", "lateness"}
    assert checks["partitions of vehicles"]["found"] == "all follow murmur2; 100 % of the keys are vehicle ids"
    assert "2.0 s older than their records in the median" in checks["times"]["found"]
    assert checks["sample"]["found"].startswith("200 records of 4 partitions")
    table = pipeline.hatcast("doctor", "--topic", topic)
    assert table.code == 0
    is_private(table)


def test_a_topic_of_librdkafka_needs_its_partitioner_in_the_configuration(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "crc32")
    fill(pipeline, topic, partition=lambda vehicle: by_crc32(vehicle.encode(), 4))
    found = doctor(pipeline, topic, code=1)["partitions of vehicles"]
    assert found["state"] == "problem"
    assert found["mend"] == 'set topics.telemetry_partitioner = "crc32" before the first start'
    config = merged(pipeline.table, {"topics": {"telemetry_partitioner": "crc32"}})
    pipeline.write(config)
    assert states(doctor(pipeline, topic)) == {"ok"}


def test_vehicles_in_several_partitions_have_to_be_written_again_under_their_ids(pipeline: Pipeline) -> None:
    choice = random.Random(7)
    topic = topic_of(pipeline, "random")
    fill(pipeline, topic, key=lambda _: None, partition=lambda _: choice.randrange(4))
    found = doctor(pipeline, topic, code=1)["partitions of vehicles"]
    assert found["state"] == "problem"
    assert found["found"].startswith("40 of 40 vehicles are in several partitions")
    assert "docs/feeds.md" in found["mend"]


def test_another_hash_is_a_problem_even_if_each_vehicle_has_one_partition(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "hash")
    fill(pipeline, topic, partition=lambda vehicle: int(vehicle.split()[1]) % 4)
    found = doctor(pipeline, topic, code=1)["partitions of vehicles"]
    assert found["state"] == "problem"
    assert "each vehicle is in one of 4 partitions, by an unknown rule" in found["found"]


@pytest.mark.parametrize(
    ("setting", "value", "state"),
    [
        ("message_timestamp_type", "LogAppendTime", "problem"),
        ("retention_ms", str(HOUR_MS), "problem"),
        ("cleanup_policy", "compact", "problem"),
        ("retention_bytes", "100000000", "warning"),
        ("max_message_bytes", "20000", "warning"),
    ],
)
def test_settings_that_break_a_promise_are_found(pipeline: Pipeline, setting: str, value: str, state: str) -> None:
    topic = topic_of(pipeline, "settings", **{setting: value})
    fill(pipeline, topic, lag_ms=0 if setting.startswith("message") else 2_000)
    found = doctor(pipeline, topic, code=1 if state == "problem" else 0)[f"topic {topic}"]
    assert found["state"] == state
    assert found["found"].startswith(f"{setting.replace('_', '.')} is {value}")
    assert f"--entity-name {topic}" in found["mend"]


def test_records_of_another_format_are_recognized(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "itms")
    body = b'{"license_plate":"tram 1","observationDateTime":1,"speed":31.4,"location.coordinates":[72.8,21.2]}'
    pipeline.kafka.produce(topic, [Record(body, b"tram 1")] * 10)
    found = doctor(pipeline, topic, code=1)["format"]
    assert found["found"] == "100 % of the records are not jsonl; 100 % are itms"
    assert found["mend"].startswith("try --format itms")
    assert doctor(pipeline, topic, "--format", "itms", code=0)["format"]["state"] == "ok"


def test_garbage_records_without_speed_and_tombstones_are_counted(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "garbage")
    fill(pipeline, topic)
    speedless = [Record(value(vehicle, now_ms(), speed=None), vehicle.encode()) for vehicle in VEHICLES]
    junk = [Record(b"\xff junk", b"7")] * 160
    pipeline.kafka.produce(topic, [*speedless, *junk, Record(None, b"tram 1"), Record(b"", None)])
    checks = doctor(pipeline, topic)
    assert checks["format"]["found"] == "50.0 % of the records are not jsonl; 10.0 % have no speed"
    assert "--derive-speed" in checks["format"]["mend"]
    assert "1 tombstones" in checks["sample"]["found"]


def test_times_that_are_copied_late_or_out_of_order_are_found(pipeline: Pipeline) -> None:
    copied, late = topic_of(pipeline, "copied"), topic_of(pipeline, "late")
    fill(pipeline, copied, lag_ms=0)
    assert "100 % are dated by the vehicle" in doctor(pipeline, copied)["times"]["found"]
    fill(pipeline, late, lag_ms=5 * HOUR_MS)
    pipeline.kafka.produce(late, [Record(value(name, 1), name.encode(), None, now_ms() - HOUR_MS) for name in VEHICLES])
    checks = doctor(pipeline, late)
    assert checks["times"]["state"] == checks["lateness"]["state"] == "warning"
    assert checks["lateness"]["found"].startswith("100 % of the readings are late")
    assert "16.7 % of the records are out of order" in checks["lateness"]["found"]


def test_an_open_transaction_hides_records_from_workers(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "transaction")
    fill(pipeline, topic)
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value("tram 1", now_ms()), b"tram 1")
    producer.flush(30)
    try:
        found = doctor(pipeline, topic)["transactions"]
        assert found["state"] == "warning"
        assert found["found"] == "1 offsets are behind an open transaction"
    finally:
        producer.abort_transaction(30)
    assert "transactions" not in doctor(pipeline, topic)


def test_an_empty_and_a_missing_topic_are_one_line_each(pipeline: Pipeline) -> None:
    topic = topic_of(pipeline, "empty")
    assert doctor(pipeline, topic)["sample"]["found"] == "no record with a value"
    missing = doctor(pipeline, f"{pipeline.name}.none", code=1)[f"topic {pipeline.name}.none"]
    assert "correct the name" in missing["mend"]


def test_a_format_without_a_topic_is_wrong_usage(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("doctor", "--format", "itms")
    assert done.code == 2
    assert "--format is the format of --topic NAME" in done.err


def test_the_program_of_the_page_makes_a_topic_that_workers_can_read(pipeline: Pipeline) -> None:
    page = (ROOT / "docs" / "feeds.md").read_text(encoding="utf-8")
    program = pipeline.folder / "rekey.py"
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program.write_text(code, encoding="utf-8")
    source, copy = topic_of(pipeline, "source"), topic_of(pipeline, "copy")
    choice = random.Random(7)
    fill(pipeline, source, key=lambda _: b"line 3", partition=lambda _: choice.randrange(4))
    pipeline.kafka.produce(source, [Record(b"\xff junk", b"7"), Record(None, b"7")])
    arguments = [sys.executable, str(program), pipeline.kafka.bootstrap_servers, source, copy]
    process = subprocess.Popen(arguments)
    try:
        end = time.monotonic() + SECONDS
        while len(copied := pipeline.kafka.read(copy)) < 5 * len(VEHICLES):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert sorted(record.value or b"" for record in copied) == sorted(
        record.value for record in pipeline.kafka.read(source) if record.value and b"junk" not in record.value
    )
    checks = doctor(pipeline, copy)
    assert checks["partitions of vehicles"]["found"] == "all follow murmur2; 100 % of the keys are vehicle ids"
    assert states(checks) == {"ok"}
