"""Watch a release from outside: the watermarks in Redis, and the committed records in Kafka."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.settings import PARTITIONS
from hatcast.agents.kafka.client import ask_leaders
from hatcast.agents.redis.keys import PartitionKeys
from tests.services import KafkaServer, RedisServer

PATIENCE_S: Final = 180.0
_LOOK_S: Final = 0.005


class Clocks:
    """Stored watermarks of all partitions."""

    def __init__(self, redis: RedisServer, name: str, partitions: int = PARTITIONS) -> None:
        self._redis = redis.client()
        self._keys = [PartitionKeys(name, partition).state for partition in range(partitions)]

    def wait_for(self, clock_ms: int) -> float:
        """Wait until all stored watermarks have reached `clock_ms`; return the time (monotonic seconds)."""
        deadline = time.monotonic() + PATIENCE_S
        clocks: list[bytes | None] = []
        while time.monotonic() < deadline:
            with self._redis.pipeline(transaction=False) as pipe:
                for key in self._keys:
                    pipe.hget(key, "clock")
                clocks = pipe.execute()
            now = time.monotonic()
            if all(clock is not None and int(clock) >= clock_ms for clock in clocks):
                return now
            time.sleep(_LOOK_S)
        raise TimeoutError(f"the clocks did not get to {clock_ms}: {clocks}")

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def partition_ends(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """Return the end of each partition's log."""
    tps = [TopicPartition(topic, partition) for partition in range(partitions)]
    return ask_leaders(lambda: [consumer.get_watermark_offsets(tp)[1] for tp in tps])


class Published(threading.Thread):
    """Thread that consumes a policy's releases with read_committed, and records when it has seen the last."""

    def __init__(self, kafka: KafkaServer, topic: str, name: str, number: int) -> None:
        super().__init__(daemon=True)
        self.statuses: dict[str, str] = {}
        self.at_s: float | None = None
        self.stopped = False
        self._prefix = name.encode() + b"/"
        self._number = number
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "bench-release",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        ends = partition_ends(self._consumer, topic, PARTITIONS)
        self._consumer.assign([TopicPartition(topic, each, end) for each, end in enumerate(ends)])

    def run(self) -> None:
        """Consume until all releases were seen."""
        status = msgspec.json.Decoder(_Status).decode
        with closing(self._consumer):
            while not self.stopped and len(self.statuses) < self._number:
                for message in self._consumer.consume(1_000, timeout=0.02):
                    error, key, value = message.error(), message.key(), message.value()
                    if error is not None:
                        raise KafkaException(error)
                    if key is not None and value is not None and key.startswith(self._prefix):
                        self.statuses[key.decode()] = status(value).status
            self.at_s = time.monotonic()


class _Status(msgspec.Struct):
    status: str


def wait_for_group(
    kafka: KafkaServer, group: str, members: int, alive: Callable[[], bool], partitions: int = PARTITIONS
) -> dict[int, str]:
    """Wait until `members` workers share the partitions; return whose each is. Raises RuntimeError if they are dead."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = admin.describe_consumer_groups([group])[group].result()
        except KafkaException:  # the group has no coordinator yet
            found = None
        if found is not None and found.state == ConsumerGroupState.STABLE and len(found.members) == members:
            owners = {tp.partition: each.member_id for each in found.members for tp in each.assignment.topic_partitions}
            if len(owners) == partitions:
                return owners
        if not alive():
            raise RuntimeError("a worker has ended")
        time.sleep(0.2)
    raise TimeoutError(f"{group} did not get {members} members")
