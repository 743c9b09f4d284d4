"""CPU and memory of `hatcast display` with a thousand viewers or ten thousand, on one core."""

import asyncio
import os
import random
import resource
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import click
import h3

from bench.figures import Figure, middle, say, show
from bench.process import cpu_s, resident_mb
from hatcast.agents.demo.embedded import Services
from hatcast.agents.map.events import MAX_VIEWERS
from tests.browser.day import TOPICS, Day
from tests.displaying import CELLS, release

MOST_CORE: Final = (
    0.5  # of one core and 1,000 viewers, if an hour closes every second: 3,600 times as fast as in a city
)
MOST_KB: Final = 100.0  # of memory per viewer, with the socket's buffers
_KEPT_HOURS: Final = 72  # by default
_PATIENCE_S: Final = 120.0
_HEXAGONS_OUT: Final = 8  # rings around the middle: 217 hexagons
_LOOK_S: Final = 0.005


class Viewer:
    """Client that reads the event stream.

    received   bytes, compressed
    releases   that have arrived
    is_ready   whether the snapshot is complete
    """

    def __init__(self) -> None:
        self._unpack = zlib.decompressobj(31)
        self._rest = b""
        self.received = 0
        self.releases = 0
        self.is_ready = False
        self.last_s = 0.0

    async def follow(self, host: str, port: int) -> None:
        """Read the stream until cancelled."""
        reader, writer = await asyncio.open_connection(host, port)
        # HTTP/1.0, so that the body is not chunked
        writer.write(b"GET /api/v1/events HTTP/1.0\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        while data := await reader.read(65_536):
            self.received += len(data)
            self._look(self._rest + self._unpack.decompress(data))
        raise ConnectionError("a viewer was let go")

    def _look(self, text: bytes) -> None:
        *whole, self._rest = text.split(b"\n\n")
        arrived = sum(b"event: release\n" in each for each in whole)
        self.is_ready = self.is_ready or any(b"event: ready\n" in each for each in whole)
        if arrived:
            self.releases += arrived
            self.last_s = time.monotonic()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--viewers", default=1_000, show_default=True, type=click.IntRange(1, MAX_VIEWERS))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
def command(as_json: bool, viewers: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure CPU seconds for an hour's close that all viewers see, and memory per viewer. The server has one core."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a viewer is an open file here too
    cells = sorted(h3.grid_disk(CELLS[0], _HEXAGONS_OUT))
    with TemporaryDirectory(prefix="hatcast-bench-") as folder, Services(TOPICS) as services:
        day = Day(services.wait().kafka, Path(folder))
        say(f"{len(cells)} hexagons, {_KEPT_HOURS} hours of them kept")
        day.start()
        empty_mb = resident_mb(day.pid)
        day.stop()
        day.publish(record for hour in range(_KEPT_HOURS) for record in hour_of(hour, cells))
        day.start()
        try:
            os.sched_setaffinity(day.pid, {min(os.sched_getaffinity(0))})
            kept_bytes = 1e6 * (resident_mb(day.pid) - empty_mb) / (_KEPT_HOURS * len(cells))
            figures = [
                Figure("empty_mb", empty_mb, "MB of a map without releases"),
                Figure("kept_bytes", kept_bytes, "bytes for each release that it keeps"),
                *asyncio.run(_measure(day, cells, viewers, rounds)),
            ]
        finally:
            day.stop()
    return show(f"display: {viewers:,} viewers, {rounds} hours of {len(cells)} hexagons", figures, as_json=as_json)


def hour_of(hour: int, cells: Sequence[str]) -> list[bytes]:
    """Return an hour's releases with random digits, which do not compress."""
    drawn = random.Random(hour)
    return [release(hour, cell, f"{drawn.uniform(10, 60):.3f}") for cell in cells]


async def _measure(day: Day, cells: Sequence[str], number: int, rounds: int) -> list[Figure]:
    address = urlsplit(day.url)
    host, port = address.hostname or "", address.port or 0
    before_mb, before_s, began = resident_mb(day.pid), cpu_s(day.pid), time.monotonic()
    viewers = [Viewer() for _ in range(number)]
    tasks = [asyncio.create_task(viewer.follow(host, port)) for viewer in viewers]
    await _until(lambda: all(viewer.is_ready for viewer in viewers), tasks)
    joined_cpu_s, joined_s = cpu_s(day.pid) - before_s, time.monotonic() - began
    say(f"{number:,} viewers have the snapshot")
    cpu, delays, sizes = [], [], []
    for turn in range(rounds):
        records = hour_of(_KEPT_HOURS + turn, cells)
        received, spent, sent = viewers[0].received, cpu_s(day.pid), time.monotonic()
        wanted = viewers[0].releases + len(records)
        await asyncio.to_thread(day.publish, records)
        await _until(partial(_came, viewers, wanted), tasks)
        delays.append(max(viewer.last_s for viewer in viewers) - sent)
        cpu.append(cpu_s(day.pid) - spent)
        sizes.append((viewers[0].received - received) / 1000)
    more_mb = resident_mb(day.pid) - before_mb
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [
        middle("cores_with_an_hour_a_second", cpu, "s of CPU for an hour's close", most=MOST_CORE * number / 1_000),
        middle("delivered_to_all_s", delays, "s, from the first record's sending"),
        middle("hour_kb", sizes, "kB to a viewer"),
        Figure("snapshots_cpu_s", joined_cpu_s, "s of CPU, all viewers coming at once"),
        Figure("snapshots_s", joined_s, "s"),
        Figure("memory_kb_per_viewer", 1000 * more_mb / number, "kB", most=MOST_KB),
        Figure("memory_mb", resident_mb(day.pid), "MB"),
    ]


def _came(viewers: Sequence[Viewer], releases: int) -> bool:
    """Return whether so many releases have reached every viewer since it came."""
    return all(viewer.releases == releases for viewer in viewers)


async def _until(is_so: Callable[[], bool], tasks: Sequence[asyncio.Task[None]]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        for task in tasks:
            if task.done():
                task.result()
        if time.monotonic() > deadline:
            raise TimeoutError("not all viewers got the same")
        await asyncio.sleep(_LOOK_S)
