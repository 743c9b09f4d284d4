"""Time from final to published: one HAT of up to a million users, 5,000 HATs of 300 users at once, and running sums."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click
import redis.asyncio

from bench.city import Sent
from bench.figures import Figure, middle, say, show
from bench.process import cpu_s, end, peak_mb, resident_mb, start
from bench.produce import RecordedProducer
from bench.release.running import fill_states
from bench.release.state import Shape, fill, slot_times
from bench.release.watch import Clocks, Published, wait_for_group
from bench.settings import PARTITIONS, write_settings
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.policy.continual_keys import ContinualKind
from tests.services import KafkaServer, RedisServer, open_kafka, open_redis

ONE_HAT_S: Final = 1.0
MANY_HATS_S: Final = 3.0
MANY_HATS_CPU_S: Final = 2.5
RUNNING_SUMS_S: Final = 10.0
ESTIMATORS: Final = ("array_averaging", "baseline")


@dataclass(frozen=True, slots=True)
class Case:
    """One case: the HATs, the estimator or the kind of running sums, and the number of workers.

    most_s, most_cpu_s   limits: seconds until all is published, CPU seconds of all workers
    """

    name: str
    shape: Shape
    estimator: str
    workers: int = 1
    most_s: float | None = None
    most_cpu_s: float | None = None
    continual: ContinualKind | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One release.

    seconds    from the checkpoint that made the HATs final until a read_committed consumer has seen all releases
    cpu_s      CPU of the workers in this time
    before_mb  resident memory of the largest worker before; peak_mb: its peak
    """

    seconds: float
    cpu_s: float
    before_mb: float
    peak_mb: float


def cases(largest: int) -> list[Case]:
    """Return all cases, small ones first."""
    found, many = [], Shape(5_000, 300, 100_000)
    for estimator in ESTIMATORS:
        for power in range(3, 7):
            users = 10**power
            if users <= largest:
                most = ONE_HAT_S if users == 10**6 else None
                found.append(Case(f"{estimator}_1e{power}", Shape(1, users, users), estimator, most_s=most))
        found.append(Case(f"{estimator}_5000x300", many, estimator, 1, MANY_HATS_S, MANY_HATS_CPU_S))
    found.append(Case("array_averaging_5000x300_2_workers", many, ESTIMATORS[0], 2, MANY_HATS_S, MANY_HATS_CPU_S))
    for kind in ContinualKind:
        shape = Shape(10_000, 12, 5_000)
        found.append(Case(f"continual_{kind}_10000x12", shape, "", most_s=RUNNING_SUMS_S, continual=kind))
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--largest", default=1_000_000, show_default=True, help="Users of the largest HAT.")
@click.option("--only", default="", help="Only cases whose name contains this.")
def command(as_json: bool, rounds: int, largest: int, only: str) -> int:  # noqa: FBT001 - click's way
    """Measure seconds from final to published."""
    runs: dict[str, list[Run]] = {}
    chosen = [case for case in cases(largest) if only in case.name]
    with open_kafka() as kafka, open_redis() as store, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {store.source}")
        for number in range(1, rounds + 1):
            for case in chosen:
                run = Bench(kafka, store, Path(folder), case, number).run()
                runs.setdefault(case.name, []).append(run)
                say(
                    f"{case.name:36} {run.seconds:6.2f} s  {run.cpu_s:6.2f} s CPU"
                    f"  {run.before_mb:5.0f} -> {run.peak_mb:5.0f} MB"
                )
    return show(f"release: {rounds} rounds", [f for case in chosen for f in _figures(case, runs)], as_json=as_json)


def _figures(case: Case, runs: dict[str, list[Run]]) -> Iterator[Figure]:
    found = runs[case.name]
    yield middle(f"{case.name}_s", [run.seconds for run in found], "s", most=case.most_s)
    yield middle(f"{case.name}_cpu_s", [run.cpu_s for run in found], "s", most=case.most_cpu_s)
    yield middle(f"{case.name}_peak_mb", [run.peak_mb for run in found], "MB")
    yield Figure(f"{case.name}_above_open_mb", median(run.peak_mb - run.before_mb for run in found), "MB")


class Bench:
    """One run of a case, with its own policy and topic."""

    def __init__(self, kafka: KafkaServer, store: RedisServer, folder: Path, case: Case, number: int) -> None:
        self._kafka = kafka
        self._store = store
        self._case = case
        self._name = f"bench-{case.name.replace('_', '-')}-{number}"
        kind = {"estimator": case.estimator} if case.continual is None else {"continual": case.continual.value}
        changed: dict[str, str | int] = {
            "topic": self._name,
            "lateness": "5m",
            "limit": 1_000_000,
            "hours": "0, 24",
            **kind,
        }
        self._config = write_settings(folder / f"{self._name}.toml", kafka, store, self._name, **changed)

    def run(self) -> Run:
        """Prepare the state, start the workers, make the slot final, and wait for the releases."""
        settings, case = load_settings(self._config), self._case
        ensure_topics(settings)
        asyncio.run(_fill(settings, case.shape))
        with _workers(self._config, case.workers) as workers, closing(Clocks(self._store, self._name)) as clocks:
            pids = [worker.pid for worker in workers]
            group = f"hatcast-{self._name}"
            wait_for_group(self._kafka, group, case.workers, lambda: all(worker.poll() is None for worker in workers))
            closes = slot_times(settings).closes_ms
            self._tick(settings, closes - 1)
            clocks.wait_for(closes - 1)  # all partitions are loaded, and folded
            published = Published(self._kafka, settings.topics.means, self._name, case.shape.hats)
            published.start()
            before = max(resident_mb(pid) for pid in pids)
            cpu = sum(cpu_s(pid) for pid in pids)
            self._tick(settings, closes)
            final_s = clocks.wait_for(closes)
            published.join(600)
            if published.at_s is None or set(published.statuses.values()) != {"released"}:
                published.stopped = True
                raise RuntimeError(f"{self._name}: {len(published.statuses)} of {case.shape.hats} were published")
            used = sum(cpu_s(pid) for pid in pids) - cpu
            peak = max(peak_mb(pid) for pid in pids)
        self._store.delete(f"{{{self._name}*")
        return Run(published.at_s - final_s, used, before, peak)

    def _tick(self, settings: Settings, clock_ms: int) -> None:
        sender = RecordedProducer(self._kafka.bootstrap_servers)
        for partition in range(PARTITIONS):
            sender.send(settings.topics.telemetry, Sent(b"", clock_ms, b""), partition)
        sender.flush()


async def _fill(settings: Settings, shape: Shape) -> None:
    client = redis.asyncio.Redis.from_url(settings.redis.url)
    try:
        await fill(client, settings, shape)
        await fill_states(client, settings, shape.hats)
    finally:
        await client.aclose()


@contextmanager
def _workers(config: Path, number: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Start `hatcast worker` processes with the usual command."""
    started = [start("hatcast", "worker", "--config", str(config), "--log-level", "warning") for _ in range(number)]
    try:
        yield started
    finally:
        end(started)
