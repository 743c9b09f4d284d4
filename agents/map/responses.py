"""Bytes as HTTP answers: compressed once, and not sent again to one who has them.    [RFC 9110]"""

import gzip
import re
from functools import cached_property
from hashlib import blake2b
from typing import Final

from aiohttp import web

_LEAST: Final = 860  # bytes: what is shorter fits into one packet either way
_LEVEL: Final = 9
_WEIGHT: Final = re.compile(r"[01](\.\d{0,3})?")


class Body:
    """The bytes of an answer."""

    def __init__(self, content: bytes, kind: str, cache: str = "no-cache", level: int = _LEVEL) -> None:
        """Args: `kind`, the media type; `cache`, the value of Cache-Control."""
        self._content = content
        self._kind = kind
        self._cache = cache
        self._level = level
        self.size = len(content)
        self._tag = blake2b(content, digest_size=12).hexdigest()

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._content, self._level, mtime=0)

    def answer(self, request: web.Request, vary: str = "Accept-Encoding") -> web.Response:
        """200, or 304 to one who has it."""
        packed = len(self._content) >= _LEAST and takes_gzip(request)
        tag = f'"{self._tag}-gzip"' if packed else f'"{self._tag}"'
        headers = {"ETag": tag, "Cache-Control": self._cache, "Vary": vary}
        if _knows(request, tag):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self._kind
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self._packed if packed else self._content, headers=headers)


def takes_gzip(request: web.Request) -> bool:
    """Whether the one who asks can read gzip."""
    weights = _weights(request.headers.get("Accept-Encoding", ""))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def prefers(request: web.Request, kind: str, other: str) -> bool:
    """Whether the one who asks names a media type, and has the other no rather."""
    weights = _weights(request.headers.get("Accept", ""))
    return weights.get(kind, 0.0) > 0 and weights[kind] >= weights.get(other, 0.0)


def _weights(header: str) -> dict[str, float]:
    """What a header such as Accept names, and how much it is wanted: 1 where nothing is said.    [RFC 9110, 12.4.2]"""
    found = dict[str, float]()
    for part in header.lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        said = next((each for each in parameters if each.startswith("q=")), "q=1")
        found[name] = float(said[2:]) if _WEIGHT.fullmatch(said[2:]) else 0.0
    return found


def _knows(request: web.Request, tag: str) -> bool:
    told = [part.strip().removeprefix("W/") for part in request.headers.get("If-None-Match", "").split(",")]
    return tag in told or "*" in told
