"""Contenders that fold the same topic in turns, each run a fresh process; results are compared with the reference."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.city import workload
from bench.figures import Figure, middle, say
from bench.ingest.reference import Reference, Totals
from bench.process import run_command
from bench.produce import RecordedProducer
from bench.settings import PARTITIONS, write_settings
from hatcast.agents.cli.contributions import read_contributions
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topics import ensure_telemetry
from tests.services import KafkaServer, RedisServer

TOPIC: Final = "bench"
PREFIX: Final = "bench-prefix"


@dataclass(frozen=True, slots=True)
class Contender:
    """A program that folds a topic and writes its result as JSON.

    command       its command line, before: where to read, topic, number of records, file of the result
    is_slow       it folds the prefix of the topic
    is_foreign    it reads from the bootstrap servers; one of ours has them in its hatcast.toml
    is_in_redis   outcomes and HATs are what it stored in Redis, not in the file
    """

    name: str
    command: Sequence[str]
    is_slow: bool = False
    is_foreign: bool = False
    is_in_redis: bool = False


def _ours(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"bench.ingest.{module}"


PLAIN: Final = Contender("plain", _ours("plain"))
WORKER: Final = Contender("worker", _ours("ours"), is_in_redis=True)
STOCK_FAUST: Final = Contender("stock_faust", _ours("stock"), is_slow=True)


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected result of a contender for a topic."""

    topic: str
    records: int
    entries: int
    outcomes: dict[str, int]
    hats: Totals

    @classmethod
    def of(cls, topic: str, records: int, reference: Reference) -> "Expected":
        """Return the expected result of a reference that has folded `records`."""
        return cls(topic, records, reference.entries, dict(reference.outcomes), reference.totals())

    def equals(self, outcomes: Mapping[str, int], hats: Mapping[str, Sequence[int]]) -> bool:
        """Return whether a result is exactly the expected one."""
        return outcomes == self.outcomes and {hat: tuple(row) for hat, row in hats.items()} == self.hats


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender."""

    rate: float
    cpu_us: float
    peak_mb: float
    exact: bool


class Harness:
    """Runs of contenders on one Kafka and one Redis.

    runs           by contender, in the order of the rounds
    redis_bytes    by run of the worker, for each user of a HAT
    redis_cpu_us   by run of the worker, for each record
    """

    def __init__(self, kafka: KafkaServer, redis: RedisServer, folder: Path, contenders: Sequence[Contender]) -> None:
        self.runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
        self.redis_bytes: list[float] = []
        self.redis_cpu_us: list[float] = []
        self._kafka = kafka
        self._redis = redis
        self._folder = folder
        self._contenders = contenders

    def produce(self, records: int, prefix: int) -> tuple[Expected, Expected]:
        """Fill the topic and its prefix; return the expected result of each."""
        settings = load_settings(write_settings(self._folder / "produce.toml", self._kafka, self._redis, "produce"))
        ensure_telemetry(settings)
        self._kafka.create_topic(PREFIX, PARTITIONS)
        sender, reference, size = RecordedProducer(self._kafka.bootstrap_servers), Reference(), 0
        prefix, expected = min(prefix, records), []
        for number, record in enumerate(workload(records), start=1):
            sender.send(TOPIC, record)
            reference.add(record.value)
            size += len(record.value)
            if number <= prefix:
                sender.send(PREFIX, record)
            if number == prefix:
                expected.append(Expected.of(PREFIX, number, reference))
        sender.flush()
        expected.insert(0, Expected.of(TOPIC, records, reference))
        say(f"produced {records:,} records of {size / records:.0f} bytes; {expected[0].entries:,} users in HATs")
        return expected[0], expected[1]

    def round(self, number: int, whole: Expected, prefix: Expected) -> None:
        """Run each contender once, one after the other."""
        for contender in self._contenders:
            expected = prefix if contender.is_slow else whole
            if contender.is_in_redis:
                self._run_in_redis(contender, number, expected)
            else:
                result = self._run(contender, number, expected)
                self._keep(contender.name, expected, result, result["outcomes"], result["hats"])

    def _run_in_redis(self, contender: Contender, number: int, expected: Expected) -> None:
        before = self._redis_now()
        result = self._run(contender, number, expected)
        after = self._redis_now()
        self.redis_bytes.append((after[0] - before[0]) / expected.entries)
        self.redis_cpu_us.append((after[1] - before[1]) / expected.records * 1e6)
        settings = load_settings(self._config(contender, number))
        outcomes, hats = asyncio.run(read_contributions(settings))
        self._keep(contender.name, expected, result, outcomes, hats)
        self._redis.delete(f"{{{settings.policy.name}:*")

    def _config(self, contender: Contender, number: int) -> Path:
        name = f"bench-{contender.name.replace('_', '-')}-{number}"
        return write_settings(self._folder / f"{name}.toml", self._kafka, self._redis, name)

    def _run(self, contender: Contender, number: int, expected: Expected) -> dict[str, Any]:
        result = self._folder / f"{contender.name}-{number}.json"
        where = self._kafka.bootstrap_servers if contender.is_foreign else str(self._config(contender, number))
        task = [where, expected.topic, str(expected.records), str(result)]
        run_command([*contender.command, *task], contender.name)
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def _keep(
        self,
        name: str,
        expected: Expected,
        result: Mapping[str, float],
        outcomes: Mapping[str, int],
        hats: Mapping[str, Sequence[int]],
    ) -> None:
        one = Run(
            rate=expected.records / result["seconds"],
            cpu_us=result["cpu_s"] / expected.records * 1e6,
            peak_mb=result["peak_mb"],
            exact=expected.equals(outcomes, hats),
        )
        self.runs[name].append(one)
        say(
            f"{name:13} {one.rate:10,.0f} records/s  {one.cpu_us:6.2f} us CPU a record  {one.peak_mb:5.0f} MB"
            f"  {'exact' if one.exact else 'WRONG'}"
        )

    def _redis_now(self) -> tuple[int, float]:
        """Return Redis' bytes of data and CPU seconds."""
        with self._redis.client() as client:
            info = client.info()
        return int(info["used_memory_dataset"]), float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def ratio(self, other: str, least: float) -> Figure:
        """Return the worker's rate over another's: the ratio of the medians, with the spread over the rounds."""
        ours, theirs = self.runs[WORKER.name], self.runs[other]
        medians = [middle("rate", [one.rate for one in runs], "").value for runs in (ours, theirs)]
        rounds = [one.rate / two.rate for one, two in zip(ours, theirs, strict=True)]
        name = f"{WORKER.name}_over_{other}"
        return Figure(name, medians[0] / medians[1], "times", min(rounds), max(rounds), least=least)

    def cpu_ratio(self, other: str, least: float | None = None) -> Figure:
        """Return another's CPU per record over the worker's; other work on the machine changes it less than rates."""
        ours, theirs = self.runs[WORKER.name], self.runs[other]
        medians = [middle("cpu", [one.cpu_us for one in runs], "").value for runs in (theirs, ours)]
        rounds = [one.cpu_us / two.cpu_us for one, two in zip(theirs, ours, strict=True)]
        name = f"{other}_cpu_over_{WORKER.name}"
        return Figure(name, medians[0] / medians[1], "times", min(rounds), max(rounds), least=least)

    def exact(self) -> Figure:
        """Return 1 if every run had the expected result."""
        exact = all(one.exact for runs in self.runs.values() for one in runs)
        return Figure("exact", float(exact), "1: every run equals the reference", least=1.0)

    def each(self) -> Iterator[Figure]:
        """Yield rate, CPU and memory of each contender: the medians, with their spread."""
        for name, runs in self.runs.items():
            yield middle(f"{name}_records_per_s", [one.rate for one in runs], "records/s")
        for name, runs in self.runs.items():
            yield middle(f"{name}_cpu_us_per_record", [one.cpu_us for one in runs], "us")
        for name, runs in self.runs.items():
            yield middle(f"{name}_peak_mb", [one.peak_mb for one in runs], "MB")
