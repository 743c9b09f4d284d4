"""The demo: starts and stops the services, the feed, the worker, the map and the view."""

import asyncio
import importlib
import logging
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import cancel_all, monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import Address
from hatcast.agents.demo.defaults import MAP_HOST, MAP_PORT, demo_settings
from hatcast.agents.demo.embedded import PARTITIONS, Addresses, Services, end_child, start_child
from hatcast.agents.demo.observer import Ends, OutputReader, StoredState, source_ends
from hatcast.agents.demo.rendering import DemoView
from hatcast.agents.demo.state import Began, DemoOptions, DemoState, Ended, Failed, FeedMessage, Note
from hatcast.agents.errors.unexpected import brief
from hatcast.agents.map.server import Display
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar

log = structlog.get_logger()

_POLL_S: Final = 0.25
_FEED_STOP_S: Final = 3.0
_WORKER_STOP_S: Final = 10.0


def run_demo(services: Services, options: DemoOptions, view: DemoView) -> None:
    """Run until the recording is released, the time limit is reached, or SIGINT or SIGTERM arrives.

    services   entered but not waited for: they start while this module is imported
    Raises HatcastError if the file or the policy is invalid, or a process ends unexpectedly.
    """
    with _log_file(services.folder) as log_path:
        settings = demo_settings(
            services.wait(),
            options.config,
            options.format,
            hybrid=options.hybrid,
            display=options.display,
            timetable=options.timetable(services.folder),
        )
        try:
            asyncio.run(_Demo(settings, services, options, view).run())
        except HatcastError:
            raise
        except Exception as error:
            log.exception("demo failed")
            saved = shutil.copy(log_path, services.folder.with_suffix(".log"))
            raise HatcastError(f"the demo failed ({brief(error)}); its log is {saved}") from error


@contextmanager
def _log_file(folder: Path) -> Iterator[Path]:
    """Write the structured logs to a file in the folder: on the terminal they would break the table."""
    path = folder / "worker.log"
    root = logging.getLogger()
    before = tempfile.tempdir, root.handlers[:], root.level
    with path.open("w", encoding="utf-8") as file:
        with redirect_stderr(file):  # configure_logs binds the current standard error
            configure_logs()
        tempfile.tempdir = str(folder)  # temporary files of a killed worker are deleted with the folder
        try:
            yield path
        finally:
            tempfile.tempdir, root.handlers[:], level = before
            root.setLevel(level)
            structlog.reset_defaults()


class _Demo:
    """One run. It ends with the first of: worker, feed, time limit, signal, last release of the recording."""

    def __init__(self, settings: Settings, services: Services, options: DemoOptions, view: DemoView) -> None:
        self._settings = settings
        self._services = services
        self._options = options
        self._view = view
        self._began_s = monotonic_s()
        self._feed_started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._has_ended = False
        self._ends: Ends | None = None

    async def run(self) -> None:
        """Run the demo until it ends. Raises HatcastError, or the worker's error."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._stopping.set)
        feed = start_child("hatcast.agents.demo.feed", folder=self._services.folder)
        try:
            with self._view:
                state = await self._run(feed)
                self._end_view(state)
        finally:
            end_child(feed, _FEED_STOP_S)

    async def _run(self, feed: "subprocess.Popen[bytes]") -> DemoState:
        """Run the map and all the rest; return the last state on display."""
        live_map, address = await self._open_map()
        policy = self._settings.policy
        state = DemoState(policy, Calendar(policy), self._options, f"http://{address}/")
        try:
            await self._run_with(feed, live_map, state)
        finally:
            await live_map.stop()
        return state

    async def _open_map(self) -> tuple[Display, Address]:
        """Start the map of `hatcast display`. Raises HatcastError if the requested port is in use."""
        port = self._options.port
        live_map = self._map_at(MAP_PORT if port is None else port)
        try:
            return live_map, await live_map.start()
        except HatcastError:
            if port is not None:
                raise
            live_map = self._map_at(0)
            return live_map, await live_map.start()

    def _map_at(self, port: int) -> Display:
        return Display(self._settings, Address(MAP_HOST, port), check_crcs=False, option="--port")

    async def _run_with(self, feed: "subprocess.Popen[bytes]", live_map: Display, state: DemoState) -> None:
        stored = await StoredState.open(self._settings)
        worker = asyncio.create_task(self._run_worker())
        shown = OutputReader(self._settings).follow(state, self._view)
        parts = self._read_feed(feed, state), shown, self._watch(stored, state), self._wait_for_stop(), live_map.wait()
        others = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait([worker, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stopping.set()
            await asyncio.to_thread(end_child, feed, _FEED_STOP_S)
            if self._feed_started.is_set():
                await asyncio.wait([worker], timeout=_WORKER_STOP_S)
            await cancel_all([worker, *others])
            await stored.close()

    async def _run_worker(self) -> None:
        # The imports take seconds: an unreadable file is reported before them.
        if self._options.files:
            await self._feed_started.wait()
        worker_module = await asyncio.to_thread(importlib.import_module, "hatcast.agents.worker.worker")
        if not self._stopping.is_set():
            # No durability check, no topic ids: the embedded Redis and Kafka are deleted with the demo.
            await worker_module.Worker(self._settings, PARTITIONS, topic_ids=False).run(self._stopping.wait())

    async def _wait_for_stop(self) -> None:
        try:
            async with asyncio.timeout(self._options.seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _read_feed(self, feed: "subprocess.Popen[bytes]", state: DemoState) -> None:
        """Send the feed its job and handle its messages, until cancelled."""
        if feed.stdin is None or feed.stdout is None:
            raise RuntimeError("the feed was started without pipes")
        addresses = Addresses(self._settings.kafka.bootstrap_servers, self._settings.redis.url)
        feed.stdin.write(msgspec.json.encode(self._options.job(addresses)) + b"\n")
        feed.stdin.flush()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), feed.stdout)
        while line := await reader.readline():
            self._handle(msgspec.json.decode(line, type=FeedMessage), state)
            if state.feed_ended:
                self._ends = await asyncio.to_thread(source_ends, self._settings)
        if not state.feed_ended:
            raise HatcastError("the feed's process ended unexpectedly: start again")
        await asyncio.Event().wait()

    def _handle(self, message: FeedMessage, state: DemoState) -> None:
        match message:
            case Failed():
                raise HatcastError(message.text)
            case Began():
                state.began = message
                self._view.begin(state, message)
                self._feed_started.set()
            case Ended():
                state.not_sent = message.arrived_in_future + message.arrived_before_1970
                state.feed_ended = True
            case Note():
                self._view.note(message.text)

    async def _watch(self, stored: StoredState, state: DemoState) -> None:
        """Poll the worker's state and refresh the view; return when a whole recording is released."""
        while not self._stopping.is_set():
            self._services.check()
            try:
                await stored.refresh(state)
            except RedisError:
                raise HatcastError("the embedded Redis does not answer: start again") from None
            if state.began is not None:
                self._view.refresh(state)
            if self._ends is not None and await stored.is_finished(state, self._ends):
                state.finished = True
                if not self._options.keep:
                    return
                await self._keep_map(state)
            await asyncio.sleep(_POLL_S)

    async def _keep_map(self, state: DemoState) -> None:
        """Print the summary, and keep the map until the demo is stopped. Raises HatcastError."""
        self._end_view(state)
        self._view.note(f"the map stays at {state.map_url} until Ctrl-C")
        while not self._stopping.is_set():
            self._services.check()
            await asyncio.sleep(_POLL_S)

    def _end_view(self, state: DemoState) -> None:
        if not self._has_ended and state.began is not None:
            self._has_ended = True
            self._view.end(state, monotonic_s() - self._began_s)
