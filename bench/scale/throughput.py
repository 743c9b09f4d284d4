"""CPU per record of 1, 2, 4 and 8 workers that fold the same backlog."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.city import Sent
from bench.figures import Figure, middle, say
from bench.ingest.harness import Expected
from bench.produce import RecordedProducer
from bench.scale.workers import PARTITIONS, group
from tests.services import KafkaServer, RedisServer

WORKERS: Final = (1, 2, 4, 8)
CPU_OVER_ONE: Final = 1.15
_SETTLE_S: Final = 5.0  # until the workers have loaded their partitions and started their producers
_IDLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a number of workers, all workers together.

    cpu_us    CPU per record, without what they use when there is nothing to read
    gross_us  CPU per record
    idle      CPU seconds per second of one worker without records
    log_bytes bytes per record in Kafka
    """

    rate: float
    cpu_us: float
    gross_us: float
    idle: float
    log_bytes: float
    exact: bool


def measure(
    kafka: KafkaServer,
    store: RedisServer,
    folder: Path,
    workers: int,
    number: int,
    task: tuple[Sequence[Sent], Expected],
) -> Run:
    """Start the workers on an empty topic, then let them read all records at once. task: the records, the result."""
    records, expected = task
    with group(kafka, store, folder, f"bench-scale-{workers}-{number}") as started:
        started.add(workers)
        # One transaction: the records become readable at its commit, when all workers have their partitions.
        sender = RecordedProducer(kafka.bootstrap_servers, started.name)
        for record in records:
            sender.send(started.settings.topics.telemetry, record)
        sender.flush()
        started.wait_until_stable()
        ends = started.ends()
        time.sleep(_SETTLE_S)
        idle_cpu = started.cpu_s()
        time.sleep(_IDLE_S)
        before, begun = started.cpu_s(), time.monotonic()
        idle = (before - idle_cpu) / _IDLE_S
        sender.commit()
        started.wait_until_stored(ends)
        seconds, used = time.monotonic() - begun, started.cpu_s() - before
        run = Run(
            rate=len(records) / seconds,
            cpu_us=(used - idle * seconds) / len(records) * 1e6,
            gross_us=used / len(records) * 1e6,
            idle=idle / workers,
            log_bytes=started.log_bytes() / len(records),
            exact=started.is_exact(expected),
        )
    say(
        f"{workers} workers  {run.rate:9,.0f} records/s  {run.gross_us:5.2f} us CPU a record, {run.cpu_us:5.2f} without"
        f" idle ({100 * run.idle:.1f} %)  {'exact' if run.exact else 'WRONG'}"
    )
    return run


def figures(runs: Mapping[int, Sequence[Run]]) -> Iterator[Figure]:
    """Yield the ratios to one worker, with their limit, and what they are made of."""
    for workers in WORKERS[1:]:
        pairs = [many.cpu_us / one.cpu_us for many, one in zip(runs[workers], runs[1], strict=True)]
        yield middle(f"cpu_over_one_worker_{workers}", pairs, "times, per record", most=CPU_OVER_ONE)
    for workers in WORKERS:
        yield middle(f"cpu_us_per_record_{workers}", [run.cpu_us for run in runs[workers]], "us, all workers")
    for workers in WORKERS:
        yield middle(f"gross_cpu_us_per_record_{workers}", [run.gross_us for run in runs[workers]], "us, with idle")
    yield middle(
        "idle_cpu_percent", [100 * run.idle for each in runs.values() for run in each], "% of a core, a worker"
    )
    for workers in WORKERS:
        yield middle(f"records_per_s_{workers}", [run.rate for run in runs[workers]], "records/s, as the cores allow")
    sizes = [run.log_bytes for each in runs.values() for run in each]
    yield middle("kafka_bytes_per_record", sizes, "bytes, lz4, full batches")
    exact = all(run.exact for each in runs.values() for run in each)
    yield Figure("throughput_exact", float(exact), f"1: {PARTITIONS} partitions equal the reference", least=1.0)
