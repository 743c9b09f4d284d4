"""A TCP proxy on 127.0.0.1 between clients and a server: it delays, cuts, refuses and stalls, and heals.

Kafka's clients go on to the address that a broker names in its answers. Those answers come through here, and the
proxy's port is written over the broker's: nothing else changes, not even a length. So any number of proxies stand
before one broker, with no listener of their own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tests.services import KafkaServer, RedisServer

T = TypeVar("T")

_CHUNK: Final = 65_536
_LENGTH: Final = 4  # of the length before each of a broker's answers


class _Way:
    """One direction of all connections: what was read waits here until it may go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0

    async def pass_on(self, read: Callable[[], Coroutine[Any, Any, bytes]], writer: asyncio.StreamWriter) -> None:
        """Until one side closes."""
        while data := await read():
            await asyncio.sleep(self.delay_s)
            await self.open.wait()
            writer.write(data)
            await writer.drain()


class Proxy:
    """Forwards to one server, from a thread of its own. What a method does is done when it returns.

    host, port   where clients connect
    dialled      how often they did, refused ones included
    """

    host: Final = "127.0.0.1"
    port: int

    def __init__(self, host: str, port: int, *, is_broker: bool = False) -> None:
        """Args: `is_broker`, the server is a Kafka broker, which names its address in its answers."""
        self._target = (host, port)
        self._is_broker = is_broker
        self._refusing = False
        self.dialled = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._run(self._listen())

    # What tests do.

    def delay(self, seconds: float) -> None:
        """Let every piece of data wait so long, both ways."""
        self._run(self._set(delay_s=seconds))

    def cut(self) -> None:
        """Close every connection, with what is under way in it; new ones are served."""
        self._run(self._cut(refusing=False))

    def refuse(self) -> None:
        """Close every connection, and each new one at once: as if the server were not there."""
        self._run(self._cut(refusing=True))

    def stall(self, *, only_answers: bool = False) -> None:
        """Half-open: connections stay, new ones are accepted, nothing goes through. What is sent meanwhile waits.

        With `only_answers` the server hears and does everything, and nobody learns of it.
        """
        self._run(self._stall(only_answers=only_answers))

    def heal(self) -> None:
        """Be a plain wire again. On connections that are still open, what was stalled goes on."""
        self._run(self._heal())

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def close(self) -> None:
        """End it with all its connections."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # In the proxy's thread.

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> asyncio.Server:
        self._requests, self._answers = _Way(), _Way()
        server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _set(self, *, delay_s: float) -> None:
        self._requests.delay_s = self._answers.delay_s = delay_s

    async def _cut(self, *, refusing: bool) -> None:
        self._refusing = refusing
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _stall(self, *, only_answers: bool) -> None:
        self._answers.open.clear()
        if not only_answers:
            self._requests.open.clear()

    async def _heal(self) -> None:
        self._refusing = False
        await self._set(delay_s=0.0)
        self._requests.open.set()
        self._answers.open.set()

    async def _end(self) -> None:
        self._server.close()
        await self._cut(refusing=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection. It ends with either side, and without waiting for what is still in a buffer."""
        ends = [to_client]
        ways: list[asyncio.Task[None]] = []
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
            ends.append(to_server)
            requests = self._requests.pass_on(lambda: from_client.read(_CHUNK), to_server)
            answers = self._answers.pass_on(lambda: self._answer(from_server), to_client)
            ways = [asyncio.create_task(requests), asyncio.create_task(answers)]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the server is not there: the client finds its connection closed
        finally:
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        """The next piece of data: of a broker a whole answer, in which its address became ours."""
        if not self._is_broker:
            return await reader.read(_CHUNK)
        length = await reader.readexactly(_LENGTH)
        answer = await reader.readexactly(int.from_bytes(length))
        host, port = self._target
        return length + answer.replace(host.encode() + port.to_bytes(4), host.encode() + self.port.to_bytes(4))


@contextmanager
def proxy_of_kafka(kafka: KafkaServer) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a broker of this machine, and the `bootstrap_servers` that lead through it."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    proxy = Proxy(host, int(port), is_broker=True)
    try:
        yield proxy, f"{host}:{proxy.port}"
    finally:
        proxy.close()


@contextmanager
def proxy_of_redis(redis: RedisServer) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a Redis, and the URL that leads through it."""
    url = urlsplit(redis.url)
    proxy = Proxy(url.hostname or "localhost", url.port or 6379)
    try:
        yield proxy, url._replace(netloc=f"{proxy.host}:{proxy.port}").geturl()
    finally:
        proxy.close()
