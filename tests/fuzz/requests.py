"""Targets: requests to the map's HTTP API and event stream, through the application that serves them."""

import asyncio
import zlib
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import AsyncMock, Mock
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from yarl import URL

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.agents.map.server import application
from tests.displaying import SETTINGS
from tests.fuzz.records import read_feed
from tests.fuzz.target import Finding, Target
from tests.services.data import ROOT

_HEADERS: Final = ("Accept", "Accept-Encoding", "If-None-Match", "Origin")
_STREAM: Final = "/api/v1/events"
_FIELDS: Final = (b"event: ", b"id: ", b"data: ", b"retry: ")
_SAFE: Final = "/?&=%+"  # the rest of a target is quoted, as by a client
_SEEDS: Final = (
    b"/api/v1/latest?policy=city&slot=2022-01-02T09:00&format=csv",
    b"/api/v1/estimates?format=geojson",
    b"/api/v1/continual?policy=city",
    b"/api/v1/slots?policy=city",
    b"/api/v1/cells/87608b0d2ffffff?from=2022-01-02T09:00:00%2B05:30&to=2022-01-02T10:00:00Z",
    b'/api/v1/cells/87608b0d2ffffff/estimates\ntext/csv\ngzip;q=0.5\n"1", W/"2"',
    b"/api/v1/queries?query=speed&period=2021-11-15&slot=09:00",
    b"/api/v1/clusterings?policy=city&format=csv",
    b"/api/v1/openapi.json",
    b"/livez",
    b"/static/../server.py",
    b"/static/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
)


_STREAM_SEEDS: Final = (
    b"policy=city",
    b"policy=city&kind=estimates\n12345678-2-0-0-r0\ngzip",
    b"seen=12345678-1-0-0-r0",
    b"kind=releases&seen=12345678-99.1-7",
    b"policy=city&policy=town\n1f0c3a52-12.40.7.9-3-88.90.71.80-r5.6.8.7\ngzip;q=0",
)


class _Served:
    """The application with a feed that has been read to its end. It is made once, in the process of the search."""

    def __init__(self) -> None:
        self._made: tuple[asyncio.AbstractEventLoop, Feed, web.Application] | None = None

    def _serve(self) -> tuple[asyncio.AbstractEventLoop, Feed, web.Application]:
        if self._made is None:
            loop = asyncio.new_event_loop()
            self._made = loop, *loop.run_until_complete(_read_and_serve())
        return self._made


class _Requests(_Served):
    """One request, answered at once."""

    def run(self, data: bytes) -> None:
        """Send a GET request: its target is the first line, the values of some headers are the next ones."""
        first, *values = data.decode("latin-1").split("\n")
        target = "/" + quote(first.removeprefix("/"), safe=_SAFE)
        if target.startswith(("//", _STREAM)):  # another host; a stream without an end
            return
        try:
            URL(target)
        except ValueError:  # aiohttp answers 400 before the application
            return
        headers = CIMultiDict(zip(_HEADERS, values, strict=False))
        loop, _, app = self._serve()
        loop.run_until_complete(_answer(app, target, headers))


class _Events(_Served):
    """A viewer of the event stream, which the server ends once the viewer waits for news."""

    def run(self, data: bytes) -> None:
        """Send a GET request. The lines are its query, the last event's id and the accepted coding."""
        first, *values = data.decode("latin-1").split("\n")
        headers = CIMultiDict(zip(("Last-Event-ID", "Accept-Encoding"), values, strict=False))
        loop, feed, app = self._serve()
        loop.run_until_complete(_follow(app, feed, f"{_STREAM}?{quote(first, safe=_SAFE)}", headers))
        if len(feed.hub):
            raise Finding("a viewer who has gone is still sent events")


async def _read_and_serve() -> tuple[Feed, web.Application]:
    feed = await read_feed()
    feed.serve()
    app = application(feed, "title", AwaitedReleases(SETTINGS))
    app.freeze()
    return feed, app


async def _follow(app: web.Application, feed: Feed, target: str, headers: CIMultiDict[str]) -> None:
    written = bytearray()
    writer: Any = AsyncMock(write=AsyncMock(side_effect=written.extend), enable_compression=Mock())
    request = make_mocked_request("GET", target, headers=headers, app=app, writer=writer)
    viewing = asyncio.ensure_future(app._handle(request))
    while not (viewing.done() or _waits(feed)):
        await asyncio.sleep(0)
    feed.hub.end()
    response = await viewing
    _check_error(response)
    if response.status != 200:
        return
    packed = response.headers.get("Content-Encoding") == "gzip"
    events = zlib.decompressobj(wbits=31).decompress(written) if packed else bytes(written)
    if not events.endswith(b"\n\n") or not all(line.startswith(_FIELDS) for line in events.split(b"\n") if line):
        raise Finding("the event stream has a line that is no field, or an event without an end")


def _waits(feed: Feed) -> bool:
    """Return whether the viewer has all events so far."""
    return any(viewer._queue._getters for viewer in feed.hub._viewers)  # type: ignore[attr-defined]  # no public way


async def _answer(app: web.Application, target: str, headers: CIMultiDict[str]) -> None:
    _check_error(await app._handle(make_mocked_request("GET", target, headers=headers, app=app)))


def _check_error(response: web.StreamResponse) -> None:
    if response.status >= 500:
        raise Finding(f"a request is answered with {response.status}")
    body = response.body if isinstance(response, web.Response) else None
    if response.status >= 400 and isinstance(body, bytes):
        error = msgspec.json.decode(body)["error"]
        if not error or "\n" in error or str(ROOT) in error:
            raise Finding("an error is not one line, or names a file of the server")


def targets() -> Iterator[Target]:
    """Yield the targets."""
    yield Target("map-requests", _Requests().run, lambda: _SEEDS)
    yield Target("map-events", _Events().run, lambda: _STREAM_SEEDS)
