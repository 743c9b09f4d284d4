"""A group of `hatcast worker` processes on one policy and topic, and what it has stored."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer
from kafka import KafkaAdminClient

from bench.ingest.harness import Expected
from bench.process import cpu_s, end, start
from bench.release.watch import partition_ends, wait_for_group
from bench.settings import write_settings
from hatcast.agents.cli.contributions import read_contributions
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import PartitionKeys
from tests.services import KafkaServer, RedisServer

PARTITIONS: Final = 32
PATIENCE_S: Final = 900.0
_LOOK_S: Final = 0.02


class Group:
    """Workers of one group, with their topic. `processes`: those that should be running."""

    def __init__(self, kafka: KafkaServer, store: RedisServer, config: Path) -> None:
        self.settings: Settings = load_settings(config)
        self.name = self.settings.policy.name
        self.processes: list[subprocess.Popen[bytes]] = []
        self._kafka = kafka
        self._config = config
        self._redis = store.client()
        self._states = [PartitionKeys(self.name, partition).state for partition in range(PARTITIONS)]

    def add(self, workers: int = 1, machine: Path | None = None) -> None:
        """Start workers; do not wait for them.

        machine   folder for the temporary files of another machine: there the others do not notice a death at once
        """
        arguments = ("worker", "--config", str(self._config), "--log-level", "error")
        env = None if machine is None else {"TMPDIR": str(machine)}
        self.processes += [start("hatcast", *arguments, env=env) for _ in range(workers)]

    def remove(self, number: signal.Signals) -> None:
        """Send the last worker a signal; do not wait for the others."""
        process = self.processes.pop()
        os.kill(process.pid, number)
        process.wait(60)

    def wait_until_stable(self) -> dict[int, str]:
        """Wait until the running workers share all partitions; return whose each is. RuntimeError if one ended."""
        return wait_for_group(self._kafka, f"hatcast-{self.name}", len(self.processes), self._alive, PARTITIONS)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all workers."""
        return sum(cpu_s(process.pid) for process in self.processes)

    def offsets(self) -> list[int]:
        """Return the stored offset of each partition; 0 if there is none."""
        with self._redis.pipeline(transaction=False) as pipe:
            for key in self._states:
                pipe.hget(key, "offset")
            return [int(offset or 0) for offset in pipe.execute()]

    def wait_until_stored(self, ends: Sequence[int]) -> None:
        """Wait until these offsets are stored. Raises RuntimeError if a worker has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while any(offset < end for offset, end in zip(self.offsets(), ends, strict=True)):
            if not self._alive():
                raise RuntimeError(f"{self.name}: a worker has ended")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: stored {self.offsets()} of {ends}")
            time.sleep(_LOOK_S)

    def ends(self) -> list[int]:
        """Return the end of the log of each partition, with records of open transactions."""
        topic = self.settings.topics.telemetry
        # Brokers write the markers of a transaction after its commit returns: until then it is open.
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": "bench-scale",
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            return partition_ends(consumer, topic, PARTITIONS)
        finally:
            consumer.close()

    def log_bytes(self) -> int:
        """Return the bytes of the telemetry topic on the brokers' disks."""
        topic = self.settings.topics.telemetry
        with closing(KafkaAdminClient(bootstrap_servers=self._kafka.bootstrap_servers)) as admin:
            brokers = admin.describe_log_dirs([topic])
        folders = [folder for broker in brokers for folder in broker["log_dirs"]]
        topics = [found for folder in folders for found in folder["topics"] if found["name"] == topic]
        return sum(partition["partition_size"] for found in topics for partition in found["partitions"])

    def is_exact(self, expected: Expected) -> bool:
        """Return whether outcomes and HATs in Redis are exactly the expected ones."""
        return expected.equals(*asyncio.run(read_contributions(self.settings)))

    def _alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def end(self) -> None:
        """End the workers, each after its last checkpoint."""
        end(self.processes, PATIENCE_S)
        self.processes.clear()

    def close(self) -> None:
        """End the workers, and close the connection."""
        self.end()
        self._redis.close()


@contextmanager
def group(kafka: KafkaServer, store: RedisServer, folder: Path, name: str, **changed: str | int) -> Iterator[Group]:
    """Make a policy with topics of its own; at the end delete its topics and state. changed: as in write_settings."""
    config = write_settings(folder / f"{name}.toml", kafka, store, name, topic=name, partitions=PARTITIONS, **changed)
    settings = load_settings(config)
    ensure_topics(settings)
    made = Group(kafka, store, config)
    try:
        yield made
    finally:
        made.close()
        kafka.delete_topics([settings.topics.telemetry])
        store.delete(f"{{{name}:*")
