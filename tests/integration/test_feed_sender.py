"""The sender by itself: room, and records that a broker refuses."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.replay import FlowControl, RecordedProducer, stored_offsets
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import TelemetryMessage
from tests.exposed import figures
from tests.services import KafkaServer, RedisServer
from tests.services.fixtures import MakeTopic


def test_a_sender_stays_within_its_room_until_the_offsets_move(
    kafka: KafkaServer, redis_server: RedisServer, make_topic: MakeTopic, unique_name: str
) -> None:
    topic, stop = make_topic(partitions=2), threading.Event()
    messages = [TelemetryMessage(1, 1_000 + number, b"k", bytes(919)) for number in range(100)]
    with closing(redis_server.client()) as redis:
        room = FlowControl(stored_offsets(redis, unique_name, 2), [0, 0], limit_bytes=10_000)
        with RecordedProducer({"bootstrap.servers": kafka.bootstrap_servers}, topic, stop, room) as sender:
            thread = threading.Thread(target=sender.send_all, args=(messages, Pace(0, 0, stop)))
            thread.start()
            wait_for(lambda: sender.records == 10)
            redis.hset(PartitionKeys(unique_name, 1).state, "offset", 4)
            wait_for(lambda: sender.records == 14)
            time.sleep(0.3)
            assert sender.records == 14
            stop.set()
            thread.join(5)
            sender.finish()
    assert len(kafka.read(topic)) == 14
    redis_server.delete(f"{{{unique_name}*")


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sender_says_so_when_the_broker_refuses_records(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, stop = make_topic(partitions=1, config={"max.message.bytes": "500"}), threading.Event()
    options: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
    before = acknowledged()
    with pytest.raises(HatcastError, match="Kafka rejected"), RecordedProducer(options, topic, stop) as sender:
        sender.send_all([TelemetryMessage(0, 1_000, b"k", os.urandom(2_000))], Pace(0, 0, stop))
        sender.finish()
    assert acknowledged() == before


def test_readings_that_the_broker_has_are_counted_and_ticks_are_not(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, stop = make_topic(partitions=1), threading.Event()
    messages = [
        TelemetryMessage(0, 1_000 + n, None if n % 10 == 9 else b"k", b"" if n % 10 == 9 else b"v") for n in range(100)
    ]
    before = acknowledged()
    with RecordedProducer({"bootstrap.servers": kafka.bootstrap_servers}, topic, stop) as sender:
        assert sender.send_all(messages, Pace(0, 0, stop))
        sender.finish()
    assert acknowledged() - before == 90


def acknowledged() -> float:
    """What this process has counted so far."""
    return figures(METERS.render()[0].decode(), "hatcast_bridge_readings_total").get((), 0.0)
