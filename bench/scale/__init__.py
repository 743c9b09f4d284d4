"""Many workers, a rebalance, and much open state: what a larger installation needs (docs/operations.md)."""

import tempfile
from pathlib import Path
from typing import Final

import click

from bench.city import workload
from bench.figures import Figure, say, show
from bench.ingest.harness import Expected
from bench.ingest.reference import Reference
from bench.scale import memory, rebalance, throughput
from tests.services import KafkaServer, RedisServer, open_kafka, open_redis

PARTS: Final = ("throughput", "rebalance", "memory")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="One part; may be given several times.")
@click.option("--records", default=500_000, show_default=True, help="Of each run of throughput.")
@click.option("--rounds", default=2, show_default=True, help="Of throughput.")
@click.option("--rebalances", default=2, show_default=True, help="Rounds of rebalance.")
@click.option("--session-s", default=10.0, show_default=True, help="worker.session_timeout of rebalance.")
@click.option("--hats", default=100_000, show_default=True, help="Of memory: open HATs; `dense`: a twentieth.")
@click.option("--users", default=1_000_000, show_default=True, help="Of memory; `dense`: half of them.")
def command(  # noqa: PLR0913, PLR0917 - click's way
    as_json: bool,  # noqa: FBT001
    only: tuple[str, ...],
    records: int,
    rounds: int,
    rebalances: int,
    session_s: float,
    hats: int,
    users: int,
) -> int:
    """Measure CPU per record of 1 to 8 workers, the time that a rebalance costs, and memory with much open state."""
    figures: list[Figure] = []
    with open_kafka() as kafka, open_redis() as store, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as name:
        say(f"Kafka: {kafka.source}, Redis: {store.source}")
        folder, chosen = Path(name), only or PARTS
        if "throughput" in chosen:
            figures += _throughput(kafka, store, folder, records, rounds)
        if "rebalance" in chosen:
            losses = [rebalance.measure(kafka, store, folder, number, session_s) for number in range(1, rebalances + 1)]
            figures += rebalance.figures(losses, session_s)
        if "memory" in chosen:
            figures += memory.measure(kafka, store, folder, memory.Shape(hats, users, 2))
            figures += memory.measure(kafka, store, folder, memory.Shape(hats // 20, users // 2, 2), "dense_")
    return show(f"scale: {', '.join(chosen)}", figures, as_json=as_json)


def _throughput(kafka: KafkaServer, store: RedisServer, folder: Path, records: int, rounds: int) -> list[Figure]:
    sent, reference = list(workload(records)), Reference()
    for record in sent:
        reference.add(record.value)
    expected = Expected.of("", records, reference)
    runs: dict[int, list[throughput.Run]] = {workers: [] for workers in throughput.WORKERS}
    for number in range(1, rounds + 1):
        for workers in throughput.WORKERS:
            runs[workers].append(throughput.measure(kafka, store, folder, workers, number, (sent, expected)))
    return list(throughput.figures(runs))
