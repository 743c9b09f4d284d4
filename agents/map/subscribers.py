"""Viewers of the event stream. A slow viewer is disconnected, not waited for: its page reconnects by itself.

A viewer costs a queue of up to `MAX_QUEUED_CHUNKS` shared chunks, and what its connection buffers: see
agents/monitoring/listener.py.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from hatcast.agents.map.event_stream import Batch, Chunk
from hatcast.agents.map.record import Kind
from hatcast.agents.map.sending import Stream, pieces
from hatcast.agents.monitoring.declarations import DISPLAY_CLIENTS, DISPLAY_DROPPED, DISPLAY_EVENTS
from hatcast.agents.monitoring.meters import METERS

MAX_QUEUED_CHUNKS: Final = 32  # six seconds, at one chunk every 200 ms at most
MAX_VIEWERS: Final = 10_000


class Disconnected(Exception):
    """The viewer is too slow, has left, or the server stops."""


class Viewer:
    """One open event stream.

    kind   of the records that it wants; None: every kind
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self.kind = kind
        self._queue: asyncio.Queue[Chunk] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self._over = asyncio.Event()

    def offer(self, chunk: Chunk) -> bool:
        """Enqueue a chunk; return False if the queue is full: the viewer is then disconnected."""
        try:
            self._queue.put_nowait(chunk)
        except asyncio.QueueFull:
            self._over.set()
        return not self._over.is_set()

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yield the offered chunks in order. Raises Disconnected."""
        while True:
            chunk = await self._queue.get()
            if self._over.is_set():
                raise Disconnected
            yield chunk

    def end(self) -> None:
        """End the stream: `chunks` raises Disconnected, also while it waits."""
        self._over.set()
        if self._queue.empty():
            self._queue.put_nowait(Chunk([]))

    async def send(self, stream: Stream, data: bytes) -> None:
        """Write in pieces, so that the connection buffers little. Raises Disconnected."""
        for piece in pieces(data):
            if self._over.is_set():
                raise Disconnected
            try:
                await stream.write(piece)
            except (TimeoutError, ConnectionError):
                raise Disconnected from None


class Hub:
    """The viewers of this process."""

    def __init__(self, most: int = MAX_VIEWERS) -> None:
        """Args: `most`, viewers at a time."""
        self._viewers: set[Viewer] = set()
        self._most = most
        METERS.register(DISPLAY_CLIENTS, lambda: {(): len(self._viewers)})

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def full(self) -> bool:
        """Return whether the limit of viewers is reached."""
        return len(self._viewers) >= self._most

    @contextmanager
    def viewer(self, kind: Kind | None = None) -> Iterator[Viewer]:
        """Register a viewer for the length of the block."""
        viewer = Viewer(kind)
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def end(self) -> None:
        """Disconnect all viewers: their pages reconnect to the next server."""
        for viewer in self._viewers:
            viewer.end()

    def send(self, batch: Batch) -> None:
        """Send each viewer the events that it wants; disconnect those whose queue is full."""
        behind, sent = list[Viewer](), 0
        for viewer in self._viewers:
            chunk = batch.chunk(viewer.kind)
            if chunk.events and not viewer.offer(chunk):
                behind.append(viewer)
            else:
                sent += chunk.events
        self._viewers.difference_update(behind)
        METERS.count(DISPLAY_DROPPED, len(behind))
        METERS.count(DISPLAY_EVENTS, sent)
