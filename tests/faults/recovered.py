"""One ledger recovered by several worker processes at once: how long it takes, and how much memory each needs.

python -m tests.faults.recovered CONFIG    recovers it, as one of them, and prints what it took
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.asyncio import Redis

from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.messages import release_message
from hatcast.stream.ledger.proposals import numbered
from tests.faults.entries import RELEASED_AT_MS, Entries
from tests.integration.harness import Pipeline
from tests.integration.recovering import recovery_with
from tests.services.data import ROOT
from tests.services.kafka_records import Record, produce

_PAUSE_S: Final = 0.5  # between tries, as a worker's rounds


@dataclass(frozen=True)
class Shared:
    """What several workers took to recover a ledger: seconds until the last had it, and the largest peak of memory."""

    entries: int
    workers: int
    seconds: float
    peak_mb: int


def recovered_by(pipeline: Pipeline, number: int, workers: int, per_day: int = 10_000) -> Shared:
    """Publish so many releases of which Redis knows nothing, and recover them with several processes.

    Raises AssertionError if the ledger is not whole afterwards.
    """
    ensure_topics(pipeline.settings)
    entries = Entries(pipeline, number, per_day)
    produce(pipeline.settings.kafka.bootstrap_servers, pipeline.settings.topics.means, _records(pipeline, entries))
    command = [sys.executable, "-m", __name__, str(pipeline.config)]
    begun = time.monotonic()
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(workers)]
    found = [json.loads(each.communicate()[0].splitlines()[-1]) for each in started]
    seconds = time.monotonic() - begun
    assert asyncio.run(_released(pipeline, entries)) == number
    return Shared(number, workers, seconds, max(each["peak_mb"] for each in found))


def _records(pipeline: Pipeline, entries: Entries) -> Iterator[Record]:
    settings = pipeline.settings
    for day in entries.dates:
        for seq, release in enumerate(entries.of(day), 1):
            value, name = numbered(release.record(RELEASED_AT_MS), seq), release.release_id
            message = release_message(settings, name, value, settings.kafka.partitions)
            yield Record(value, message.key, message.partition, headers=tuple(message.headers))


async def _released(pipeline: Pipeline, entries: Entries) -> int:
    settings = pipeline.settings
    async with Redis.from_url(settings.redis.url) as redis:
        ledger = LedgerStore(redis, settings.topics.telemetry, settings.policy)
        return sum([(await ledger.summary(day)).releases for day in entries.dates])


async def _recover(config: Path) -> None:
    settings = load_settings(config, {})
    owned = frozenset(range(settings.kafka.partitions))
    producers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, aiokafka_options(settings))
    async with Redis.from_url(settings.redis.url) as redis:
        recovery = recovery_with(settings, redis, producers, partitions=settings.kafka.partitions)
        while not await recovery.ensure(owned):
            await asyncio.sleep(_PAUSE_S)
    await producers.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(json.dumps({"peak_mb": peak}) + "\n")


if __name__ == "__main__":
    asyncio.run(_recover(Path(sys.argv[1])))
