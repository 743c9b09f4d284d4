"""Compare records per second of (a) a plain loop, (b) our worker and (c) stock Faust; every result is checked."""

import tempfile
from pathlib import Path
from typing import Final

import click

from bench.figures import Figure, middle, say, show
from bench.ingest.harness import PLAIN, STOCK_FAUST, WORKER, Harness
from tests.services import open_kafka, open_redis

WORKER_OVER_PLAIN: Final = 0.8
PLAIN_CPU_OVER_WORKER: Final = 1.0
WORKER_OVER_STOCK: Final = 8.0
BYTES_PER_ENTRY: Final = 60.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--records", default=1_000_000, show_default=True, help="For plain loop and worker.")
@click.option("--stock-records", default=200_000, show_default=True, help="For stock Faust, which is slow.")
@click.option("--rounds", default=3, show_default=True)
def command(as_json: bool, records: int, stock_records: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure records per second of our worker, of a plain loop and of stock Faust."""
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {redis.source}")
        harness = Harness(kafka, redis, Path(folder), [PLAIN, WORKER, STOCK_FAUST])
        whole, prefix = harness.produce(records, stock_records)
        for number in range(1, rounds + 1):
            harness.round(number, whole, prefix)
    return show(f"ingest: {records:,} records, {rounds} rounds in turns", _figures(harness), as_json=as_json)


def _figures(harness: Harness) -> list[Figure]:
    return [
        harness.ratio(PLAIN.name, WORKER_OVER_PLAIN),
        harness.cpu_ratio(PLAIN.name, PLAIN_CPU_OVER_WORKER),
        harness.ratio(STOCK_FAUST.name, WORKER_OVER_STOCK),
        middle("redis_bytes_per_entry", harness.redis_bytes, "bytes per (user, HAT)", most=BYTES_PER_ENTRY),
        harness.exact(),
        *harness.each(),
        middle("redis_cpu_us_per_record", harness.redis_cpu_us, "us"),
    ]
