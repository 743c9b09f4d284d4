"""HTTP handlers of the JSON API and the event stream. See docs/consume.md."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from hatcast.agents.clock import now_ms
from hatcast.agents.map import openapi, rendering
from hatcast.agents.map.events import GZIP_HEADER, Disconnected, EventChunk, parse_position
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.history import PolicyHistory, SlotRecords
from hatcast.agents.map.http import (
    Body,
    BodyCache,
    RequestError,
    ResponseStream,
    accepts_gzip,
    parse_cell,
    parse_kind,
    parse_span,
    parse_text,
    reject_unknown,
)
from hatcast.agents.map.newest import AnswerIndex, PolicyRunning, RunningIndex
from hatcast.agents.map.record import RecordKind

_ONE: Final = {
    RecordKind.RELEASES: "release",
    RecordKind.ESTIMATES: "estimate",
    RecordKind.CONTINUAL: "release of a continual policy",
}
_NONE_OF_CELL: Final = {
    "running": "no running mean of this cell; /api/v1/slots lists the cells under running",
    "queries": "no answer about this cell; /api/v1/slots lists the stored ones under queries",
}
_PAGE: Final = "text/html; charset=utf-8"
_STATUS_HEADERS: Final = {405: {"Allow": "GET, HEAD"}, 503: {"Retry-After": "2"}}


class Api:
    """HTTP handlers. Response bodies are cached until their policy changes."""

    def __init__(self, feed: Feed, awaited: rendering.AwaitedReleases) -> None:
        self._feed = feed
        self._awaited = awaited
        self._bodies = BodyCache()

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the paths of the API."""
        router.add_get("/api/v1/latest", partial(self._latest, RecordKind.RELEASES))
        router.add_get("/api/v1/estimates", partial(self._latest, RecordKind.ESTIMATES))
        router.add_get("/api/v1/continual", partial(self._latest, RecordKind.CONTINUAL))
        router.add_get("/api/v1/slots", self._slots)
        router.add_get("/api/v1/cells/{cell}", partial(self._cell, RecordKind.RELEASES))
        router.add_get("/api/v1/cells/{cell}/estimates", partial(self._cell, RecordKind.ESTIMATES))
        router.add_get("/api/v1/cells/{cell}/continual", partial(self._cell, RecordKind.CONTINUAL))
        router.add_get("/api/v1/running", self._running)
        router.add_get("/api/v1/cells/{cell}/running", partial(self._cell_newest, "running", self._feed.running))
        router.add_get("/api/v1/queries", self._queries)
        router.add_get("/api/v1/cells/{cell}/queries", partial(self._cell_newest, "queries", self._feed.answers))
        router.add_get("/api/v1/clusterings", self._clusterings)
        router.add_get("/api/v1/status", partial(self._now, self._feed.freshness.view))
        router.add_get("/api/v1/awaited", partial(self._now, self._awaited.view))
        router.add_get("/api/v1/events", self._events, allow_head=False)
        router.add_get(openapi.PATH, self._openapi)
        router.add_get("/api/v1/", self._index)

    async def _latest(self, kind: RecordKind, request: web.Request) -> web.StreamResponse:
        """Return the records of the requested slot, by default the latest."""
        reject_unknown(request.query, "policy", "slot", "format")
        name = self._policy(request)
        policy, releases = self._feed.policy(kind, name), self._feed.policy(RecordKind.RELEASES, name)
        budgets = {} if releases is None else releases.budgets
        slot = _slot(policy, parse_text(request.query, "slot"))
        budget = None if slot is None else budgets.get(slot.slot[:10])
        return self._list(
            request,
            kind,
            lambda: [] if slot is None else slot.in_order(),
            (policy and policy.version, releases and releases.version),  # of the records and of the budgets
            {"policy": name, "slot": None if slot is None else slot.view()},
            more={}
            if kind is RecordKind.ESTIMATES
            else {"budget": None if budget is None else msgspec.Raw(budget.record)},
        )

    async def _slots(self, request: web.Request) -> web.StreamResponse:
        """Return the stored slots of a policy."""
        reject_unknown(request.query, "policy")
        name = self._policy(request)
        stored = [*self._policies(name), self._feed.running.policies.get(name), self._feed.answers.policies.get(name)]
        versions = [policy and policy.version for policy in stored]
        names = self._feed.names()  # the list of policies changes with other policies too
        body = self._bodies.body(
            ("slots", name),
            (*versions, names, self._feed.clusterings.ids(name)),
            lambda: Body(self._feed.slots_view(name), rendering.JSON, level=rendering.GZIP_LEVEL),
        )
        return body.respond(request)

    async def _cell(self, kind: RecordKind, request: web.Request) -> web.StreamResponse:
        """Return the stored records of one cell."""
        reject_unknown(request.query, "policy", "from", "to", "format")
        cell = parse_cell(request.match_info["cell"])
        begin, end = parse_span(request.query)
        name = self._policy(request)
        policy = self._feed.policy(kind, name)
        if policy is None or cell not in policy.seen:
            raise RequestError(404, f"no {_ONE[kind]} of this cell; /api/v1/slots lists the cells of the last hours")
        head = {"policy": name, "cell": cell}
        return self._list(request, kind, lambda: policy.of_cell(cell, begin, end), policy.version, head)

    async def _running(self, request: web.Request) -> web.StreamResponse:
        """Return the newest running mean of each name and cell."""
        reject_unknown(request.query, "policy", "name", "format")
        policy, name = self._policy(request), parse_text(request.query, "name")
        stored = self._feed.running.policies.get(policy) or PolicyRunning()
        if name is not None and name not in stored.windows:
            raise RequestError(404, "no running mean has this name; /api/v1/slots lists them under running")
        return self._list(request, "running", lambda: stored.records(name), stored.version, {"policy": policy})

    async def _queries(self, request: web.Request) -> web.StreamResponse:
        """Return answers to queries over days: of each query the newest period, or as requested."""
        reject_unknown(request.query, "policy", "query", "period", "slot", "format")
        query, period = parse_text(request.query, "query"), parse_text(request.query, "period")
        slot = parse_text(request.query, "slot", "time")
        name = self._policy(request)
        stored = self._feed.answers.policies.get(name)
        records = [] if stored is None else stored.find(query, period, slot)
        if not records and (query, period, slot) != (None, None, None):
            raise RequestError(404, "no such answer is stored; /api/v1/slots lists the stored ones under queries")
        return self._list(request, "queries", lambda: records, stored and stored.version, {"policy": name})

    async def _cell_newest(
        self, name: str, index: RunningIndex | AnswerIndex, request: web.Request
    ) -> web.StreamResponse:
        """Return the newest running mean of each name, or the stored answers to queries over days, of one cell."""
        reject_unknown(request.query, "policy", "format")
        cell, policy = parse_cell(request.match_info["cell"]), self._policy(request)
        stored = index.policies.get(policy)
        records = [] if stored is None else stored.of_cell(cell)
        # A cell with releases has answers, or none yet.
        is_known = name == "queries" and any(each and cell in each.seen for each in self._policies(policy))
        if not records and not is_known:
            raise RequestError(404, _NONE_OF_CELL[name])
        version = stored and stored.version
        return self._list(request, name, lambda: records, version, {"policy": policy, "cell": cell})

    async def _clusterings(self, request: web.Request) -> web.StreamResponse:
        """Return the results of clusterings, the newest first."""
        reject_unknown(request.query, "policy", "format")
        name = self._policy(request)
        stored, head = self._feed.clusterings, {"policy": name}
        version = tuple(stored.ids(name))
        formats = rendering.WITHOUT_PLACES
        return self._list(request, "clusterings", lambda: stored.records(name), version, head, formats=formats)

    def _list(  # noqa: PLR0913 - what a list is made of
        self,
        request: web.Request,
        name: str,
        records: Callable[[], Iterable[bytes]],
        version: object,
        head: Mapping[str, Any],
        *,
        formats: tuple[rendering.ResponseFormat, ...] = rendering.ALL,
        more: Mapping[str, Any] | None = None,
    ) -> web.Response:
        """Return a list of records in the requested format, or the cached one of the same request and version.

        Args as of `list_body`; `head` has the policy.
        """
        wanted = rendering.parse_format(request, formats)
        others = sorted((key, value) for key, value in request.query.items() if key not in ("policy", "format"))
        key = (wanted, request.path, head["policy"], *(f"{key}={value}" for key, value in others))
        make = partial(rendering.list_body, wanted, name)
        body = self._bodies.body(key, version, lambda: make(records(), head, more or {}))
        return body.respond(request, rendering.VARY)

    async def _now(self, view: Callable[[int], bytes], request: web.Request) -> web.StreamResponse:
        """Return what depends on the time: the freshness of the records, or the slot that closes next by the clock."""
        reject_unknown(request.query)
        headers = {"Cache-Control": "no-store", "Content-Type": rendering.JSON}
        return web.Response(body=view(now_ms()), headers=headers)

    async def _openapi(self, request: web.Request) -> web.StreamResponse:
        """Return the OpenAPI document."""
        reject_unknown(request.query)
        body = self._bodies.body(("openapi",), None, lambda: Body(openapi.document_text(), rendering.JSON))
        return body.respond(request)

    async def _index(self, request: web.Request) -> web.StreamResponse:
        """Return the list of paths: as a page for browsers, else as JSON."""
        reject_unknown(request.query)
        wants_page = "text/html" in request.headers.get("Accept", "")
        content, kind = (openapi.index_page, _PAGE) if wants_page else (openapi.index, rendering.JSON)
        body = self._bodies.body(("index", str(wants_page)), None, lambda: Body(content(), kind))
        return body.respond(request, rendering.VARY)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Stream server-sent events: a snapshot or the missed changes, then each new change."""
        reject_unknown(request.query, "policy", "seen", "kind")
        name, kind = parse_text(request.query, "policy"), parse_kind(request.query)
        if not self._feed.caught_up or self._feed.hub.full:
            raise RequestError(503, "the server is starting or full: try again in a moment")
        seen = parse_position(request.headers.get("Last-Event-ID") or request.query.get("seen", ""))
        packed = accepts_gzip(request)
        headers = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store, no-transform",
            "X-Accel-Buffering": "no",  # nginx: do not buffer
            "Vary": "Accept-Encoding",
        }
        response = web.StreamResponse(headers=headers | ({"Content-Encoding": "gzip"} if packed else {}))
        stream = await ResponseStream.open(response, request)
        with self._feed.hub.viewer(kind) as viewer:
            # No await between registering the viewer and this call: no change is lost in between.
            first, status = self._feed.initial_chunk(name, seen, kind), EventChunk([self._feed.status()])
            try:
                await viewer.send(stream, GZIP_HEADER + status.packed if packed else status.plain)
                await viewer.send(stream, first.packed if packed else first.plain)
                async for chunk in viewer.chunks():
                    await viewer.send(stream, chunk.packed if packed else chunk.plain)
            except Disconnected:
                if request.transport is not None:
                    request.transport.abort()  # a graceful close would wait for the send buffer
        return response

    def _policy(self, request: web.Request) -> str:
        if not self._feed.caught_up:
            raise RequestError(503, "the releases are still being read: try again in a moment")
        requested = parse_text(request.query, "policy")
        name = self._feed.select_policy(requested)
        others = (self._feed.answers.policies, self._feed.running.policies)
        if requested is not None and not any(self._policies(name)) and not any(name in each for each in others):
            raise RequestError(404, "no release of this policy; /api/v1/slots lists the policies")
        return name

    def _policies(self, name: str) -> list[PolicyHistory | None]:
        return [self._feed.policy(kind, name) for kind in self._feed.histories]


def _slot(policy: PolicyHistory | None, requested: str | None) -> SlotRecords | None:
    """Return the requested slot, by default the latest; None without any. Raises RequestError."""
    if requested is None:
        return None if policy is None else policy.latest()
    slot = None if policy is None else policy.slots.get(requested)
    if slot is None:
        raise RequestError(404, "this slot is not stored; /api/v1/slots lists the stored slots")
    return slot


def error_response(error: RequestError) -> web.Response:
    """Return the JSON response for a rejected request."""
    headers = {"Cache-Control": "no-store"} | _STATUS_HEADERS.get(error.status, {})
    content = msgspec.json.encode({"error": error.reason}) + b"\n"
    return web.Response(status=error.status, body=content, headers=headers | {"Content-Type": rendering.JSON})


async def send_keepalives(feed: Feed, seconds: float) -> None:
    """Send a keepalive event to all viewers every `seconds`, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        feed.send_keepalive()
