"""The map's server: one public address, and one for operators if the configuration names it."""

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from aiohttp import web

from hatcast.agents.config.settings import Address, Settings
from hatcast.agents.map.api import JSON, Api, beat, refused
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.history import Kept
from hatcast.agents.map.parameters import Wrong
from hatcast.agents.map.static_files import Files
from hatcast.agents.map.subscribers import Hub
from hatcast.agents.map.topic_reader import Reader, find_log
from hatcast.agents.monitoring.server import READY
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

_STOP_S: Final = 1.0
_BEAT_S: Final = 15.0
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-RecordBatch-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Server": "hatcast",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Display:
    """The map from start to stop."""

    def __init__(self, settings: Settings, listen: Address, *, check_crcs: bool = True) -> None:
        """Args: as of `Reader`; `listen`, where everybody may look."""
        self._settings = settings
        self._listen = listen
        self._check_crcs = check_crcs
        self._feed: Feed | None = None
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Address:
        """Listen, and begin to read; where it listens. Raises HatcastError: no broker, no topic, or no such address."""
        position = await asyncio.to_thread(find_log, self._settings)
        table = self._settings.display
        self._feed = feed = Feed(Kept(table.keep_ms), Hub(), position, self._settings.policy.name)
        self._runner = await _listening(application(feed, table.title), self._listen)
        self._stopping = asyncio.Event()
        self._reading = asyncio.create_task(
            Reader(self._settings, feed, check_crcs=self._check_crcs).run(self._stopping)
        )
        self._tasks = [self._reading, asyncio.create_task(beat(feed, _BEAT_S))]
        host, port = self._runner.addresses[0][:2]
        return Address(host, port)

    def parts(self) -> dict[str, str]:
        """What has to hold before anything can be shown: part -> "ok", or what is missing."""
        return _parts(self._feed)

    async def wait(self) -> None:
        """Until reading ends, which it does only by a failure: raises that."""
        await asyncio.shield(self._reading)

    async def stop(self) -> None:
        """Listen no more. Viewers come back to whoever listens next, and are sent what they missed."""
        if self._tasks:
            self._stopping.set()
            for task in self._tasks[1:]:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in self._tasks:
                task.cancel()
        if self._feed is not None:
            self._feed.hub.end()
        if self._runner is not None:
            await self._runner.cleanup()


def application(feed: Feed, title: str) -> web.Application:
    """The paths, the headers of every answer, and what is said when something is wrong."""
    made = web.Application(middlewares=[_told])
    made.on_response_prepare.append(_with_headers)
    made.router.add_get("/livez", _livez)
    made.router.add_get("/readyz", lambda _: _readyz(feed))
    Api(feed).add_to(made.router)
    Files(title).add_to(made.router)
    return made


async def _listening(made: web.Application, listen: Address) -> web.AppRunner:
    _raise_limit()
    runner = web.AppRunner(made, access_log=None, shutdown_timeout=_STOP_S, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, listen.host, listen.port, backlog=1_024).start()
    except OSError as error:
        await runner.cleanup()
        raise HatcastError(
            f"{listen} cannot be listened on ({_reason(error)}): name another --host or --port (0: any that is free)"
        ) from None
    return runner


def _raise_limit() -> None:
    """A viewer is an open file, and many systems allow 1,024 of them unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _reason(error: OSError) -> str:
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else str(error.strerror)).lower()


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What is wrong is said in one line of JSON. Nobody's address is written to a log."""
    try:
        return await handler(request)
    except Wrong as wrong:
        return refused(wrong)
    except web.HTTPMethodNotAllowed:
        return refused(Wrong(405, "only GET: nothing can be changed here"))
    except web.HTTPException as error:
        return refused(Wrong(error.status, error.reason.lower()))
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("a request failed", error=type(error).__name__)
        return refused(Wrong(500, "this failed: the server's log says how"))


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


async def _livez(_: web.Request) -> web.Response:
    return _state(200, {"alive": True})


async def _readyz(feed: Feed) -> web.Response:
    return _state(200 if feed.caught_up else 503, {"ready": feed.caught_up, "parts": _parts(feed)})


def _parts(feed: Feed | None) -> dict[str, str]:
    return {"topics": READY if feed is not None and feed.caught_up else "not read to their end yet"}


def _state(status: int, body: dict[str, object]) -> web.Response:
    headers = {"Cache-Control": "no-store", "Content-Type": JSON}
    return web.Response(status=status, body=msgspec.json.encode(body), headers=headers)
