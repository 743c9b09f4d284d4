"""A day of a made-up city on embedded topics, with every kind of release, and `hatcast display` over it."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import h3
from confluent_kafka import Producer

from hatcast.agents.demo.embedded import Services
from tests.displaying import CELLS, budget, release
from tests.integration.tables import DEFAULTS, merged, toml
from tests.services.data import ROOT
from tests.services.lifecycle import free_ports

TOPICS: Final = ("hats.means", "hats.budget", "hats.estimates", "hats.queries", "hats.clusters", "hats.running")
HOURS: Final = 24
GROUPS: Final = (
    '{"central":{"mean":33.870,"raw":33.870,"interval95":[33.220,34.520],"users":300,"epsilon":1.0},'
    '"local":{"mean":35.402,"raw":35.402,"interval95":[29.015,41.789],"users":1,"epsilon":2.0}}'
)
"""each group's own mean, in the releases of one hexagon"""
VALUES: Final = (
    '[{"name":"speed","mean":33.870,"raw":33.870,"unit":"km/h","noise":{"kind":"laplace","scale":5.418},'
    '"interval95":[17.640,50.100]},{"name":"delay","mean":252.0,"raw":252.0,"unit":"s",'
    '"noise":{"kind":"laplace","scale":351.0},"interval95":[-600.0,1303.5]}]'
)
"""several values, in the releases of another hexagon"""
NO_MEAN: Final = {"suppressed": 2, "budget_exhausted": 3, "incomplete": 4}
_START_S: Final = 60.0


def hexagons() -> list[str]:
    """The city's."""
    return sorted(h3.grid_disk(CELLS[0], 3))


def hour_of(hour: int) -> list[bytes]:
    """Its releases of an hour; a few of each state without a mean."""
    made = []
    for at, cell in enumerate(hexagons()):
        away = h3.grid_distance(CELLS[0], cell)
        mean = 18 + 6.5 * away - 5 * math.sin((hour + at % 5) / 3.8) + at % 7 / 3
        status = next((name for name, first in NO_MEAN.items() if away == 3 and at % 9 == first), None)
        record = release(hour, cell, None if status else f"{mean:.3f}")
        if cell == CELLS[0]:
            record = record[:-1] + f',"groups":{GROUPS}}}'.encode()
        if cell == CELLS[1]:
            record = record[:-1] + f',"values":{VALUES}}}'.encode()
        made.append(record.replace(b'"suppressed"', f'"{status}"'.encode()) if status else record)
    return made


def _key_of(record: dict[str, Any]) -> str | None:
    names = ("release_id", "estimate_id", "clusters_id", "running_id")
    return next((record[name] for name in names if name in record), None)


class Day:
    """The topics, and the map over them, which may be stopped and started again on its port."""

    def __init__(self, kafka: str, folder: Path, display: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
        self._config = folder / "hatcast.toml"
        self._kafka = kafka
        self._display = display
        self.configure("city")
        with free_ports(1) as (self._port,):
            pass
        self._log = folder / "display.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}/"

    def configure(self, policy: str, more: Mapping[str, Any] | None = None) -> None:
        """Which policy the map shows from its next start on, with more settings."""
        with_devices = {"name": policy, "estimator": {"name": "pwh"}}  # only such a map reads clusterings
        table = {"kafka": {"bootstrap_servers": self._kafka}, "policy": with_devices, "display": dict(self._display)}
        self._config.write_text(toml(merged(merged(DEFAULTS, table), more or {})))

    def publish(self, records: Iterable[bytes], topic: str = TOPICS[0]) -> None:
        """To the topic, with their keys; returns when they are there."""
        for record in records:
            read = json.loads(record)
            self._producer.produce(topic, record, key=_key_of(read))
        assert self._producer.flush(30) == 0

    def start(self) -> None:
        """Start the map, and wait until it is ready."""
        options = ["--config", str(self._config), "--port", str(self._port)]
        command = [sys.executable, "-m", "hatcast", "display", *options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=os.environ, stdin=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + _START_S
        while not self._ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Of the map's process, which runs."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stop it in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(30) == 0, self._log.read_text()
            self._process = None

    def get(self, path: str) -> bytes:
        """The bytes of an answer."""
        with urllib.request.urlopen(self.url.rstrip("/") + path, timeout=30) as response:
            body: bytes = response.read()
            return body

    def _ready(self) -> bool:
        if "map served" not in self._log.read_text():  # else another server could have the port, and answer
            return False
        try:
            return bool(self.get("/readyz"))
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def open_day(
    folder: Path, more: Sequence[bytes] = (), display: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Day]:
    """A day that has been published, and the map over it.

    more      releases and estimates beside the day's
    display   keys of `[display]`
    """
    with Services(TOPICS) as services:
        day = Day(services.wait().kafka, folder, display)
        day.publish(record for hour in range(HOURS) for record in hour_of(hour))
        day.publish([budget("2022-01-02", 15), budget("2022-01-03", 9)], TOPICS[1])
        day.publish((each for each in more if b'"estimate_id"' not in each), TOPICS[0])
        day.publish((each for each in more if b'"estimate_id"' in each), TOPICS[2])
        day.start()
        try:
            yield day
        finally:
            day.stop()
