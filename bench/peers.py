"""Compare records per second of our worker and of other stream processors on one topic; every result is checked."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from bench.figures import Figure, say, show
from bench.frameworks.environments import EnvironmentAbsent, java_command, python_command
from bench.ingest import WORKER_OVER_PLAIN, WORKER_OVER_STOCK
from bench.ingest.harness import PLAIN, STOCK_FAUST, WORKER, Contender, Harness
from tests.services import open_kafka, open_redis


@dataclass(frozen=True, slots=True)
class Peer:
    """A program of another framework. least: the worker's rate over its rate, at least."""

    name: str
    command: Callable[[], list[str]]
    is_slow: bool
    least: float


PEERS: Final = (
    Peer("kafka_streams", java_command, is_slow=False, least=1.5),
    Peer("quix", lambda: python_command("quix"), is_slow=True, least=2.0),
    Peer("bytewax", lambda: python_command("bytewax"), is_slow=True, least=2.5),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--records", default=1_000_000, show_default=True, help="For plain loop, worker and Kafka Streams.")
@click.option("--slow-records", default=200_000, show_default=True, help="For stock Faust, Quix Streams and bytewax.")
@click.option("--rounds", default=3, show_default=True)
def command(as_json: bool, records: int, slow_records: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure records per second of our worker, a plain loop, stock Faust, Kafka Streams, Quix Streams and bytewax."""
    peers = {peer.name: peer for peer in PEERS}
    found = _contenders()
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {redis.source}")
        harness = Harness(kafka, redis, Path(folder), [PLAIN, WORKER, *found, STOCK_FAUST])
        whole, prefix = harness.produce(records, slow_records)
        for number in range(1, rounds + 1):
            harness.round(number, whole, prefix)
    figures = [
        harness.ratio(PLAIN.name, WORKER_OVER_PLAIN),
        *(harness.ratio(each.name, peers[each.name].least) for each in found),
        harness.ratio(STOCK_FAUST.name, WORKER_OVER_STOCK),
        harness.exact(),
        *(harness.cpu_ratio(each.name) for each in (*found, STOCK_FAUST)),
        Figure("left_out", len(PEERS) - len(found), "peers that cannot run here"),
        *harness.each(),
    ]
    return show(f"peers: {records:,} records, {rounds} rounds in turns", figures, as_json=as_json)


def _contenders() -> Sequence[Contender]:
    """Return the peers that this machine can run; name the others, each in one line."""
    found = []
    for peer in PEERS:
        try:
            command = peer.command()
        except EnvironmentAbsent as error:
            say(f"left out: {peer.name}: {error}")
        else:
            found.append(Contender(peer.name, command, peer.is_slow, is_foreign=True))
    return found
