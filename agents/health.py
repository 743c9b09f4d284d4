"""`/livez` and `/readyz`, for whoever runs the worker: on an address of its own, never where releases are served.

`/livez` answers while the event loop does. `/readyz` answers 200 where the worker can do all of its work, else 503; its
JSON names the parts that are not ready. Both tell what the worker's loops have seen, and ask nobody: a probe costs
nothing, and an answer comes at once where Redis or Kafka hang. Nothing in it depends on a reading.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from aiohttp import web

from agents.clock import monotonic_s, now_ms
from agents.ingest import Ingest
from agents.recovery import Prover
from agents.settings import Address
from stream.errors import Refusal

log = structlog.get_logger()

READY: Final = "ok"
_INTERVALS: Final = 5  # checkpoint intervals that may pass without a good checkpoint
_LEAST_S: Final = 5.0  # of these: a large state takes seconds to write
_STOP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """What has to hold before a worker is ready, read from its parts."""

    ingest: Ingest
    prover: Prover
    checkpoint_interval_s: float
    session_timeout_s: float

    def parts(self) -> dict[str, str]:
        """Part -> `READY`, or what is missing. The texts hold counts of partitions and seconds, and no more."""
        frames = self.ingest.frames
        assigned = frames.assigned()
        loaded = len(assigned & self.ingest.held.keys())
        return {
            "redis": self._recent("answer", self.ingest.answered_s),
            "proof": READY if self.prover.token or not assigned else "Redis is not proven yet",
            "group": self._group(),
            "partitions": READY if loaded == len(assigned) else f"{loaded} of {len(assigned)} loaded",
            "checkpoint": self._recent("checkpoint", self.ingest.stored_s),
        }

    def _recent(self, what: str, last_s: float | None) -> str:
        if last_s is None:
            return f"no {what} yet"
        ago_s = monotonic_s() - last_s
        return READY if ago_s <= max(_INTERVALS * self.checkpoint_interval_s, _LEAST_S) else _no(what, ago_s)

    def _group(self) -> str:
        frames = self.ingest.frames
        if not frames.in_group():
            return "not in the consumer group"
        answered_ms = frames.answered_ms()
        if answered_ms is None:  # more workers than partitions, or the agent waits for Redis
            return READY
        silent_s = (now_ms() - answered_ms) / 1000
        if not answered_ms:
            return "no answer from Kafka yet"
        return READY if silent_s <= self.session_timeout_s else _no("answer from Kafka", silent_s)


def _no(what: str, seconds: float) -> str:
    return f"no {what} for {seconds:.0f} s"


class HealthServer:
    """The listener. It starts before everything else of a worker, which is not ready then."""

    def __init__(self, listen: Address, parts: Callable[[], Mapping[str, str]]) -> None:
        """Args: `parts`, part -> `READY` or what is missing."""
        self._listen = listen
        self._parts = parts
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_S)

    async def start(self) -> None:
        """Listen. Raises Refusal where the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._listen.host, self._listen.port).start()
        except OSError as error:
            await self.stop()
            raise Refusal(
                f"worker.listen: {self._listen} cannot be listened on ({_reason(error)}): name another address, or"
                " port 0 for any that is free"
            ) from None
        host, port = self._runner.addresses[0][:2]
        log.info("health served", address=str(Address(host, port)))

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        parts = self._parts()
        ready = all(state == READY for state in parts.values())
        return _json(200 if ready else 503, {"ready": ready, "parts": parts})


def _reason(error: OSError) -> str:
    """Without the address, which asyncio repeats. A host that is unknown has a number of its own."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else str(error.strerror)).lower()


def _json(status: int, body: Mapping[str, object]) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
