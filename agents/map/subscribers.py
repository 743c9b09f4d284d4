"""Everybody who has the map open. One who does not keep up is let go, not waited for: the page comes back by itself.

A viewer has a queue of `MOST_WAITING` chunks, which are shared, and its socket's buffer, which asyncio holds near
64 KiB. Nothing else is kept for it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from hatcast.agents.map.event_stream import Chunk
from hatcast.agents.monitoring.declarations import DISPLAY_CLIENTS, DISPLAY_DROPPED, DISPLAY_EVENTS
from hatcast.agents.monitoring.meters import METERS

MOST_WAITING: Final = 32  # chunks; with one every 200 ms at most, six seconds
MOST_VIEWERS: Final = 4_000
WRITE_S: Final = 20.0  # in which a viewer has to take a piece
_PIECE: Final = 16_384


class Socket(Protocol):
    """Where a viewer's bytes go: an aiohttp response."""

    async def write(self, data: bytes) -> None:
        """Returns once there is room for more. Raises ConnectionError where nobody is there."""


class Fell(Exception):
    """This viewer is too slow, or has left."""


class Viewer:
    """One who is listening."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Chunk] = asyncio.Queue(MOST_WAITING)
        self._over = asyncio.Event()

    def offer(self, chunk: Chunk) -> bool:
        """Put a chunk into the queue; False if there is no room: the viewer has fallen behind for good."""
        try:
            self._waiting.put_nowait(chunk)
        except asyncio.QueueFull:
            self._over.set()
        return not self._over.is_set()

    async def chunks(self) -> AsyncIterator[Chunk]:
        """What is offered, one after another. Raises Fell."""
        while True:
            chunk = await self._waiting.get()
            if self._over.is_set():
                raise Fell
            yield chunk

    def end(self) -> None:
        """Nothing more: `chunks` raises Fell, also where it waits."""
        self._over.set()
        if self._waiting.empty():
            self._waiting.put_nowait(Chunk([]))

    async def send(self, socket: Socket, data: bytes) -> None:
        """Write in pieces, so that little lies in the socket's buffer. Raises Fell."""
        for begin in range(0, len(data), _PIECE):
            if self._over.is_set():
                raise Fell
            try:
                async with asyncio.timeout(WRITE_S):
                    await socket.write(data[begin : begin + _PIECE])
            except (TimeoutError, ConnectionError):
                raise Fell from None


class Hub:
    """The viewers of this process."""

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        METERS.read(DISPLAY_CLIENTS, lambda: {(): len(self._viewers)})

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def full(self) -> bool:
        """Whether no further one is taken in."""
        return len(self._viewers) >= MOST_VIEWERS

    @contextmanager
    def viewer(self) -> Iterator[Viewer]:
        """One more, for the length of the block."""
        viewer = Viewer()
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def end(self) -> None:
        """Let all of them go: they come back to whoever listens next."""
        for viewer in self._viewers:
            viewer.end()

    def send(self, chunk: Chunk) -> None:
        """To all of them."""
        behind = [viewer for viewer in self._viewers if not viewer.offer(chunk)]
        self._viewers.difference_update(behind)
        METERS.count(DISPLAY_DROPPED, len(behind))
        METERS.count(DISPLAY_EVENTS, chunk.events * len(self._viewers))
