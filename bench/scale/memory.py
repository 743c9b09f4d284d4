"""Memory of a worker and of Redis with 10^5 open HATs and 10^6 users, and the time that a restart takes."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import h3.api.basic_int as h3

from bench.city import OFFSET, Sent
from bench.figures import Figure, say
from bench.ingest.harness import Expected
from bench.ingest.reference import Totals
from bench.process import cpu_s, peak_mb, resident_mb
from bench.produce import RecordedProducer
from bench.release.state import cells_of
from bench.scale.workers import PARTITIONS, Group, group
from hatcast.agents.redis.keys import PartitionKeys
from tests.services import KafkaServer, RedisServer

READINGS: Final = 2  # of a user in a HAT
BYTES_PER_ENTRY: Final = 300.0  # of Redis, most HATs with one user in a partition
STARTS: Final = 2  # of the worker, each with a heartbeat in every partition
STEP_S: Final = 10
SPEED_KMH: Final = 30
START: Final = datetime(2022, 1, 2, 9, 0, tzinfo=OFFSET)


@dataclass(frozen=True, slots=True)
class Shape:
    """Open HATs of one hour, users, and HATs that each user enters."""

    hats: int
    users: int
    hats_of_user: int

    @property
    def entries(self) -> int:
        """Users of all HATs."""
        return self.users * self.hats_of_user

    def hat(self, user: int, entry: int) -> int:
        """Return the number of a user's HAT: they lie beside each other."""
        return (user * self.hats_of_user + entry) % self.hats

    def records(self) -> Iterator[Sent]:
        """Yield the readings in order of time: all users in their first HAT, then in the next."""
        places = [h3.cell_to_latlng(h3.str_to_int(cell)) for cell in cells_of(self.hats)]
        tails = [f'"location":{{"coordinates":[{lon:.6f},{lat:.6f}],"type":"Point"}}}}' for lat, lon in places]
        keys = [f"V{user:07}" for user in range(self.users)]
        for step in range(self.hats_of_user * READINGS):
            time = START + timedelta(seconds=STEP_S * step)
            head = f'{{"observationDateTime":"{time.isoformat()}","speed":{SPEED_KMH},"license_plate":"'
            arrival = round(time.timestamp() * 1000) + 2_000
            for user, key in enumerate(keys):
                value = f'{head}{key}",{tails[self.hat(user, step // READINGS)]}'
                yield Sent(key.encode(), arrival, value.encode())

    def expected(self) -> Expected:
        """Return the result, by arithmetic: all readings are valid and have one speed."""
        users = [0] * self.hats
        for user in range(self.users):
            for entry in range(self.hats_of_user):
                users[self.hat(user, entry)] += 1
        milli, date = 1000 * SPEED_KMH, START.strftime("%Y-%m-%d/%H:00")
        hats: Totals = {
            f"{cell}/{date}": (count, count * READINGS, count * READINGS * milli, milli)
            for cell, count in zip(cells_of(self.hats), users, strict=True)
        }
        readings = self.entries * READINGS
        outcomes = {"accepted": readings, "tick": STARTS * PARTITIONS}
        return Expected("", readings, self.entries, outcomes, hats)


@dataclass(frozen=True, slots=True)
class Started:
    """A start of the worker, until it has stored a heartbeat of each partition. Memory in MB."""

    seconds: float
    cpu_s: float
    resident_mb: float


class _RedisMemory(threading.Thread):
    """Thread that looks at Redis' memory. peak, journal: the largest total (bytes), and the journals' part then."""

    def __init__(self, store: RedisServer, name: str) -> None:
        super().__init__(daemon=True)
        self.peak = self.journal = 0
        self._store = store
        self._keys = [PartitionKeys(name, partition).journal for partition in range(PARTITIONS)]
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look twice a second until `stop`."""
        with closing(self._store.client()) as client:
            while not self._stopped.wait(0.5):
                used = int(client.info("memory")["used_memory"])
                if used > self.peak:
                    self.peak = used
                    self.journal = sum(int(client.memory_usage(key) or 0) for key in self._keys)

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()
        self.join()


def measure(kafka: KafkaServer, store: RedisServer, folder: Path, shape: Shape, prefix: str = "") -> list[Figure]:
    """Fold readings of all users, look at the memory, restart the worker, and check the result.

    prefix   of the figures' names
    """
    with group(kafka, store, folder, f"bench-scale-{shape.hats}", hours="0, 24") as workers:
        empty_bytes = _used(store)
        empty = _start(kafka, workers)
        memory = _RedisMemory(store, workers.name)
        memory.start()
        sender, begun = RecordedProducer(kafka.bootstrap_servers), time.monotonic()
        for record in shape.records():
            sender.send(workers.settings.topics.telemetry, record)
        sender.flush()
        workers.wait_until_stored(workers.ends())
        say(f"folded {shape.entries * READINGS:,} readings in {time.monotonic() - begun:.0f} s")
        memory.stop()
        pid = workers.processes[0].pid
        resident, peak, used = resident_mb(pid), peak_mb(pid), _used(store) - empty_bytes
        workers.end()
        full = _start(kafka, workers)
        exact = workers.is_exact(shape.expected())
    per = shape.entries
    entry = "bytes per (user, HAT)"
    return [
        Figure(f"{prefix}redis_bytes_per_entry", used / per, entry, most=BYTES_PER_ENTRY),
        Figure(f"{prefix}redis_peak_bytes_per_entry", (memory.peak - empty_bytes) / per, f"{entry}, with the journal"),
        Figure(f"{prefix}journal_bytes_per_entry", memory.journal / per, f"{entry}, of the peak"),
        Figure(f"{prefix}redis_mb", used / 1e6, "MB"),
        Figure(f"{prefix}worker_bytes_per_entry", 1e6 * (resident - empty.resident_mb) / per, entry),
        Figure(f"{prefix}worker_mb", resident, "MB"),
        Figure(f"{prefix}worker_peak_mb", peak, "MB"),
        Figure(f"{prefix}empty_worker_mb", empty.resident_mb, "MB"),
        Figure(f"{prefix}restarted_worker_mb", full.resident_mb, "MB"),
        Figure(f"{prefix}restart_s", full.seconds, "s, process included"),
        Figure(f"{prefix}restart_cpu_us_per_entry", 1e6 * (full.cpu_s - empty.cpu_s) / per, "us"),
        Figure(f"{prefix}empty_start_s", empty.seconds, "s, process included"),
        Figure(f"{prefix}memory_exact", float(exact), "1: every HAT as computed", least=1.0),
    ]


def _start(kafka: KafkaServer, workers: Group) -> Started:
    """Start a worker with a heartbeat in each partition, and wait until it has stored them."""
    sender = RecordedProducer(kafka.bootstrap_servers)
    for partition in range(PARTITIONS):
        heartbeat = Sent(b"", round(START.timestamp() * 1000), b"")
        sender.send(workers.settings.topics.telemetry, heartbeat, partition)
    sender.flush()
    begun = time.monotonic()
    workers.add()
    workers.wait_until_stored(workers.ends())
    pid = workers.processes[0].pid
    started = Started(time.monotonic() - begun, cpu_s(pid), resident_mb(pid))
    say(f"started in {started.seconds:.1f} s, {started.cpu_s:.1f} s of CPU, {started.resident_mb:.0f} MB")
    return started


def _used(store: RedisServer) -> int:
    with closing(store.client()) as client:
        return int(client.info("memory")["used_memory"])
