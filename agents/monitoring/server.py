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
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

READY: Final = "ok"
_STOP_S: Final = 1.0

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
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_S)

    async def start(self) -> None:
        """Start to listen. Raises HatcastError if the address cannot be bound."""
        METERS.expose(self._process)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._listen.host, self._listen.port).start()
        except OSError as error:
            await self.stop()
            raise HatcastError(
                f"{self._key}: cannot listen on {self._listen} ({os_reason(error)}): set another address, or port 0 for"
                " any free port"
            ) from None
        host, port = self._runner.addresses[0][:2]
        log.info("serving metrics and health checks", address=str(Address(host, port)))

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        parts = self._parts()
        ready = all(state == READY for state in parts.values())
        return _json(200 if ready else 503, {"ready": ready, "parts": parts})

    async def _metrics(self, request: web.Request) -> web.Response:
        page, content_type = METERS.render(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


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
