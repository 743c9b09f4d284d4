"""Costs of starting: `hatcast --help`, the help of every command, and a worker until it is ready."""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click
import structlog

from bench.figures import Figure, middle, say, show
from bench.process import cpu_s
from hatcast.agents.cli import COMMANDS
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, is_ready
from tests.services import KafkaServer, RedisServer, open_kafka, open_redis

MOST_HELP_MS: Final = 100.0
MOST_READY_S: Final = 3.0
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.01


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
def command(as_json: bool, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure help and the start of a worker.

    The tests' broker lets a new group join at once; group.initial.rebalance.delay.ms is 3,000 by default.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures = list(_help(rounds))
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {redis.source}")
        figures += _ready(kafka, redis, Path(folder), rounds)
    return show(f"start: {rounds} rounds", figures, as_json=as_json)


def _help(rounds: int) -> Iterator[Figure]:
    say("help")
    _help_cpu_ms()  # compiles the modules
    yield middle("help_cpu_ms", [_help_cpu_ms() for _ in range(rounds)], "ms of CPU", most=MOST_HELP_MS)
    costs = {}
    for name in COMMANDS:
        _help_cpu_ms(name)
        costs[name] = min(_help_cpu_ms(name) for _ in range(2))
    slowest = max(costs, key=lambda name: costs[name])
    say(f"slowest: {slowest}")
    yield middle("command_help_cpu_ms", list(costs.values()), "ms of CPU")


def _help_cpu_ms(*arguments: str) -> float:
    process = subprocess.Popen([sys.executable, "-m", "hatcast", *arguments, "--help"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"--help ended with exit code {process.returncode}")
    return 1000 * (used.ru_utime + used.ru_stime)


def _ready(kafka: KafkaServer, redis: RedisServer, folder: Path, rounds: int) -> Iterator[Figure]:
    say("worker")
    walls, cpus = [], []
    with open_pipeline(kafka, redis, folder / "start", "start", LISTEN) as pipeline:
        first, _ = _until_ready(pipeline)  # it makes the topics
        for _ in range(rounds):
            wall, cpu = _until_ready(pipeline)
            walls.append(wall)
            cpus.append(cpu)
    yield Figure("first_ready_s", first, "s, topics made")
    yield middle("ready_s", walls, "s", most=MOST_READY_S)
    yield middle("ready_cpu_s", cpus, "s of CPU")


def _until_ready(pipeline: Pipeline) -> tuple[float, float]:
    """Start a worker; return the seconds, and those of CPU, until it is ready."""
    begun = time.monotonic()
    with closing(pipeline.start("worker")) as worker:
        while not is_ready(worker):
            if worker.code is not None or time.monotonic() - begun > _PATIENCE_S:
                raise RuntimeError(f"the worker is not ready: {worker.logged()[-2000:]}")
            time.sleep(_LOOK_S)
        spent = time.monotonic() - begun, cpu_s(worker.pid)
        worker.terminate()
    return spent
