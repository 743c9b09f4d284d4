"""HTTP source of GTFS-RT and SIRI: poll one URL with conditional requests, and forward changed responses."""

import ssl
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

from hatcast.agents.clock import monotonic_s, pause
from hatcast.agents.sources.connection import AckTracker, SourceConnection
from hatcast.agents.sources.endpoint import SourceLost, SourceRejection, source_error
from hatcast.stream.readings.formats import FORMATS

BODY_BYTES_MAX: Final = 32 << 20  # uncompressed; the largest national feeds have a few MiB
_TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 10.0
_CHUNK: Final = 64 << 10
_BACKOFF_MAX_S: Final = 600.0  # limits Retry-After too
_DOUBLINGS_MAX: Final = 5
_REDIRECTS_MAX: Final = 5

_KIND_MAX: Final = 60  # characters of a content type in a message
_MESSAGES: Final = {"gtfs-rt": "GTFS-RT poll", "siri": "SIRI delivery"}
_REJECTIONS: Final = {
    401: "it requires a key: name its header with --key-header, and give it in HATCAST_FEED_KEY or --key-file",
    403: "access denied: correct the key",
    404: "not found: correct the address",
    410: "gone: correct the address",
}


@dataclass(frozen=True, slots=True)
class Poll:
    """URL to poll, interval and credentials."""

    name: str  # of the command: gtfs-rt or siri
    url: str  # http or https
    interval_s: float
    # (name of a header, or of a query parameter if `in_query`; its value); None: no key
    key: tuple[str, str] | None = field(default=None, repr=False)
    in_query: bool = False
    tls: ssl.SSLContext | None = None  # None: the system's certificate authorities
    accept: str = ""  # media types in the order of preference, for servers that offer several; empty: any


class PollSource:
    """HTTP client that polls one URL."""

    def __init__(self, poll: Poll) -> None:
        self.name = poll.name
        parts = urlsplit(poll.url)
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # a query may hold a key
        self._poll = poll
        self._conditional_headers: dict[str, str] = {}
        self._failures = 0

    async def serve(self, connection: SourceConnection) -> None:
        """Poll the URL and forward each changed response. Raises SourceLost."""
        poll = self._poll
        try:
            async with ClientSession(
                connector=TCPConnector(ssl=poll.tls or True),
                headers=dict([poll.key] if poll.key and not poll.in_query else ())
                | {"User-Agent": f"hatcast/{version('hatcast')}"}
                | ({"Accept": poll.accept} if poll.accept else {}),
                timeout=ClientTimeout(total=_TIMEOUT_S, connect=_CONNECT_S),
            ) as session:
                acks = AckTracker()
                await connection.run_until_stopped(self._poll_loop(session, connection, acks))
                await connection.drain(acks)
        except SourceLost as error:
            error.wait_s = max(error.wait_s, self._backoff_s())
            raise
        except (ClientError, OSError, ValueError) as error:  # ValueError: broken compression, malformed headers
            raise source_error(error, self._backoff_s()) from None

    def _backoff_s(self) -> float:
        """Count a failure and return the wait before the next poll: it doubles with each consecutive failure."""
        self._failures += 1
        return min(self._poll.interval_s * 2.0 ** min(self._failures - 1, _DOUBLINGS_MAX), _BACKOFF_MAX_S)

    async def _poll_loop(self, session: ClientSession, connection: SourceConnection, acks: AckTracker) -> None:
        while True:
            started_s = monotonic_s()
            body = await self._fetch(session)
            connection.mark_connected(self)
            connection.record_poll()
            self._failures = 0
            if body is not None:
                await connection.forward(acks, body, lambda: None)  # polls are not acknowledged
            await pause(max(0.0, started_s + self._poll.interval_s - monotonic_s()), connection.stopping)

    async def _fetch(self, session: ClientSession) -> bytes | None:
        """Return the body of a response; None if it has not changed. Raises SourceLost."""
        poll = self._poll
        async with session.get(
            poll.url,
            params=dict([poll.key]) if poll.key and poll.in_query else None,
            headers=self._conditional_headers,
            allow_redirects=poll.key is None,  # aiohttp would send the key to the redirect's target
            max_redirects=_REDIRECTS_MAX,
        ) as response:
            if response.status == 304:
                return None
            if response.status != 200:
                raise _status_error(response)
            body = await _read_body(response)
            if not FORMATS[poll.name].is_message(body):
                kind = f"{response.content_type[:_KIND_MAX]}, not a {_MESSAGES[poll.name]}" if body else "empty"
                raise SourceLost(f"the answer is {kind}")
            validators = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
            self._conditional_headers = {
                condition: response.headers[validator]
                for condition, validator in validators
                if validator in response.headers
            }
            return body


async def _read_body(response: ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise SourceLost(f"its response is larger than {BODY_BYTES_MAX >> 20} MiB")
    return bytes(body)


def _status_error(response: ClientResponse) -> SourceLost:
    status = response.status
    if status in _REJECTIONS:
        return SourceRejection(_REJECTIONS[status])
    if 300 <= status < 400:
        return SourceRejection("it redirects, and a key is not sent to another address: name the new address")
    retry_after = response.headers.get("Retry-After", "")
    return SourceLost(f"status {status}", min(float(retry_after), _BACKOFF_MAX_S) if retry_after.isdecimal() else 0.0)
