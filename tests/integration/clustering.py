"""A clustering on real services: trusted buses on telemetry, a fleet of devices, and the command."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from hatcast.agents.cluster.live import run as live_run
from hatcast.agents.cluster.live.state import ClusteringState
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.mechanisms import Noisy
from tests.devices import line, recording
from tests.integration.forked import Forked, Wrap, plain
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, open_stores, ticks
from tests.support import ScalarNoise

DATE: Final = "2022-01-02"
SLOTS: Final = ("12:00", "13:00")
CHANGES: Final[dict[str, Any]] = {"policy": {"estimator": {"name": "pwh"}}}
TRUSTED, DEVICES = 24, 16
OPTIONS: Final = ("--slots", ",".join(SLOTS), "--clusters", 2, "--iterations", 3, "--seed", 3, "--round-seconds", 4)


class Exact(ScalarNoise):
    """Noise that is taken apart: nothing is added, and the true cluster is answered."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        return Noisy(value, distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        del distance, epsilon, delta
        return Noisy(value, 1.0)

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        del weights, rate
        return int(np.argmin(costs))

    def uniform(self, number: int) -> int:
        return number - 1


def without_noise() -> None:
    """Take the noise out of a command, device or coordinator."""
    from hatcast.stream.mechanisms import system

    system.SystemNoise = Exact  # type: ignore[assignment,misc]  # that is the point


def die_after(step: str, number: int) -> None:
    """Kill the coordinator with -9 after a step of a round: `begun` (not sent), `sent` or `ended`; or `charged`."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    run: Any = live_run
    state: Any = ClusteringState
    begin, end, charge, send = state.begin_round, state.end_round, run.charge_in_redis, run.publish

    def begin_round(self: ClusteringState, at: int, body: bytes, closes_ms: int) -> None:
        begin(self, at, body, closes_ms)
        if (step, number) == ("begun", at):
            kill()

    def end_round(self: ClusteringState, at: int, numbers: Any) -> None:
        end(self, at, numbers)
        if (step, number) == ("ended", at):
            kill()

    def charged(*arguments: Any) -> None:
        charge(*arguments)
        if step == "charged":
            kill()

    def publish(settings: Any, event_id: str, record: bytes) -> None:
        send(settings, event_id, record)
        if step == "sent" and event_id.endswith(f"/{number}"):
            kill()

    state.begin_round, state.end_round = begin_round, end_round
    run.charge_in_redis, run.publish = charged, publish


def speed_of(bus: int, slot: int) -> float:
    """Slow in the first hour and fast in the second, or the other way round; each bus at speeds of its own."""
    slow = bus % 2 == slot % 2
    return (10.0 if slow else 45.0) + bus / 4


def name_of(bus: int) -> str:
    return f"GJ05BX{bus:04}"


def vectors(buses: range) -> Integers:
    """Their mean speeds in both slots, in steps of 0.001 km/h."""
    return np.array([[round(speed_of(bus, slot) * 1000) for slot in range(2)] for bus in buses], np.int64)


CENTRAL: Final = range(TRUSTED)
LOCAL: Final = range(TRUSTED, TRUSTED + DEVICES)


@dataclass
class City:
    """A pipeline with trusted buses on its telemetry; without a worker where they are in a recording."""

    pipeline: Pipeline
    worker: WorkerProcess | None

    def devices(self, *options: object, wrap: Wrap = plain, buses: range = LOCAL, name: str = "fleet") -> Forked:
        """Start a fleet of devices over a recording; it answers clusterings until it is ended."""
        folder = self.pipeline.folder
        path = recording(
            folder / f"{name}.jsonl",
            [
                line(name_of(bus), NOON_MS + slot * HOUR_MS + minute * 60_000 + bus, speed_of(bus, slot))
                for slot in range(2)
                for minute in range(3)
                for bus in buses
            ],
        )
        given = ["device", str(path), "--fleet", str(len(buses)), "--speedup", "0", "--json", *map(str, options)]
        paths = ["--state", str(folder / f"{name}.db"), "--config", str(self.pipeline.config)]
        return Forked([*given, *paths], folder / f"{name}.out", folder / f"{name}.err", wrap)

    def cluster(self, *options: object, state: str = "clustering.db", wrap: Wrap = plain) -> tuple[int, str, str]:
        """Run the command to its end; its exit code and what it printed."""
        folder = self.pipeline.folder
        out, err = folder / f"{state}.out", folder / f"{state}.err"
        out.unlink(missing_ok=True)
        err.unlink(missing_ok=True)
        given = ["cluster", "live", "--date", DATE, *OPTIONS, "--json", *options]
        paths = ["--state", folder / state, "--config", self.pipeline.config]
        code = Forked([*map(str, given), *map(str, paths)], out, err, wrap).wait(110)
        return code, out.read_text(), err.read_text()

    def numbers(self, state: str = "clustering.db") -> list[Any]:
        """The stored noisy numbers of each round; None for one that has not ended."""
        with closing(sqlite3.connect(self.pipeline.folder / state)) as file:
            rows = file.execute("SELECT numbers FROM rounds ORDER BY number").fetchall()
        return [None if row[0] is None else json.loads(row[0]) for row in rows]

    def closes_ms(self, number: int, state: str = "clustering.db") -> int:
        """The stored end of a round, ms UTC."""
        with closing(sqlite3.connect(self.pipeline.folder / state)) as file:
            return int(file.execute("SELECT closes_ms FROM rounds WHERE number = ?", (number,)).fetchone()[0])

    def records(self, topic: str) -> list[tuple[str, bytes]]:
        """(key, value) of every record on `clusters` or `cluster_answers`."""
        name = getattr(self.pipeline.settings.topics, topic)
        return [((each.key or b"").decode(), each.value or b"") for each in self.pipeline.kafka.read(name)]

    def reserved(self) -> dict[str, tuple[int, float]]:
        """Reservation -> (places, epsilon) of the date, as the newest record of hats.budget has it."""
        record = self.pipeline.budget_records()[f"{self.pipeline.name}/{DATE}"]
        return {each["query"]: (each["places"], each["epsilon"]) for each in record.get("queries", [])}

    async def in_redis(self) -> dict[str, Reserved]:
        """The same in the ledger of Redis."""
        async with open_stores(self.pipeline, claim=False) as stores:
            return dict((await stores.ledger.summary(DATE)).queries)


def open_city(pipeline: Pipeline) -> City:
    """Start a worker and send the readings of the trusted buses; the day is not over."""
    ensure_topics(pipeline.settings)
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    pipeline.kafka.produce(pipeline.name, [sample.record() for sample in _traffic()])
    pipeline.kafka.produce(pipeline.name, ticks(NOON_MS + 2 * HOUR_MS + 600_000))
    return City(pipeline, worker)


def _traffic() -> Iterator[Sample]:
    for slot in range(2):
        for minute in range(3):
            for bus in CENTRAL:
                yield Sample(name_of(bus), NOON_MS + slot * HOUR_MS + minute * 60_000 + bus, 0, speed_of(bus, slot))
