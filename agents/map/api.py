"""The JSON API and the stream of changes.    [docs/map.md]"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from hatcast.agents.map.event_id import read_position
from hatcast.agents.map.event_stream import GZIP_HEADER
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.history import PolicyOf, SlotOf
from hatcast.agents.map.parameters import Wrong, cell_of, only, policy_of, slot_of, span_of
from hatcast.agents.map.rendering import cell_view, geojson_view, history, slot_view, slots_view
from hatcast.agents.map.responses import Body, prefers, takes_gzip
from hatcast.agents.map.subscribers import Fell, Viewer

JSON: Final = "application/json; charset=utf-8"
GEOJSON: Final = "application/geo+json; charset=utf-8"
_BODIES_KEPT: Final = 256
_BYTES_KEPT: Final = 32_000_000
_LEVEL: Final = 6
_BESIDE: Final = {405: {"Allow": "GET, HEAD"}, 503: {"Retry-After": "2"}}  # headers that belong to a status


class Api:
    """The handlers. Bodies are kept until the policy that they are about has changed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._bodies: dict[tuple[str, ...], tuple[object, Body]] = {}
        self._bytes = 0

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The paths."""
        router.add_get("/api/v1/latest", self._latest)
        router.add_get("/api/v1/slots", self._slots)
        router.add_get("/api/v1/cells/{cell}", self._cell)
        router.add_get("/api/v1/events", self._events, allow_head=False)

    async def _latest(self, request: web.Request) -> web.StreamResponse:
        """The releases of the latest slot, or of the one that is asked for."""
        only(request.query, "policy", "slot")
        name, policy = self._policy(request)
        wanted = slot_of(request.query)
        slot = self._slot(policy, wanted)
        version = policy and policy.version
        if prefers(request, "application/geo+json", "application/json"):
            body = self._body(
                ("geojson", name, wanted or ""), version, lambda: Body(geojson_view(name, slot), GEOJSON, level=_LEVEL)
            )
        else:
            body = self._body(
                ("latest", name, wanted or ""), version, lambda: Body(slot_view(policy, name, slot), JSON, level=_LEVEL)
            )
        return body.answer(request, "Accept, Accept-Encoding")

    async def _slots(self, request: web.Request) -> web.StreamResponse:
        """Which slots there are."""
        only(request.query, "policy")
        name, policy = self._policy(request)
        kept = self._feed.kept
        body = self._body(
            ("slots", name),
            (policy and policy.version, kept.names()),  # the list of policies changes with other policies too
            lambda: Body(slots_view(kept, policy, name), JSON, level=_LEVEL),
        )
        return body.answer(request)

    async def _cell(self, request: web.Request) -> web.StreamResponse:
        """What is kept of one cell."""
        only(request.query, "policy", "from", "to")
        cell = cell_of(request.match_info["cell"])
        begin, end = span_of(request.query)
        name, policy = self._policy(request)
        if policy is None or cell not in policy.seen:
            raise Wrong(404, "nothing was ever released of this cell; /api/v1/slots lists those of the last hours")
        body = self._body(
            ("cell", name, cell, str(begin), str(end)),
            policy.version,
            lambda: Body(cell_view(name, cell, history(policy, cell, begin, end)), JSON, level=_LEVEL),
        )
        return body.answer(request)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: a snapshot, or what was missed, and then the changes as they come."""
        only(request.query, "policy", "seen")
        name = policy_of(request.query)
        if not self._feed.caught_up or self._feed.hub.full:
            raise Wrong(503, "not now: try again in a moment")
        seen = read_position(request.headers.get("Last-Event-ID") or request.query.get("seen", ""))
        packed = takes_gzip(request)
        headers = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store, no-transform",
            "X-Accel-Buffering": "no",  # nginx's word for a stream
            "Vary": "Accept-Encoding",
        }
        response = web.StreamResponse(headers=headers | ({"Content-Encoding": "gzip"} if packed else {}))
        await response.prepare(request)
        with self._feed.hub.viewer() as viewer:
            start = self._feed.start(name, seen)  # nothing is awaited since the viewer was taken in: no gap
            try:
                await self._follow(viewer, response, GZIP_HEADER + start.packed if packed else start.plain, packed)
            except Fell:
                if request.transport is not None:
                    request.transport.abort()  # what lies in the buffer would keep it open
        return response

    async def _follow(self, viewer: Viewer, response: web.StreamResponse, start: bytes, packed: bool) -> None:  # noqa: FBT001 - of one caller
        await viewer.send(response, start)
        async for chunk in viewer.chunks():
            await viewer.send(response, chunk.packed if packed else chunk.plain)

    def _policy(self, request: web.Request) -> tuple[str, PolicyOf | None]:
        if not self._feed.caught_up:
            raise Wrong(503, "the releases are being read: try again in a moment")
        asked = policy_of(request.query)
        name, policy = self._feed.chosen(asked)
        if asked is not None and policy is None:
            raise Wrong(404, "there is no release of this policy; /api/v1/slots lists those that there are")
        return name, policy

    def _slot(self, policy: PolicyOf | None, wanted: str | None) -> SlotOf | None:
        if wanted is None:
            return None if policy is None else policy.latest()
        slot = None if policy is None else policy.slots.get(wanted)
        if slot is None:
            raise Wrong(404, "nothing is kept of this slot; /api/v1/slots lists those that are")
        return slot

    def _body(self, key: tuple[str, ...], version: object, make: Callable[[], Body]) -> Body:
        """What was made for this question, unless what it is about has another version since."""
        known = self._bodies.get(key)
        if known is not None and known[0] == version:
            return known[1]
        body = make()
        if self._bytes > _BYTES_KEPT or len(self._bodies) >= _BODIES_KEPT:
            self._bodies.clear()
            self._bytes = 0
        self._bodies[key] = (version, body)
        self._bytes += body.size
        return body


def refused(wrong: Wrong) -> web.Response:
    """The answer to a question that cannot be answered."""
    headers = {"Cache-Control": "no-store"} | _BESIDE.get(wrong.status, {})
    content = msgspec.json.encode({"error": wrong.why}) + b"\n"
    return web.Response(status=wrong.status, body=content, headers=headers | {"Content-Type": JSON})


async def beat(feed: Feed, seconds: float) -> None:
    """Tell all viewers now and then that the line stands, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        feed.alive()
