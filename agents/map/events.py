"""Server-sent events: their ids and bytes, which all viewers share, and the viewers.    [WHATWG HTML, 9.2]"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Final

from hatcast.agents.map.http import ResponseStream, pieces
from hatcast.agents.map.record import RecordKind
from hatcast.agents.monitoring.declarations import DISPLAY_CLIENTS, DISPLAY_DROPPED, DISPLAY_EVENTS
from hatcast.agents.monitoring.meters import METERS

# Id of a server-sent event: a viewer's position in the topics.
#
# `1f0c3a52-12.40.7.9-3-88.90.71.80-r5.6.8.7`: the log id, the next offset of each partition of `hats.means`, and the
# same for `hats.budget`, `hats.estimates` and, after an `r`, `hats.running`. Each of the last two parts is absent if
# its topic does not exist. The offsets are Kafka's, so an id is valid at every server that reads the same topics, also
# after a restart.
_OFFSETS: Final = r"(\d{1,18}(?:\.\d{1,18}){0,9999})"
_FORM: Final = re.compile(f"([0-9a-f]{{8}})-{_OFFSETS}-{_OFFSETS}(?:-{_OFFSETS})?(?:-r{_OFFSETS})?")
MAX_CHARACTERS: Final = 8_000  # fits into an HTTP header


def log_id(*parts: str) -> str:
    """Return eight hexadecimal digits for a cluster and its topics: an event id of another cluster is recognised."""
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class EventPosition:
    """Next offset of each partition of `hats.means`, `hats.budget`, `hats.estimates` and `hats.running`."""

    log: str
    means: list[int] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)
    estimates: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        named = zip(("", "", "", "r"), self.topics, strict=True)
        parts = (letter + ".".join(map(str, offsets)) for letter, offsets in named if offsets)
        return "-".join([self.log, *parts])

    @property
    def topics(self) -> tuple[list[int], ...]:
        """Offsets by topic, in the order in which an id has them."""
        return self.means, self.budget, self.estimates, self.running

    def reaches(self, other: "EventPosition") -> bool:
        """Return whether `other` is a position in the same log and not ahead of this one."""
        return self.log == other.log and all(
            len(mine) == len(its) and all(one >= seen for one, seen in zip(mine, its, strict=True))
            for mine, its in zip(self.topics, other.topics, strict=True)
        )


def parse_position(text: str) -> EventPosition | None:
    """Return the position that an event id stands for, or None if it is malformed: the viewer then gets a snapshot."""
    match = _FORM.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        return None
    log, *topics = match.groups()
    return EventPosition(log, *([int(part) for part in text.split(".")] if text else [] for text in topics))


# Every change is encoded once, and compressed once for all viewers that want the same kinds. Each chunk is raw deflate
# that ends in a full flush, so it has no back-references to earlier chunks, and chunks may follow one gzip header in
# any order. A viewer costs one write to its socket.
GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE: Final = -15  # zlib's window bits for deflate without a header


class EventChunk:
    """Some complete events, and their number."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self.plain = b"".join(events)
        self.events = len(events)

    @cached_property
    def packed(self) -> bytes:
        """The events as raw deflate that ends in a full flush."""
        packer = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(self.plain) + packer.flush(zlib.Z_FULL_FLUSH)


class EventBatch:
    """Events of a batch of records. A viewer gets those of the kind that it wants; None stands for every kind."""

    def __init__(self, events: Sequence[tuple[RecordKind | None, bytes]]) -> None:
        """Args: `events`, each with the kind of its record, or None if every viewer gets it."""
        self._events = events
        self._chunks: dict[RecordKind | None, EventChunk] = {}

    def chunk(self, kind: RecordKind | None) -> EventChunk:
        """Return the events for viewers that want a kind. All such viewers share it."""
        chunk = self._chunks.get(kind)
        if chunk is None:
            wanted = [text for each, text in self._events if kind is None or each is None or each is kind]
            chunk = self._chunks[kind] = EventChunk(wanted)
        return chunk


def event(name: str, data: bytes, position: str = "") -> bytes:
    """Encode one event. `data` is JSON: a line break in it can only be whitespace, and becomes a space."""
    if b"\n" in data or b"\r" in data:  # a producer may format its JSON in lines
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    id_line = f"id: {position}\n" if position else ""
    return b"%bevent: %b\ndata: %b\n\n" % (id_line.encode(), name.encode(), data)


MAX_QUEUED_CHUNKS: Final = 32  # six seconds, at one chunk every 200 ms at most
MAX_VIEWERS: Final = 10_000


class Disconnected(Exception):
    """The viewer is too slow, has left, or the server stops."""


class Viewer:
    """One open event stream. A slow viewer is disconnected, not waited for: its page reconnects by itself.

    It costs a queue of up to `MAX_QUEUED_CHUNKS` shared chunks, and what its connection buffers: see
    agents/monitoring/server.py.
    """

    def __init__(self, kind: RecordKind | None = None) -> None:
        self.kind = kind  # of the records that it wants; None: every kind
        self._queue: asyncio.Queue[EventChunk] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self._over = asyncio.Event()

    def offer(self, chunk: EventChunk) -> bool:
        """Enqueue a chunk; return False if the queue is full: the viewer is then disconnected."""
        try:
            self._queue.put_nowait(chunk)
        except asyncio.QueueFull:
            self._over.set()
        return not self._over.is_set()

    async def chunks(self) -> AsyncIterator[EventChunk]:
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
            self._queue.put_nowait(EventChunk([]))

    async def send(self, stream: ResponseStream, data: bytes) -> None:
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
    def viewer(self, kind: RecordKind | None = None) -> Iterator[Viewer]:
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

    def send(self, batch: EventBatch) -> None:
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
