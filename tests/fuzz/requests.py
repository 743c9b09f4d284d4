"""Target: requests to the map's HTTP API, through the application that serves them."""

import asyncio
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from yarl import URL

from hatcast.agents.map.awaited import AwaitedReleases
from hatcast.agents.map.server import application
from tests.displaying import SETTINGS
from tests.fuzz.records import read_feed
from tests.fuzz.target import Finding, Target
from tests.services.data import ROOT

_HEADERS: Final = ("Accept", "Accept-Encoding", "If-None-Match", "Origin")
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


class _Requests:
    """The application with a feed that has been read to its end. It is made once, in the process of the search."""

    def __init__(self) -> None:
        self._app: web.Application | None = None

    def run(self, data: bytes) -> None:
        """Send a GET request: its target is the first line, the values of some headers are the next ones."""
        first, *values = data.decode("latin-1").split("\n")
        target = "/" + quote(first.removeprefix("/"), safe=_SAFE)
        if target.startswith(("//", "/api/v1/events")):  # another host; a stream without an end
            return
        try:
            URL(target)
        except ValueError:  # aiohttp answers 400 before the application
            return
        headers = CIMultiDict(zip(_HEADERS, values, strict=False))
        if self._app is None:
            self._loop = asyncio.new_event_loop()
            self._app = self._loop.run_until_complete(_made())
        self._loop.run_until_complete(_answer(self._app, target, headers))


async def _made() -> web.Application:
    feed = await read_feed()
    feed.serve()
    app = application(feed, "title", AwaitedReleases(SETTINGS))
    app.freeze()
    return app


async def _answer(app: web.Application, target: str, headers: CIMultiDict[str]) -> None:
    response = await app._handle(make_mocked_request("GET", target, headers=headers, app=app))
    if response.status >= 500:
        raise Finding(f"a request is answered with {response.status}")
    body = response.body if isinstance(response, web.Response) else None
    if response.status >= 400 and isinstance(body, bytes):
        error = msgspec.json.decode(body)["error"]
        if not error or "\n" in error or str(ROOT) in error:
            raise Finding("an error is not one line, or names a file of the server")


def targets() -> Iterator[Target]:
    """Yield the target."""
    yield Target("map-requests", _Requests().run, lambda: _SEEDS)
