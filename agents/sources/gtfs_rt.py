"""GTFS-RT over HTTP: the same address is asked again and again, and only what has changed is handed on."""

import ssl
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

from hatcast.agents.clock import monotonic_s, pause
from hatcast.agents.sources.acknowledgements import Window
from hatcast.agents.sources.connection import SourceConnection
from hatcast.agents.sources.endpoint import SourceLost, SourceRefuses, lost

NAME: Final = "gtfs-rt"
BODY_BYTES_MAX: Final = 32 << 20  # unpacked; the largest feeds of whole countries have a few MiB
_TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 10.0
_CHUNK: Final = 64 << 10
_REST_MAX_S: Final = 600.0  # between two tries, whatever the server asks for
_DOUBLED_MAX: Final = 5
_REDIRECTS_MAX: Final = 5

_REFUSED: Final = {
    401: "it wants a key: name its header with --key-header, and give it in HATCAST_FEED_KEY or --key-file",
    403: "it does not let us in: is the key right?",
    404: "nothing is there: correct the address",
    410: "nothing is there any more: correct the address",
}


@dataclass(frozen=True, slots=True)
class Poll:
    """What is asked, and how often.

    url     http or https
    key     (name of a header, or of a query parameter where `in_query`, its value); None: no key
    tls     None: as the system trusts
    """

    url: str
    every_s: float
    key: tuple[str, str] | None = field(default=None, repr=False)
    in_query: bool = False
    tls: ssl.SSLContext | None = None


class PollSource:
    """One poll after another."""

    name = NAME

    def __init__(self, poll: Poll) -> None:
        parts = urlsplit(poll.url)
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # a query may hold a key
        self._poll = poll
        self._unchanged: dict[str, str] = {}  # what to ask with, so that the same is not sent again
        self._failures = 0

    async def serve(self, link: SourceConnection) -> None:
        """Poll and hand on. Raises SourceLost."""
        poll = self._poll
        try:
            async with ClientSession(
                connector=TCPConnector(ssl=poll.tls or True),
                headers=dict([poll.key] if poll.key and not poll.in_query else ())
                | {"User-Agent": f"hatcast/{version('hatcast')}"},
                timeout=ClientTimeout(total=_TIMEOUT_S, connect=_CONNECT_S),
            ) as session:
                window = Window()
                await link.until_stopped(self._ask_on(session, link, window))
                await link.settle(window)
        except SourceLost as error:
            error.wait_s = max(error.wait_s, self._rest_s())
            raise
        except (ClientError, OSError, ValueError) as error:  # ValueError: broken compression, malformed headers
            raise lost(error, self._rest_s()) from None

    def _rest_s(self) -> float:
        """Longer and longer while it fails: a server that is in trouble is not helped by being asked more often."""
        self._failures += 1
        return min(self._poll.every_s * 2.0 ** min(self._failures - 1, _DOUBLED_MAX), _REST_MAX_S)

    async def _ask_on(self, session: ClientSession, link: SourceConnection, window: Window) -> None:
        while True:
            asked_s = monotonic_s()
            body = await self._ask(session)
            link.up(self)
            link.heard()
            self._failures = 0
            if body is not None:
                await link.take(window, body, _nothing)
            await pause(max(0.0, asked_s + self._poll.every_s - monotonic_s()), link.stopping)

    async def _ask(self, session: ClientSession) -> bytes | None:
        """The body of an answer; None if it has not changed. Raises SourceLost."""
        poll = self._poll
        async with session.get(
            poll.url,
            params=dict([poll.key]) if poll.key and poll.in_query else None,
            headers=self._unchanged,
            allow_redirects=poll.key is None,  # aiohttp would take a key along to wherever it is sent
            max_redirects=_REDIRECTS_MAX,
        ) as response:
            if response.status == 304:
                return None
            if response.status != 200:
                raise _refused(response)
            body = await _whole(response)
            given = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
            self._unchanged = {ask: response.headers[tell] for ask, tell in given if tell in response.headers}
            return body


async def _whole(response: ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise SourceLost(f"its answer is larger than {BODY_BYTES_MAX >> 20} MiB")
    return bytes(body)


def _refused(response: ClientResponse) -> SourceLost:
    status = response.status
    if status in _REFUSED:
        return SourceRefuses(_REFUSED[status])
    if 300 <= status < 400:
        return SourceRefuses("it has moved, and a key is not sent elsewhere: name the new address")
    asked = response.headers.get("Retry-After", "")
    return SourceLost(f"status {status}", min(float(asked), _REST_MAX_S) if asked.isdecimal() else 0.0)


def _nothing() -> None:
    """A poll has nobody to be told."""
