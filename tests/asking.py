"""Questions to a map that serves the records of three hours, and its answers."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientSession

from hatcast.agents.map.feed import Feed
from tests.displaying import CELLS, budget, feed, release, served

RECORDS = [
    *(release(hour, cell, f"{20 + hour}.{at}70") for hour in range(3) for at, cell in enumerate(CELLS[:3])),
    release(2, CELLS[3], None),
    budget(),
]


Asking = Callable[[str, ClientSession], Awaitable[None]]


def ask(made: Feed, asking: Asking) -> None:
    async def run() -> None:
        async with served(made) as (url, client):
            await asking(url, client)

    asyncio.run(run())


def answer(path: str, made: Feed | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and the bytes of an answer, unpacked."""
    found: list[Any] = []

    async def asking(url: str, client: ClientSession) -> None:
        async with client.get(url + path, headers=headers) as response:
            body = await response.read()
            packed = response.headers.get("Content-Encoding") == "gzip"
            found.extend((response.status, dict(response.headers), gzip.decompress(body) if packed else body))

    ask(made or feed(RECORDS), asking)
    return found[0], found[1], found[2]


def latest() -> list[bytes]:
    return [record for record in RECORDS if b"T11:00/" in record]
