"""Compare records per second of (a) a plain loop, (b) our worker and (c) stock Faust; every result is checked."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from bench.city import workload
from bench.figures import Figure, middle, say, show
from bench.ingest.reference import Reference, Totals
from bench.process import run
from bench.produce import RecordedProducer
from bench.settings import PARTITIONS, write_settings
from hatcast.agents.cli.contributions import read_contributions
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topics import ensure_telemetry
from tests.services import KafkaServer, RedisServer, open_kafka, open_redis

WORKER_OVER_PLAIN: Final = 0.6
WORKER_OVER_STOCK: Final = 8.0
BYTES_PER_ENTRY: Final = 60.0

TOPIC: Final = "bench"
PREFIX: Final = "bench-prefix"


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected result of a contender for a topic."""

    topic: str
    records: int
    entries: int
    outcomes: dict[str, int]
    hats: Totals


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender."""

    rate: float
    cpu_us: float
    peak_mb: float
    exact: bool


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--records", default=1_000_000, show_default=True, help="For plain loop and worker.")
@click.option("--stock-records", default=200_000, show_default=True, help="For stock Faust, which is slow.")
@click.option("--rounds", default=3, show_default=True)
def command(as_json: bool, records: int, stock_records: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure records per second of our worker, of a plain loop and of stock Faust."""
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {redis.source}")
        bench = Bench(kafka, redis, Path(folder))
        whole, prefix = bench.produce(records, min(stock_records, records))
        for number in range(1, rounds + 1):
            bench.round(number, whole, prefix)
        figures = bench.figures()
    return show(f"ingest: {records:,} records, {rounds} rounds in turns", figures, as_json=as_json)


class Bench:
    """Runs of all contenders on one Kafka and one Redis."""

    def __init__(self, kafka: KafkaServer, redis: RedisServer, folder: Path) -> None:
        self._kafka = kafka
        self._redis = redis
        self._folder = folder
        self._runs: dict[str, list[Run]] = {"plain": [], "worker": [], "stock": []}
        self._bytes: list[float] = []
        self._redis_cpu_us: list[float] = []

    def produce(self, records: int, prefix: int) -> tuple[Expected, Expected]:
        """Fill both topics; return the expected result of each."""
        settings = load_settings(write_settings(self._folder / "produce.toml", self._kafka, self._redis, "produce"))
        ensure_telemetry(settings)
        self._kafka.create_topic(PREFIX, PARTITIONS)
        sender, reference, size = RecordedProducer(self._kafka.bootstrap_servers), Reference(), 0
        expected = []
        for number, record in enumerate(workload(records), start=1):
            sender.send(TOPIC, record)
            reference.add(record.value)
            size += len(record.value)
            if number <= prefix:
                sender.send(PREFIX, record)
            if number == prefix:
                expected.append(_expected(PREFIX, number, reference))
        sender.flush()
        expected.insert(0, _expected(TOPIC, records, reference))
        say(f"produced {records:,} records of {size / records:.0f} bytes; {expected[0].entries:,} users in HATs")
        return expected[0], expected[1]

    def round(self, number: int, whole: Expected, prefix: Expected) -> None:
        """Run each contender once, one after the other."""
        plain = self._contend("plain", number, whole)
        self._keep("plain", whole, plain, plain["outcomes"], plain["hats"])
        before = self._redis_now()
        worker = self._contend("ours", number, whole)
        after = self._redis_now()
        self._bytes.append((after[0] - before[0]) / whole.entries)
        self._redis_cpu_us.append((after[1] - before[1]) / whole.records * 1e6)
        outcomes, hats = asyncio.run(read_contributions(load_settings(self._config("ours", number))))
        self._keep("worker", whole, worker, outcomes, hats)
        self._redis.delete(f"{{bench-ours-{number}:*")
        stock = self._contend("stock", number, prefix)
        self._keep("stock", prefix, stock, stock["outcomes"], stock["hats"])

    def _config(self, name: str, number: int) -> Path:
        return write_settings(
            self._folder / f"{name}-{number}.toml", self._kafka, self._redis, f"bench-{name}-{number}"
        )

    def _contend(self, name: str, number: int, expected: Expected) -> dict[str, Any]:
        result = self._folder / f"{name}-{number}.json"
        config = self._config(name, number)
        run(f"bench.ingest.{name}", str(config), expected.topic, str(expected.records), str(result))
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def _keep(
        self, name: str, expected: Expected, result: dict[str, Any], outcomes: dict[str, int], hats: dict[str, Any]
    ) -> None:
        exact = outcomes == expected.outcomes and {hat: tuple(row) for hat, row in hats.items()} == expected.hats
        one = Run(
            rate=expected.records / result["seconds"],
            cpu_us=result["cpu_s"] / expected.records * 1e6,
            peak_mb=result["peak_mb"],
            exact=exact,
        )
        self._runs[name].append(one)
        say(
            f"{name:7} {one.rate:10,.0f} records/s  {one.cpu_us:6.2f} us CPU a record  {one.peak_mb:5.0f} MB"
            f"  {'exact' if exact else 'WRONG'}"
        )

    def _redis_now(self) -> tuple[int, float]:
        """Return Redis' bytes of data and CPU seconds."""
        with self._redis.client() as client:
            info = client.info()
        return int(info["used_memory_dataset"]), float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def figures(self) -> list[Figure]:
        """Return the medians, their spread over the rounds, and the limits."""
        plain, worker, stock = self._runs["plain"], self._runs["worker"], self._runs["stock"]
        figures = [
            _ratio("worker_over_plain", worker, plain, WORKER_OVER_PLAIN),
            _ratio("worker_over_stock_faust", worker, stock, WORKER_OVER_STOCK),
            middle("redis_bytes_per_entry", self._bytes, "bytes per (user, HAT)", most=BYTES_PER_ENTRY),
        ]
        exact = all(one.exact for runs in self._runs.values() for one in runs)
        figures.append(Figure("exact", float(exact), "1: every run equals the reference", least=1.0))
        for name, runs in (("plain", plain), ("worker", worker), ("stock_faust", stock)):
            figures.append(middle(f"{name}_records_per_s", [one.rate for one in runs], "records/s"))
        for name, runs in (("plain", plain), ("worker", worker), ("stock_faust", stock)):
            figures.append(middle(f"{name}_cpu_us_per_record", [one.cpu_us for one in runs], "us"))
        figures.append(middle("redis_cpu_us_per_record", self._redis_cpu_us, "us"))
        for name, runs in (("plain", plain), ("worker", worker), ("stock_faust", stock)):
            figures.append(middle(f"{name}_peak_mb", [one.peak_mb for one in runs], "MB"))
        return figures


def _expected(topic: str, records: int, reference: Reference) -> Expected:
    return Expected(topic, records, reference.entries, dict(reference.outcomes), reference.totals())


def _ratio(name: str, ours: Sequence[Run], theirs: Sequence[Run], least: float) -> Figure:
    """Return the ratio of the medians, with the spread over the rounds."""
    medians = [middle("rate", [one.rate for one in runs], "").value for runs in (ours, theirs)]
    rounds = [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]
    return Figure(name, medians[0] / medians[1], "times", min(rounds), max(rounds), least=least)
