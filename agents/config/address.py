"""Addresses to listen on, and web origins."""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from hatcast.stream.errors import SettingError

ANY_ORIGIN: Final = "*"
_HOST: Final = re.compile(r"[a-z0-9.-]+|[0-9a-f:.]+")  # a name or an address: no wildcard, nothing that ends a header
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen on. Port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, key: str) -> Address:
    """Parse `host:port`. Raises SettingError, which names the key."""
    with suppress(ValueError):  # the port is not a number
        parts = urlsplit(f"//{text}")
        if parts.netloc == text and parts.username is None and parts.hostname and parts.port is not None:
            return Address(parts.hostname, parts.port)
    raise SettingError(key, f"{text!r} is not an address", 'write "127.0.0.1:9464"; port 0 takes any free port')


def parse_origins(texts: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Parse origins such as `https://city.example`, as browsers write them; `*` alone is any origin.

    Raises SettingError, which names the key.
    """
    for text in texts:
        if text != ANY_ORIGIN and text != _origin(text):
            raise SettingError(
                key,
                f"{text!r} is not an origin",
                'write scheme and host, and the port if it is not the usual one, such as "https://city.example"',
            )
    if ANY_ORIGIN in texts and len(texts) > 1:
        raise SettingError(key, '"*" is any origin already', 'write ["*"] alone, or leave it out')
    return texts


def _origin(text: str) -> str | None:
    """Return the origin of an address of a web page, as browsers write it; None if it has none."""
    with suppress(ValueError):  # the port is not a number
        parts = urlsplit(text)
        if parts.scheme in _PORTS and parts.hostname and _HOST.fullmatch(parts.hostname):
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
            return f"{parts.scheme}://{host}{port}"
    return None
