"""Memory under full load for ten minutes, while hours close and are released."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

from bench.figures import Figure, middle, say, show
from bench.process import end, resident_mb, start
from bench.settings import PARTITIONS, write_settings
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.stream.ledger import rows
from tests.services import RedisServer, open_kafka, open_redis

GROWTH_PERCENT: Final = 5.0  # from the first to the last third of what follows the warm-up
OPEN_GROWTH_PERCENT: Final = 25.0  # a sawtooth with a period of one hour; a leak of contributions doubles it each hour
NAME: Final = "bench-soak"


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements at one moment. Memory in MB."""

    seconds: float
    records: int
    worker_mb: float
    open_mb: float
    ledger_mb: float
    releases: int


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object; the rows go to standard error.")
@click.option("--seconds", default=600, show_default=True, help="Of full load.")
@click.option("--every", default=10, show_default=True, help="Seconds between rows.")
@click.option("--warm-up", default=120, show_default=True, help="Seconds that do not count.")
def command(as_json: bool, seconds: int, every: int, warm_up: int) -> int:  # noqa: FBT001 - click's way
    """Measure the memory of a worker and of Redis under full load."""
    with open_kafka() as kafka, open_redis() as store, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {store.source}")
        config = write_settings(
            Path(folder) / "soak.toml",
            kafka,
            store,
            NAME,
            topic=NAME,
            lateness="5m",
            hours="0, 24",
            cap=400,
            limit=1_000_000,
        )
        kafka.create_topic(
            NAME,
            PARTITIONS,
            # Retention by size, although a worker warns of it: ten minutes are 10 GB, too much for a benchmark.
            {
                "retention.ms": "-1",
                "retention.bytes": str(1 << 29),
                "segment.bytes": str(1 << 26),
                "message.timestamp.after.max.ms": "120000",
            },
        )
        ensure_topics(load_settings(config))
        worker = start("hatcast", "worker", "--config", str(config), "--log-level", "error")
        feed = start("bench.soak.feed", str(config), store.url)
        try:
            samples = _watch(store, worker.pid, seconds, every)
            if worker.poll() is not None or feed.poll() is not None:
                raise RuntimeError("the worker or the feed has ended")
        finally:
            end([feed, worker])
            kafka.delete_topics([NAME])
    return show(f"soak: {seconds} s of full load", _figures(samples, warm_up), as_json=as_json)


def _watch(store: RedisServer, pid: int, seconds: int, every: int) -> list[Sample]:
    say(
        f"{'s':>5} {'records':>12} {'records/s':>10} {'worker MB':>10} {'open MB':>8} {'ledger MB':>10} {'releases':>9}"
    )
    samples: list[Sample] = []
    with closing(_Redis(store)) as redis:
        while redis.records() == 0:
            time.sleep(0.1)  # the measured time begins with the first checkpoint
        begun = time.monotonic()
        while not samples or samples[-1].seconds < seconds:
            time.sleep(max(0.0, begun + len(samples) * every - time.monotonic()))
            sample = redis.sample(time.monotonic() - begun, resident_mb(pid))
            since = samples[-1] if samples else sample
            rate = (sample.records - since.records) / max(1e-9, sample.seconds - since.seconds)
            say(
                f"{sample.seconds:5.0f} {sample.records:12,} {rate:10,.0f} {sample.worker_mb:10.1f}"
                f" {sample.open_mb:8.2f} {sample.ledger_mb:10.2f} {sample.releases:9,}"
            )
            samples.append(sample)
    return samples


class _Redis:
    """Memory of Redis: open contributions, and the ledger, which stores every release permanently."""

    def __init__(self, store: RedisServer) -> None:
        self._client = store.client()
        self._domain = DomainKeys(NAME)
        self._states = [PartitionKeys(NAME, partition).state for partition in range(PARTITIONS)]

    def records(self) -> int:
        """Return the number of records that were folded and stored."""
        return sum(int(self._client.hget(key, "offset") or 0) for key in self._states)

    def sample(self, seconds: float, worker_mb: float) -> Sample:
        """Return the current measurements."""
        dates = [each.decode() for each in self._client.hkeys(self._domain.row(rows.NONCES)) if isinstance(each, bytes)]
        keys = list(self._client.scan_iter(f"{self._domain.prefix}*", count=1_000))
        ledger = sum(int(self._client.memory_usage(key, samples=20) or 0) for key in keys)
        return Sample(
            seconds=seconds,
            records=self.records(),
            worker_mb=worker_mb,
            open_mb=(int(self._client.info("memory")["used_memory_dataset"]) - ledger) / 1e6,
            ledger_mb=ledger / 1e6,
            releases=sum(
                int(self._client.hget(self._domain.row(rows.ledger(date)), f"commits:{NAME}") or 0) for date in dates
            ),
        )

    def close(self) -> None:
        self._client.close()


def _figures(samples: Sequence[Sample], warm_up: int) -> list[Figure]:
    warm = [sample for sample in samples if sample.seconds >= warm_up]
    if len(warm) < 3:
        raise click.UsageError("three rows after the warm-up are needed: more --seconds, or less --warm-up")
    seconds = [sample.seconds for sample in warm]
    worker, opened = [sample.worker_mb for sample in warm], [sample.open_mb for sample in warm]
    rate = (warm[-1].records - warm[0].records) / (seconds[-1] - seconds[0])
    return [
        Figure("worker_growth_percent", _growth(worker), "% from first to last third", most=GROWTH_PERCENT),
        Figure("redis_open_growth_percent", _growth(opened), "% from first to last third", most=OPEN_GROWTH_PERCENT),
        middle("worker_mb", worker, "MB"),
        middle("redis_open_mb", opened, "MB, all but releases"),
        Figure("records_per_s", rate, "records/s"),
        Figure("records", warm[-1].records, "records"),
        Figure("releases", warm[-1].releases, "releases"),
        Figure("ledger_bytes_per_release", warm[-1].ledger_mb * 1e6 / max(1, warm[-1].releases), "bytes, kept"),
    ]


def _growth(values: Sequence[float]) -> float:
    """Return the growth from the first to the last third, in %, by their medians, since every curve is a sawtooth."""
    third = max(1, len(values) // 3)
    first, last = median(values[:third]), median(values[-third:])
    return 100 * (last - first) / first
