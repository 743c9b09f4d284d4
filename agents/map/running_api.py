"""HTTP handlers of running means: the newest record of `hats.running` of each name and cell."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.formats import GZIP_LEVEL, JSON, VARY, Format, lenient, parse_format, records_body
from hatcast.agents.map.parameters import RequestError, parse_cell, parse_name, reject_unknown
from hatcast.agents.map.rendering import running_view
from hatcast.agents.map.responses import Body, BodyCache
from hatcast.agents.map.running_means import PolicyRunning
from hatcast.agents.tables.records import RUNNING_MEANS

_RUNNING: Final = lenient(RUNNING_MEANS)


class RunningApi:
    """Handlers of `/api/v1/running` and of the running means of a cell."""

    def __init__(self, feed: Feed, bodies: BodyCache, policy: Callable[[web.Request], str]) -> None:
        """Args: `policy`, returns the policy of a request, and raises RequestError if nothing is stored of it."""
        self._feed = feed
        self._bodies = bodies
        self._policy = policy

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the paths."""
        router.add_get("/api/v1/running", self._all)
        router.add_get("/api/v1/cells/{cell}/running", self._cell)

    async def _all(self, request: web.Request) -> web.StreamResponse:
        """Return the newest running mean of each name and cell."""
        reject_unknown(request.query, "policy", "name", "format")
        policy, name = self._policy(request), parse_name(request.query)
        stored = self._stored(policy)
        if name is not None and name not in stored.windows:
            raise RequestError(404, "no running mean has this name; /api/v1/slots lists them under running")
        wanted = parse_format(request)
        key = (wanted, "running", policy, name or "")
        body = self._bodies.body(key, stored.version, lambda: _body(wanted, policy, stored.records(name)))
        return body.respond(request, VARY)

    async def _cell(self, request: web.Request) -> web.StreamResponse:
        """Return the newest running mean of each name of one cell."""
        reject_unknown(request.query, "policy", "format")
        cell = parse_cell(request.match_info["cell"])
        policy = self._policy(request)
        stored = self._stored(policy)
        records = stored.of_cell(cell)
        if not records:
            raise RequestError(404, "no running mean of this cell; /api/v1/slots lists the cells under running")
        wanted = parse_format(request)
        key = (wanted, "cell running", policy, cell)
        body = self._bodies.body(key, stored.version, lambda: _body(wanted, policy, records, cell=cell))
        return body.respond(request, VARY)

    def _stored(self, policy: str) -> PolicyRunning:
        return self._feed.running.policies.get(policy) or PolicyRunning()


def _body(wanted: Format, policy: str, records: list[bytes], **head: str) -> Body:
    if wanted is not Format.JSON:
        return records_body(wanted, _RUNNING, records, {"policy": policy, **head})
    return Body(running_view(policy, records, **head), JSON, level=GZIP_LEVEL)
