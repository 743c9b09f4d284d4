"""HTTP server of `/metrics`, `/livez` and `/readyz` for operators, on its own address.

`/livez` answers while the event loop runs. `/readyz` answers 200 if the process can do all of its work, else 503; its
JSON has the state of each part. All three report what the loops have seen and query neither Redis nor Kafka: a probe is
cheap, and it is answered at once while Redis or Kafka hang. No answer describes a single vehicle or cell.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog
from aiohttp import web

from hatcast.agents.config.address import Address
from hatcast.agents.monitoring.kinds import Process
from hatcast.agents.monitoring.listener import HEADERS, Listener
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

READY: Final = "ok"
_MAX_CONNECTIONS: Final = 200

Parts = Callable[[], Mapping[str, str]]
"""Readiness check of a process. Returns part -> `READY`, or the reason why the part is not ready, without data."""


class OperatorServer:
    """HTTP server for operators. It starts first, before the process is ready."""

    def __init__(self, listen: Address, process: Process, parts: Parts, key: str = "worker.listen") -> None:
        """Args: `key`, the setting or option with the address, for the error message."""
        self._listen = listen
        self._process = process
        self._parts = parts
        self._key = key
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
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
                " any free port"
            ) from None
        log.info("serving metrics and health checks", address=str(bound))

    async def stop(self) -> None:
        """Stop listening."""
        await self._listener.stop()

    async def _livez(self, _: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        parts = self._parts()
        ready = all(state == READY for state in parts.values())
        return _json(200 if ready else 503, {"ready": ready, "parts": parts})

    async def _metrics(self, request: web.Request) -> web.Response:
        page, content_type = METERS.render(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def os_reason(error: OSError) -> str:
    """Return the reason without the address, which asyncio repeats. Resolver errors have negative numbers."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else str(error.strerror)).lower()


def _json(status: int, body: Mapping[str, object]) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
