"""HTTP server of the map: the page, the API and the health checks, at one public address."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from aiohttp import web

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import ANY_ORIGIN, Address
from hatcast.agents.map.api import Api, error_response, send_keepalives
from hatcast.agents.map.events import MAX_VIEWERS, Hub
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.http import Handler, RequestError, send_in_pieces
from hatcast.agents.map.page import StaticFiles
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.agents.map.surroundings import Surroundings, read_surroundings, render_surroundings
from hatcast.agents.map.topic_reader import MapTopics, Reader, find_topics
from hatcast.agents.monitoring.server import READY, Listener, add_health, connection_limit, os_reason
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

# Headers of all responses, and which pages may read the API (CORS) or frame the map.    [Fetch, CSP 3, RFC 6797]
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(self), microphone=(), payment=(), usb=()",
    "Server": "hatcast",
}
# Only where the viewer's connection has TLS, as its proxy says: browsers ignore it on others. Not for subdomains and
# not for preloading: those are the operator's to decide.
_ONLY_TLS: Final = "max-age=31536000"
_API: Final = "/api/"
_FRAMES: Final = "frame-ancestors 'none'"
_EXPOSED: Final = "ETag, Retry-After"
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Cache-Control, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "86400",
}


class Access:
    """Access of pages of other origins. By default none may read the API from a script, or frame the map."""

    def __init__(self, origins: tuple[str, ...] = (), frames: tuple[str, ...] = ()) -> None:
        """Args: those of `allow_origins` and `allow_framing`, parsed."""
        self._origins = frozenset(origins)
        self.headers = dict(HEADERS)  # of all responses
        if frames:
            named = f"frame-ancestors {' '.join(frames)}"
            self.headers["Content-Security-Policy"] = HEADERS["Content-Security-Policy"].replace(_FRAMES, named)
            del self.headers["X-Frame-Options"]  # it cannot name origins, and the policy has priority
            # Else pages that isolate themselves block the frame.
            self.headers["Cross-Origin-Resource-Policy"] = "cross-origin"

    def add_to(self, app: web.Application) -> None:
        """Add the headers to all responses, and answer preflight requests if an origin is allowed."""
        app.on_response_prepare.append(self._prepare)
        if self._origins:
            app.router.add_route("OPTIONS", f"{_API}{{path:.*}}", self._preflight)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self.headers)
        if request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https":
            response.headers["Strict-Transport-Security"] = _ONLY_TLS
        if not self._origins or not request.path.startswith(_API):
            return
        if ANY_ORIGIN in self._origins:
            response.headers["Access-Control-Allow-Origin"] = ANY_ORIGIN
        else:
            # Also without an Origin: a cache must not answer an allowed page with what it stored for another.
            vary = response.headers.get("Vary")
            response.headers["Vary"] = f"{vary}, Origin" if vary else "Origin"
            origin = request.headers.get("Origin")
            if origin not in self._origins or origin is None:
                return
            response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"

    async def _preflight(self, _: web.Request) -> web.Response:
        """Answer a browser that asks whether a page may send a request with these headers."""
        return web.Response(status=204, headers=_PREFLIGHT)


_STOP_S: Final = 1.0
_KEEPALIVE_S: Final = 15.0
_OTHERS: Final = 6  # of so many connections one is not a viewer's, but a page's that loads, or a health check's


class Display:
    """The map: starts and stops its HTTP server and its topic reader."""

    def __init__(
        self,
        settings: Settings,
        listen: Address,
        *,
        stored: Callable[[Hub], Feed] | None = None,
        check_crcs: bool = True,
        option: str = "--host or --port",
    ) -> None:
        """Args:
        listen:      the public address
        stored:      returns what is shown in place of the topics, for the viewers of the hub
        check_crcs:  see `Reader`
        option:      of the command line, that names another address
        """
        self._settings = settings
        self._listen = listen
        self._stored = stored
        self._check_crcs = check_crcs
        self._option = option
        self._surroundings: Surroundings | None = None
        self._feed: Feed | None = None
        self._listener: Listener | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def read_files(self) -> None:
        """Read the files of [display]: before a broker is waited for. Raises HatcastError if one is damaged."""
        self._surroundings = await asyncio.to_thread(read_surroundings, self._settings.display)

    async def start(self) -> Address:
        """Start listening and reading; return the bound address.

        Raises HatcastError if the broker, a topic or the address is not available, or a file of [display] is damaged.
        """
        table = self._settings.display
        if self._surroundings is None:
            await self.read_files()
        most = connection_limit()
        hub = Hub(min(MAX_VIEWERS, most - most // _OTHERS))
        self._stopping = asyncio.Event()
        if self._stored is None:
            topics = await asyncio.to_thread(find_topics, self._settings)
            feed = Feed(table.keep_ms, hub, topics.start(), self._settings.policy.name)
        else:
            topics, feed = None, await asyncio.to_thread(self._stored, hub)
        self._feed = feed
        access = Access(table.allow_origins, table.allow_framing)
        app = application(feed, table.title, AwaitedReleases(self._settings), self._surroundings, access)
        self._listener = Listener(app, most, access.headers, cancel_handlers=True)
        try:
            bound = await self._listener.start(self._listen)
        except OSError as error:
            raise HatcastError(
                f"cannot listen on {self._listen} ({os_reason(error)}): name another {self._option} (0: any free port)"
            ) from None
        self._reading = asyncio.create_task(self._read(feed, topics))
        self._tasks = [self._reading, asyncio.create_task(send_keepalives(feed, _KEEPALIVE_S))]
        return bound

    async def _read(self, feed: Feed, topics: MapTopics | None) -> None:
        """Read the topics until it stops; without them there is nothing to read."""
        if topics is None:
            await self._stopping.wait()
        else:
            await Reader(self._settings, feed, topics, check_crcs=self._check_crcs).run(self._stopping)

    def parts(self) -> dict[str, str]:
        """Return the readiness of each part: "ok", or the reason that it is not ready."""
        return _parts(self._feed)

    async def wait(self) -> None:
        """Wait until reading fails, and raise its error."""
        await asyncio.shield(self._reading)

    async def stop(self) -> None:
        """Stop the server. Pages reconnect to its successor, which sends the changes that they missed."""
        if self._tasks:
            self._stopping.set()
            for task in self._tasks[1:]:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in self._tasks:
                task.cancel()
        if self._feed is not None:
            self._feed.hub.end()
        if self._listener is not None:
            await self._listener.stop()


def application(
    feed: Feed,
    title: str,
    awaited: AwaitedReleases,
    surroundings: Surroundings | None = None,
    access: Access | None = None,
) -> web.Application:
    """Return the web application: its routes, common headers and JSON errors."""
    app = web.Application(middlewares=[_json_errors, send_in_pieces])
    (access or Access()).add_to(app)
    add_health(app.router, lambda: _parts(feed))
    Api(feed, awaited).add_to(app.router)
    (surroundings or render_surroundings()).add_to(app.router)
    StaticFiles(title).add_to(app.router)
    return app


@web.middleware
async def _json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into one line of JSON. Client addresses are never logged."""
    try:
        return await handler(request)
    except RequestError as error:
        return error_response(error)
    except web.HTTPMethodNotAllowed:
        return error_response(RequestError(405, "method not allowed: use GET"))
    except web.HTTPException as error:
        return error_response(RequestError(error.status, error.reason.lower()))
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("request failed", error=type(error).__name__)
        return error_response(RequestError(500, "internal error: see the server's log"))


def _parts(feed: Feed | None) -> dict[str, str]:
    if feed is None or not feed.caught_up:
        return {"topics": "not read to their end yet"}
    return {"topics": READY, "kafka": feed.freshness.part(now_ms())}
