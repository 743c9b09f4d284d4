"""HTTP servers: the listener, which bounds what clients take, and `/metrics`, `/livez` and `/readyz` for operators.

`/livez` answers while the event loop runs. `/readyz` answers 200 if the process can do all of its work, else 503; its
JSON has the state of each part. All three report what the loops have seen and query neither Redis nor Kafka: a probe is
cheap, and it is answered at once while Redis or Kafka hang. No answer describes a single vehicle or cell.
"""

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
import structlog
from aiohttp import web

from hatcast.agents.config.tables import Address
from hatcast.agents.monitoring.declarations import Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

# aiohttp alone waits an hour for a request and takes connections until no file is left. A malformed request it logs
# with its text and the client's address, and sends the text back.
MAX_CONNECTIONS: Final = 12_000
IDLE_S: Final = 75.0  # for the head of a request, and between two requests; longer than nginx keeps a connection
STALL_S: Final = 30.0  # without any acknowledgement of sent bytes: the client reads nothing, or is gone
BUFFER_BYTES: Final = 16_384  # of a connection in this process, beside the piece that is being written
HEADERS: Final = MappingProxyType({"X-Content-Type-Options": "nosniff", "Server": "hatcast"})
_UNSENT_BYTES: Final = 65_536  # of a connection in the kernel
_BACKLOG: Final = 1_024
_LINGER_S: Final = 2.0  # for the rest of a request's body, which nobody reads
_STOP_S: Final = 1.0
_RESERVED_FILES: Final = 256  # for Kafka, files, and connections that are being turned away
_FEWEST: Final = 16


def connection_limit() -> int:
    """Raise the limit of open files, usually 1,024, and return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(_FEWEST, min(MAX_CONNECTIONS, soft - _RESERVED_FILES))


class Listener:
    """HTTP server of an application at one address."""

    def __init__(
        self, app: web.Application, most: int, headers: Mapping[str, str] = HEADERS, *, cancel_handlers: bool = False
    ) -> None:
        """Args:
        most             connections at a time; one more gets 503
        headers          of responses that the application does not make: to malformed requests
        cancel_handlers  whether a handler is cancelled when its client leaves
        """
        self.app = app
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_STOP_S, handler_cancellation=cancel_handlers
        )
        self._most = most
        self._headers = headers
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listen: Address) -> Address:
        """Start to listen; return the bound address. Raises OSError."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        accept = partial(self._accept, cast("web.Server", self._runner.server))
        self._server = await loop.create_server(accept, listen.host, listen.port, backlog=_BACKLOG)
        # Accepted sockets inherit these time-outs and buffer sizes on Linux.
        for name, value in (("TCP_USER_TIMEOUT", round(STALL_S * 1000)), ("TCP_NOTSENT_LOWAT", _UNSENT_BYTES)):
            for each in self._server.sockets if hasattr(socket, name) else ():
                each.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def stop(self) -> None:
        """Stop listening, and close the connections once their requests are answered, or after a second."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _accept(self, manager: web.Server) -> asyncio.Protocol:
        if len(self._open) >= self._most:
            return _Full(self._headers)
        return _Connection(manager, self._open, self._headers)


class _Connection(web.RequestHandler):
    """One connection. A malformed request is not logged: its text and its address are the client's."""

    __slots__ = ("_all", "_headers")

    def __init__(self, manager: web.Server, everyone: "set[_Connection]", headers: Mapping[str, str]) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=cast("Any", None),  # its type does not allow what AppRunner passes
            keepalive_timeout=IDLE_S,
            lingering_time=_LINGER_S,
            auto_decompress=False,  # of a body that nobody reads
        )
        self._all = everyone
        self._headers = headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._all.add(self)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=BUFFER_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.discard(self)
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a request that no handler could answer, without a word of it. Raises ConnectionError to close."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client left: nobody to answer, and nothing to log
        if status >= 500:
            log.error("request failed", exc_info=exc)
        if request.writer.output_size:
            raise ConnectionAbortedError("the response has begun")
        reason = "malformed request" if status < 500 else "internal error: see the server's log"
        response = web.Response(status=status, body=_error(reason), headers=_json_headers(self._headers))
        response.force_close()
        return response


class _Full(asyncio.Protocol):
    """Connection beyond the limit: 503, and closed."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        body = _error("too many connections: try again in a moment")
        own = {"Retry-After": "2", "Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"{name}: {value}" for name, value in (_json_headers(self._headers) | own).items()]
        head = "\r\n".join(["HTTP/1.1 503 Service Unavailable", *lines, "", ""])
        cast("asyncio.Transport", transport).write(head.encode() + body)
        transport.close()


def _json_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {**headers, "Cache-Control": "no-store", "Content-Type": "application/json; charset=utf-8"}


def _error(reason: str) -> bytes:
    return msgspec.json.encode({"error": reason}) + b"\n"


READY: Final = "ok"
_MAX_CONNECTIONS: Final = 200

Parts = Callable[[], Mapping[str, str]]
"""Readiness check of a process. Returns part -> `READY`, or the reason why the part is not ready, without data."""


def add_health(router: web.UrlDispatcher, parts: Parts) -> None:
    """Register `/livez` and `/readyz`."""

    async def livez(_: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def readyz(_: web.Request) -> web.Response:
        states = parts()
        ready = all(state == READY for state in states.values())
        return _json(200 if ready else 503, {"ready": ready, "parts": states})

    router.add_get("/livez", livez)
    router.add_get("/readyz", readyz)


def _json(status: int, body: Mapping[str, object]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), headers=_json_headers({}))


class OperatorServer:
    """HTTP server for operators. It starts first, before the process is ready."""

    def __init__(self, listen: Address, process: Process, parts: Parts, key: str = "worker.listen") -> None:
        """Args: `key`, the setting or option with the address, for the error message."""
        self._listen = listen
        self._process = process
        self._key = key
        application = web.Application()
        add_health(application.router, parts)
        application.router.add_get("/metrics", self._metrics)
        application.on_response_prepare.append(_set_headers)
        self._listener = Listener(application, _MAX_CONNECTIONS)

    async def start(self) -> None:
        """Start to listen. Raises HatcastError if the address cannot be bound."""
        METERS.expose(self._process)
        try:
            bound = await self._listener.start(self._listen)
        except OSError as error:
            await self.stop()
            raise HatcastError(
                f"{self._key}: cannot listen on {self._listen} ({os_reason(error)}): set another address, or port 0 for"
                " any free port: another process with these settings may have this one, such as the worker beside a"
                " drain"
            ) from None
        log.info("serving metrics and health checks", address=str(bound))

    async def stop(self) -> None:
        """Stop listening."""
        await self._listener.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        page, content_type = METERS.render(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def os_reason(error: OSError) -> str:
    """Return the reason without the address, which asyncio repeats. Resolver errors have negative numbers."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else str(error.strerror)).lower()


@contextmanager
def serve_in_thread(listen: Address, process: Process, key: str) -> Iterator[None]:
    """Serve the operator endpoints while the block runs. Raises HatcastError if the address cannot be bound.

    key    the setting or option with the address, for the error message
    """
    loop = asyncio.new_event_loop()
    server = OperatorServer(listen, process, lambda: {process.value: READY}, key)
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
