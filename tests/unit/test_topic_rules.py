"""What is found wrong about a topic, without a broker: brokers of other ages and with other rights too.
Counts over a sample of a topic: what they count, and that they hold no reading.
"""

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.kafka.topic_rules import (
    WORKER_BATCH_BYTES,
    TopicSpec,
    TopicState,
    findings,
    output_topics,
    telemetry_topic,
)
from hatcast.stream.fold.topic_sample import TopicSample, best_partitioner, share
from hatcast.stream.readings.formats import FORMATS, Format
from hatcast.stream.readings.vehicles import by_crc32, by_murmur2
from tests.folding import NOON
from tests.integration.tables import DEFAULTS, merged
from tests.replayed import policy_of
from tests.services.data import ROOT


def settings(**tables: Any) -> Settings:
    return parse_settings(merged(merged(DEFAULTS, {"policy": {"name": "p"}}), tables), Path(), {})


def found(configs: Mapping[str, str], **tables: Any) -> dict[str, bool]:
    """Setting -> whether it breaks a promise, of telemetry with these settings."""
    given = settings(**tables)
    return {each.setting: each.fatal for each in findings(telemetry_topic(given), TopicState(8, configs), given)}


MADE = telemetry_topic(settings()).configs


def test_a_topic_as_hatcast_makes_it_is_as_it_should_be() -> None:
    assert found(MADE) == {}
    for topic in output_topics(settings(), 8):
        assert findings(topic, TopicState(topic.partitions or 0, topic.configs), settings()) == []


def test_a_setting_that_an_old_broker_does_not_know_is_a_warning() -> None:
    known = {key: value for key, value in MADE.items() if key != "message.timestamp.after.max.ms"}
    assert found(known) == {"message.timestamp.after.max.ms": False}


def test_settings_that_may_not_be_read_are_not_believed() -> None:
    assert found({}) == {"settings": True}


def test_records_from_further_ahead_than_the_policy_allows_break_a_promise() -> None:
    assert found(MADE | {"message.timestamp.after.max.ms": "120001"}) == {"message.timestamp.after.max.ms": True}
    assert found(MADE | {"message.timestamp.after.max.ms": "119999"}) == {"message.timestamp.after.max.ms": False}
    assert found(MADE | {"message.timestamp.after.max.ms": "60000"}, policy={"max_ahead": "1m"}) == {}


def test_retention_may_be_longer_than_asked_for_but_not_shorter_than_72_hours() -> None:
    assert found(MADE | {"retention.ms": "259200000"}) == {}
    assert found(MADE | {"retention.ms": "259199999"}) == {"retention.ms": True}
    assert found(MADE | {"retention.ms": "-1"}, topics={"telemetry_retention": "72h"}) == {}


def test_telemetry_may_have_any_number_of_partitions_as_its_first_start_found_it() -> None:
    given = settings(kafka={"partitions": 3})
    assert findings(telemetry_topic(given), TopicState(8, MADE), given) == []


def of_output(role: str, changes: Mapping[str, str], partitions: int | None = None) -> dict[str, bool]:
    """The same of an output topic."""
    given = settings()
    name = getattr(given.topics, role)
    topic = next(each for each in output_topics(given, 8) if each.name == name)
    state = TopicState(partitions or topic.partitions or 0, topic.configs | dict(changes))
    return {each.setting: each.fatal for each in findings(topic, state, given)}


def test_what_workers_publish_on_may_have_grown_since_kafka_takes_no_partition_back() -> None:
    for role in ("budget", "dead_letters", "means", "queries", "estimates", "running"):
        assert of_output(role, {}, 9) == {"partitions": False}
    for role in ("means", "queries", "estimates", "running"):
        assert of_output(role, {}, 7) == {"partitions": True}


def test_a_topic_takes_the_largest_batch_that_is_sent_there() -> None:
    for role in ("means", "queries", "budget", "estimates"):
        assert of_output(role, {"max.message.bytes": "16384"}) == {}
        assert of_output(role, {"max.message.bytes": "16383"}) == {"max.message.bytes": True}
    assert of_output("dead_letters", {"max.message.bytes": "100"}) == {"max.message.bytes": False}
    assert found(MADE | {"max.message.bytes": "1000000"}) == {}
    assert found(MADE | {"max.message.bytes": "999999"}) == {"max.message.bytes": False}, "others may feed it"
    assert found(MADE | {"max.message.bytes": "16383"}) == {"max.message.bytes": True}, "not even ticks"


def test_the_largest_batch_is_that_of_the_clients_and_no_record_of_ours_is_larger() -> None:
    assert signature(AIOKafkaProducer.__init__).parameters["max_batch_size"].default == WORKER_BATCH_BYTES
    longest = "n" * 80  # of a policy's name, which every key and record has a few times
    golden = [path.read_bytes() for path in (ROOT / "schemas" / "golden").rglob("*.json")]
    assert len(golden) > 10
    assert max(map(len, golden)) + 10 * len(longest) < WORKER_BATCH_BYTES / 2


def test_a_compression_that_a_worker_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for codec in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        assert found(MADE | {"compression.type": codec}) == {}
    assert found(MADE | {"compression.type": "brotli"}) == {"compression.type": True}
    assert of_output("means", {"compression.type": "zstd"}) == {"compression.type": False}
    monkeypatch.setattr("aiokafka.codec.cramjam", None)  # as where its wheel could not be installed
    assert found(MADE | {"compression.type": "zstd"}) == {"compression.type": True}
    assert of_output("means", {"compression.type": "zstd"}) == {"compression.type": True}
    assert found(MADE | {"compression.type": "gzip"}) == {}


@pytest.mark.parametrize(
    ("setting", "value"), [("compression.type", "brotli"), ("max.message.bytes", "100"), ("partitions", "")]
)
def test_rules_that_forget_one_of_these_find_nothing(setting: str, value: str) -> None:
    """Mutants: topics are compared as before these rules."""
    given = settings()
    rules = {key: rule for key, rule in telemetry_topic(given).rules.items() if key != setting}
    forgetful = TopicSpec(given.topics.telemetry, None, rules)
    assert findings(forgetful, TopicState(9, MADE | {setting: value}), given) == []
    if setting != "partitions":
        assert findings(telemetry_topic(given), TopicState(9, MADE | {setting: value}), given) != []


def test_under_add_remove_the_broker_has_to_stamp_telemetry(tmp_path: Path) -> None:
    cell = "8742d9d6dffffff"
    (tmp_path / "cells.txt").write_text(f'source = "public"\n{cell}\n')
    policy = {
        "name": "p",
        "cells": "cells.txt",
        "privacy": {"relation": "add_remove", "min_users": None},
        "estimator": {"name": "capped_ratio", "array_length": 20},
    }
    hidden = parse_settings(merged(DEFAULTS, {"policy": policy}), tmp_path, {})
    made = telemetry_topic(hidden).configs
    assert made["message.timestamp.type"] == "LogAppendTime"
    for configs, wrong in ((made, {}), (MADE, {"message.timestamp.type": True})):
        state = TopicState(8, configs)
        assert {each.setting: each.fatal for each in findings(telemetry_topic(hidden), state, hidden)} == wrong
    assert found(made)["message.timestamp.type"], "and under replace it may not"


HOUR_MS = 3_600_000
POLICY = policy_of(lateness="1h", max_ahead="1m")


def sample_of(feed: Format = FORMATS["jsonl"], partitions: int = 4) -> TopicSample:
    speedless = None if feed.without_speed is None else feed.without_speed.decode
    return TopicSample(POLICY, feed.decode, speedless, partitions)


def value(vehicle: str = "7", time: int | str = NOON) -> bytes:
    return json.dumps({"vehicle": vehicle, "time": time, "lat": 21.2, "lon": 72.8, "speed": 3}).encode()


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    assert [share(*each) for each in ((0, 0), (0, 9), (9, 9), (1, 10**6), (10**6 - 1, 10**6), (1, 3))] == [
        "0 %",
        "0 %",
        "100 %",
        "0.1 %",
        "99.9 %",
        "33.3 %",
    ]


def test_the_partitioner_is_known_by_the_vehicles_and_not_by_the_keys() -> None:
    for name, partitioner in (("murmur2", by_murmur2), ("crc32", by_crc32)):
        sample = sample_of()
        for number in range(50):
            vehicle = f" bus {number}"  # the canonical id is stripped
            sample.add(partitioner(vehicle.strip().encode(), 4), NOON, b"key", value(vehicle), NOON)
        assert best_partitioner(sample.matching, sample.decoded) == name
        assert (sample.vehicles, sample.scattered, sample.keyed) == (50, 0, 0)
    assert best_partitioner({}, 0) is None


def test_a_reading_is_late_by_the_greatest_timestamp_before_it_in_its_partition() -> None:
    closed = NOON + 2 * HOUR_MS  # the hour that begins at noon, and its lateness
    for watermark, late in ((closed - 1, 0), (closed, 1)):
        sample = sample_of()
        sample.add(0, watermark, None, None, closed)
        sample.add(0, NOON, b"7", value(), closed)
        sample.add(1, NOON, b"7", value(), closed)
        assert (sample.late, sample.unordered, sample.empty, sample.tombstones) == (late, 1, 1, 0)


def test_times_that_cannot_be_read_have_no_lag_and_stop_nothing() -> None:
    sample = sample_of()
    for time in ("soon", "2026-01-01T00:00:00", 10**30, -(10**30), "0001-01-01T00:00:00+00:00"):
        sample.add(0, NOON, b"7", value(time=time), NOON)
    assert (sample.decoded, sample.timed, sample.late) == (5, 0, 0)
    assert sample.median_lag_ms is None


def test_a_record_ahead_of_the_clock_is_counted_beyond_the_limit() -> None:
    sample = sample_of()
    for ts in (NOON + 60_000, NOON + 60_001):
        sample.add(0, ts, None, value(), NOON)
    assert sample.ahead == 1


def test_a_sample_of_many_hours_shows_ids_that_live_in_one_or_two_of_them() -> None:
    for slots, told in ((1, "120 of 120 vehicle ids are in one or two timeslots of their day"), (6, None)):
        sample = sample_of()
        for hour in range(6):
            for bus in range(20):
                at = NOON + hour * HOUR_MS
                sample.add(0, at, None, value(f"{bus} {hour // slots}", at), at)
        hint = sample.spans.hint()
        assert (hint and hint.partition(":")[0]) == told
