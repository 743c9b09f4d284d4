"""Requests and responses of the API: parameters, parsed and validated; bodies, compressed once and sent in pieces."""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Self

import h3.api.basic_str as h3
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from hatcast.agents.map.record import RecordKind, instant_ms

if TYPE_CHECKING:
    from multidict import MultiMapping


_CELL: Final = re.compile(r"[0-9a-f]{15}")
_POLICY: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TEXT_FORMS: Final = {  # of a parameter: its form, and what a text of another form gets
    "policy": (_POLICY, "not a policy name; /api/v1/slots lists the policies"),
    "name": (_POLICY, "not the name of a running mean; /api/v1/slots lists them under running"),
    "slot": (
        re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}"),
        'write a slot\'s local start, such as "2022-01-02T09:00"; /api/v1/slots lists the slots',
    ),
    "query": (_POLICY, "write the name of a query; /api/v1/slots lists them under queries"),
    "period": (
        re.compile(r"\d{4}-\d{2}-\d{2}"),
        'write the first date of a period, such as "2021-11-15"; /api/v1/slots lists them under queries',
    ),
    "time": (
        re.compile(r"\d{2}:\d{2}"),
        'write the local start of a slot, such as "09:00"; /api/v1/slots lists them under queries',
    ),
}
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})")
_INSTANT_HINT: Final = 'write an instant with an offset, such as "2022-01-02T09:00:00+05:30" (in a URL "+" is "%2B")'


@dataclass(eq=False)
class RequestError(Exception):
    """Rejected request: its HTTP status and the reason, in one line."""

    status: int
    reason: str


def reject_unknown(query: "MultiMapping[str]", *known: str) -> None:
    """Raise RequestError if the query has an unknown or repeated parameter: it would be ignored silently."""
    if len(set(query)) < len(query):
        raise RequestError(400, "a parameter is given twice: write it once")
    for name in query:
        if name not in known:
            allowed = f"allowed are {', '.join(known)}" if known else "none is allowed here"
            raise RequestError(400, f"unknown parameter: {allowed}")


def parse_text(query: Mapping[str, str], name: str, form: str = "") -> str | None:
    """Return a parameter, None without it. `form`: in `_TEXT_FORMS`, by default its name. Raises RequestError."""
    pattern, problem = _TEXT_FORMS[form or name]
    value = query.get(name)
    if value is not None and not pattern.fullmatch(value):
        raise RequestError(400, f"{name}: {problem}")
    return value


def parse_kind(query: Mapping[str, str]) -> RecordKind | None:
    """Return the parameter `kind`, or None without it: every kind. Raises RequestError."""
    kind = query.get("kind")
    if kind is not None and kind not in [*RecordKind]:
        raise RequestError(400, f"kind: write one of {', '.join(RecordKind)}, or leave it out for all")
    return None if kind is None else RecordKind(kind)


def parse_cell(text: str) -> str:
    """Return a valid H3 index. Raises RequestError."""
    if not _CELL.fullmatch(text) or not h3.is_valid_cell(text):
        raise RequestError(400, 'not an H3 cell: write 15 hexadecimal digits in lower case, such as "87608b0d2ffffff"')
    return text


def parse_span(query: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the parameters `from` and `to` (ms UTC), each None without it. Raises RequestError."""
    begin, end = (_instant(query.get(name), name) for name in ("from", "to"))
    if begin is not None and end is not None and begin >= end:
        raise RequestError(400, "from is not before to: swap them")
    return begin, end


def _instant(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if _INSTANT.fullmatch(text):
            return instant_ms(text)
    raise RequestError(400, f"{name}: {_INSTANT_HINT}")


_GZIP_MIN_BYTES: Final = 860  # less fits into one packet either way
_LEVEL: Final = 9
_CACHE_BODIES: Final = 256
_CACHE_BYTES: Final = 32_000_000
_WEIGHT: Final = re.compile(r"[01](\.\d{0,3})?")


class Body:
    """Body of a response, with its ETag and its compressed form."""

    def __init__(self, content: bytes, kind: str, cache: str = "no-cache", level: int = _LEVEL) -> None:
        """Args: `kind`, the media type; `cache`, the value of Cache-Control."""
        self.content = content
        self._kind = kind
        self._cache = cache
        self._level = level
        self._tag = blake2b(content, digest_size=12).hexdigest()

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self.content, self._level, mtime=0)

    def respond(self, request: web.Request, vary: str = "Accept-Encoding") -> web.Response:
        """Return 200 with the body, or 304 if the client has it."""
        packed = len(self.content) >= _GZIP_MIN_BYTES and accepts_gzip(request)
        tag = f"{self._tag}-gzip" if packed else self._tag
        headers = {"ETag": f'"{tag}"', "Cache-Control": self._cache, "Vary": vary}
        if any(each.value in (tag, "*") for each in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self._kind
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self._packed if packed else self.content, headers=headers)


class BodyCache:
    """Bodies of responses, each stored until its version changes, and all of them only while they are few."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, ...], tuple[object, Body]] = {}
        self._bytes = 0

    def body(self, key: tuple[str, ...], version: object, make: Callable[[], Body]) -> Body:
        """Return the cached body of a request, or make it anew if its version has changed."""
        cached = self._bodies.get(key)
        if cached is not None and cached[0] == version:
            return cached[1]
        body = make()
        if self._bytes > _CACHE_BYTES or len(self._bodies) >= _CACHE_BODIES:
            self._bodies.clear()
            self._bytes = 0
        self._bodies[key] = (version, body)
        self._bytes += len(body.content)
        return body


def accepts_gzip(request: web.Request) -> bool:
    """Return whether the client accepts gzip."""
    weights = _weights(request.headers.get("Accept-Encoding", ""))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def prefers(request: web.Request, kind: str, other: str) -> bool:
    """Return whether the client accepts `kind` by name and does not prefer `other`."""
    weights = _weights(request.headers.get("Accept", ""))
    return weights.get(kind, 0.0) > 0 and weights[kind] >= weights.get(other, 0.0)


def _weights(header: str) -> dict[str, float]:
    """Parse a header such as Accept: name -> quality, 1 by default.    [RFC 9110, 12.4.2]"""
    weights = dict[str, float]()
    for part in header.lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        quality = next((each for each in parameters if each.startswith("q=")), "q=1")[2:]
        weights[name] = float(quality) if _WEIGHT.fullmatch(quality) else 0.0
    return weights


PIECE_BYTES: Final = 16_384
PIECE_S: Final = 20.0  # for a client to take a piece

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ResponseStream:
    """Body of a response, as a socket that waits for its client."""

    def __init__(self, response: web.StreamResponse, writer: AbstractStreamWriter) -> None:
        self._response = response
        self._writer = writer

    @classmethod
    async def open(cls, response: web.StreamResponse, request: web.Request) -> Self:
        """Send the headers. Raises ConnectionError if the client is gone."""
        writer = await response.prepare(request)
        if writer is None:
            raise ConnectionResetError
        return cls(response, writer)

    async def write(self, piece: memoryview) -> None:
        """Write, and return when the buffer has room for more.

        Raises ConnectionError if the client is gone, TimeoutError if it does not take the piece.
        """
        async with asyncio.timeout(PIECE_S):
            await self._response.write(piece)
            await self._writer.drain()  # `write` waits only once 64 KiB are written


def pieces(data: bytes) -> Iterator[memoryview]:
    """Yield the data in pieces, without a copy."""
    view = memoryview(data)
    return (view[begin : begin + PIECE_BYTES] for begin in range(0, len(data), PIECE_BYTES))


@web.middleware
async def send_in_pieces(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send a large response piece by piece. aiohttp would copy all of it for each client, and wait for ever.

    Raises ConnectionError if the client is gone.
    """
    response = await handler(request)
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE_BYTES or request.method == "HEAD":
        return response
    made = web.StreamResponse(status=response.status, headers=response.headers)
    made.content_length = len(body)
    stream = await ResponseStream.open(made, request)
    try:
        for piece in pieces(body):
            await stream.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # a graceful close would wait for the send buffer
    return made
