"""The demo from start to stop: services, feed, worker, and whoever watches them."""

import asyncio
import importlib
import logging
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Address, Settings
from hatcast.agents.demo.defaults import MAP_HOST, MAP_PORT, demo_settings
from hatcast.agents.demo.embedded import PARTITIONS, Addresses, Services, end_child, start_child
from hatcast.agents.demo.messages import Began, Ended, Failed, Job, Note, Told
from hatcast.agents.demo.observer import Outputs, Stored, telemetry_ends
from hatcast.agents.demo.rendering import View
from hatcast.agents.demo.state import State
from hatcast.agents.errors.unexpected import brief
from hatcast.agents.map.server import Display
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar

log = structlog.get_logger()

_LOOK_S: Final = 0.25
_FEED_STOP_S: Final = 3.0
_WORKER_STOP_S: Final = 10.0
_CANCELS: Final = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for: see `Job`.

    seconds   it may last so long; None: until Ctrl-C or the end
    port      of the map; None: `MAP_PORT`, or any that is free if that is taken
    """

    config: Path | None = None
    file: Path | None = None
    format: str | None = None
    speedup: float | None = None
    seconds: float | None = None
    port: int | None = None

    def job(self, addresses: Addresses) -> Job:
        """The feed's part of it."""
        return Job(
            addresses=addresses,
            config=None if self.config is None else str(self.config),
            file=None if self.file is None else str(self.file),
            format=self.format,
            speedup=self.speedup,
        )


def run_demo(services: Services, wish: Wish, view: View) -> None:
    """Run until the recording is released, the time is over, or SIGINT or SIGTERM comes.

    services   entered, not waited for: this module's imports take longer than they do
    Raises HatcastError: the file or the policy cannot be used, or something ended by itself.
    """
    with _log_file(services.folder) as log_path:
        settings = demo_settings(services.wait(), wish.config, wish.format)
        try:
            asyncio.run(_Demo(settings, services, wish, view).run())
        except (HatcastError, BrokenPipeError):  # the second: whoever read our output has left
            raise
        except Exception as error:
            log.exception("demo failed")
            kept = shutil.copy(log_path, services.folder.with_suffix(".log"))
            raise HatcastError(f"the demo failed ({brief(error)}); its log is {kept}") from error


@contextmanager
def _log_file(folder: Path) -> Iterator[Path]:
    """Structured logs go to a file in the folder: on the terminal they would run through the table."""
    path = folder / "worker.log"
    root = logging.getLogger()
    before = tempfile.tempdir, root.handlers[:], root.level
    with path.open("w", encoding="utf-8") as file:
        with redirect_stderr(file):  # configure_logs keeps what standard error is now
            configure_logs()
        tempfile.tempdir = str(folder)  # what the worker leaves behind if it is killed goes with the folder
        try:
            yield path
        finally:
            tempfile.tempdir, root.handlers[:], level = before
            root.setLevel(level)
            structlog.reset_defaults()


class _Demo:
    """One run. Whatever ends first ends all: the worker, the feed, the time, a signal, the recording's last release."""

    def __init__(self, settings: Settings, services: Services, wish: Wish, view: View) -> None:
        self._settings = settings
        self._services = services
        self._wish = wish
        self._view = view
        self._began_s = monotonic_s()
        self._feeding = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ends: list[int] | None = None
        self.state = State(
            policy=settings.policy,
            calendar=Calendar(settings.policy),
            source=None if wish.file is None else wish.file.name,
        )

    async def run(self) -> None:
        """From start to stop. Raises HatcastError, or what ended the worker."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._stopping.set)
        feed = start_child("hatcast.agents.demo.feed", folder=self._services.folder)
        try:
            with self._view:
                await self._run(feed)
                if self.state.first_ms is not None:
                    self._view.end(self.state, monotonic_s() - self._began_s)
        finally:
            end_child(feed, _FEED_STOP_S)

    async def _run(self, feed: "subprocess.Popen[bytes]") -> None:
        live_map = await self._open_map()
        try:
            await self._run_with(feed, live_map)
        finally:
            await live_map.stop()

    async def _open_map(self) -> Display:
        """The map that `hatcast display` serves. Raises HatcastError if the port that was asked for is taken."""
        asked = self._wish.port
        live_map = Display(self._settings, Address(MAP_HOST, MAP_PORT if asked is None else asked), check_crcs=False)
        try:
            self.state.map_url = f"http://{await live_map.start()}/"
        except HatcastError:
            if asked is not None:
                raise
            live_map = Display(self._settings, Address(MAP_HOST, 0), check_crcs=False)
            self.state.map_url = f"http://{await live_map.start()}/"
        return live_map

    async def _run_with(self, feed: "subprocess.Popen[bytes]", live_map: Display) -> None:
        stored = await Stored.open(self._settings)
        worker = asyncio.create_task(self._work())
        others = [asyncio.create_task(part) for part in (self._listen(feed), self._follow(), self._look(stored))]
        others += [asyncio.create_task(self._time()), asyncio.create_task(live_map.wait())]
        try:
            done, _ = await asyncio.wait([worker, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stopping.set()
            await asyncio.to_thread(end_child, feed, _FEED_STOP_S)
            if self._feeding.is_set():
                await asyncio.wait([worker], timeout=_WORKER_STOP_S)
            await _cancel([worker, *others])
            await stored.close()

    async def _work(self) -> None:
        """The worker that `hatcast worker` runs."""
        # The imports take seconds. A file that cannot be read is told before them; the city is always there.
        if self._wish.file is not None:
            await self._feeding.wait()
        worker_module = await asyncio.to_thread(importlib.import_module, "hatcast.agents.worker.worker")
        if not self._stopping.is_set():
            # No look at what Redis keeps: the embedded one is made to go with the demo, and so is its Kafka.
            await worker_module.Worker(self._settings, PARTITIONS, topic_ids=False).run(self._stopping.wait())

    async def _time(self) -> None:
        try:
            async with asyncio.timeout(self._wish.seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _listen(self, feed: "subprocess.Popen[bytes]") -> None:
        """Give the feed its job and hear what it tells, until the demo is over."""
        if feed.stdin is None or feed.stdout is None:
            raise RuntimeError("the feed was started without pipes")
        addresses = Addresses(self._settings.kafka.bootstrap_servers, self._settings.redis.url)
        feed.stdin.write(msgspec.json.encode(self._wish.job(addresses)) + b"\n")
        feed.stdin.flush()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), feed.stdout)
        while line := await reader.readline():
            self._hear(msgspec.json.decode(line, type=Told))
            if self.state.ended:
                self._ends = await telemetry_ends(self._settings)
        if not self.state.ended:
            raise HatcastError("the feed's process ended: start again")
        await asyncio.Event().wait()

    def _hear(self, told: Told) -> None:
        state = self.state
        match told:
            case Failed():
                raise HatcastError(told.text)
            case Began():
                state.records, state.first_ms, state.last_ms = told.records, told.first_ms, told.last_ms
                state.speedup = told.speedup
                self._view.begin(state)
                self._feeding.set()
            case Ended():
                state.not_sent = told.arrived_in_future + told.arrived_before_1970
                state.ended = True
            case Note():
                self._view.note(told.text)

    async def _follow(self) -> None:
        async with Outputs(self._settings) as outputs:
            await outputs.follow(self.state, lambda release, record: self._view.release(release, record, self.state))

    async def _look(self, stored: Stored) -> None:
        """Look at the stored state now and then; returns when all of a recording is released."""
        while not self._stopping.is_set():
            self._services.check()
            try:
                await stored.look(self.state)
            except RedisError:
                raise HatcastError("the embedded Redis does not answer: start again") from None
            if self.state.first_ms is not None:
                self._view.refresh(self.state)
            if self._ends is not None and await stored.is_over(self.state, self._ends):
                self.state.over = True
                return
            await asyncio.sleep(_LOOK_S)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End tasks. redis-py swallows a cancellation that meets an answer, so one may not be enough."""
    waiting = set(tasks)
    for _ in range(_CANCELS):
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=1.0) if waiting else (waiting, waiting)
