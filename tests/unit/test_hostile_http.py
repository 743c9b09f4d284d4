"""Clients that mean harm, over raw sockets: the map and the operators' endpoint stay up, bounded and discreet."""

import asyncio
import logging
import re
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from hatcast.agents.config.tables import Address
from hatcast.agents.map import http
from hatcast.agents.map.events import EventPosition
from hatcast.agents.map.server import HEADERS
from hatcast.agents.monitoring import server as listener
from hatcast.agents.monitoring.declarations import Process
from hatcast.agents.monitoring.server import OperatorServer
from tests.displaying import feed, release, served
from tests.viewing import listening

WAIT_S: Final = 30.0
END: Final = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
MARK: Final = b"zebra-7261"
MALFORMED: Final = {
    "NUL in the path": b"GET /" + MARK + b"\x00" + END,
    "bytes that are not ASCII": b"GET /" + MARK + "é".encode() + END,
    "URL of 20 kB": b"GET /" + MARK * 2_000 + END,
    "header of 100 kB": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + MARK * 10_000 + b"\r\n\r\n",
    "5,000 headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: zebra-7261\r\n" * 5_000 + b"\r\n",
    "header without an end": b"GET / HTTP/1.1\r\nX: " + MARK * 2_000,
    "length and chunks": b"GET / HTTP/1.1\r\nHost:\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nContent-Length: 5\r\n\r\n0\r\n\r\nG",
    "negative length": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "signed length": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
    "space before a colon": b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding twice": b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "folded header": b"GET /livez HTTP/1.1\r\nHost: x\r\nX: a\r\n zebra-7261: b\r\n\r\n",
    "line ends without CR": b"GET /zebra-7261 HTTP/1.1\nHost: x\n\n",
    "CR within a header": b"GET /livez HTTP/1.1\r\nHost: x\r\nX: a\rX-Evil: zebra-7261\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: zebra-7261\r\n\r\n",
    "unknown method": b"<script>" + MARK + b"</script> / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
}
PATHS: Final = (
    *(
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/%252e%252e/etc/passwd",
        "/..%5c..%5cserver.py",
        "/..\\server.py",
    ),
    *("/vendor/../../server.py", "//etc/passwd", "/index.html%00.css", "/%00", "/%ff%fe", "/%0d%0aX-Evil:%201"),
    *("/basemap.pmtiles/../x", "/api/v1/cells/%0d%0aX-Evil:1", "/api/v1/cells/..%2f..%2flatest", "/static/server.py"),
    *("/api/v1/latest?policy=%0d%0aX-Evil:1", "/api/v1/latest?slot=<script>", "/api/v1/latest?<script>=1"),
    *("/api/v1/latest?" + "&".join(f"a{number}=1" for number in range(900)), "/api/v1/latest?policy=city%00"),
    *(
        "/api/v1/cells/87608b0d2ffffff?from=0000-11-11T11:11Z",
        "/api/v1/cells/87608b0d2ffffff?to=2022-01-01T00:00%2B99:99",
    ),
    *("/api/v1/running?name=%F0%9F%90%98", "/api/v1/queries?period=%D9%A1%D9%A1%D9%A1%D9%A1-11-11"),
)

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(url: str, receive_buffer: int | None = None) -> AsyncIterator[Client]:
    """A raw connection to the server."""
    host, port = url.removeprefix("http://").split(":")
    made = socket.socket()
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.setblocking(False)  # noqa: FBT003 - the standard library's
    await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=made, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchanged(url: str, data: bytes) -> bytes:
    """All that a client gets for `data`, until the server closes."""
    async with connected(url) as (reader, writer):
        writer.write(data)
        got = bytearray()
        try:
            while part := await asyncio.wait_for(reader.read(65_536), WAIT_S):
                got += part
        except ConnectionResetError:  # it closed with more of ours unread
            pass
        return bytes(got)


def ask(asking: Callable[[str, ClientSession], Awaitable[None]]) -> None:
    """Run against a map with the releases of an hour."""

    async def run() -> None:
        async with served(feed([release(0)])) as (url, client):
            await asking(url, client)
            async with client.get(f"{url}/livez") as alive:
                assert alive.status == 200, "whatever came, it still serves"

    asyncio.run(run())


def parsed(answer: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Status line, headers and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, dict(line.decode().split(": ", 1) for line in lines), body


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_gets_one_line_without_its_text_and_no_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def asking(url: str, _: ClientSession) -> None:
        first, headers, body = parsed(await exchanged(url, MALFORMED[name]))
        assert re.fullmatch(rb"HTTP/1\.[01] 400 Bad Request", first)
        assert body == b'{"error":"malformed request"}\n', "and no second response, to what was smuggled"
        assert {each: headers[each] for each in HEADERS} == HEADERS
        assert "zebra" not in str(headers)

    with capture_logs() as logs:
        ask(asking)
    assert logs == []
    assert [each for each in caplog.records if each.name.startswith(("aiohttp", "asyncio"))] == []


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_map_or_into_a_header(path: str) -> None:
    async def asking(url: str, _: ClientSession) -> None:
        first, headers, body = parsed(await exchanged(url, b"GET " + path.encode() + END))
        assert first.split()[1] in (b"400", b"404")
        assert "X-Evil" not in headers
        assert body.startswith(b'{"error":"')
        assert body.count(b"\n") == 1
        for own in (b"root:", b"import ", b"<script", b"Traceback", b"Evil"):
            assert own not in body

    ask(asking)


@pytest.mark.parametrize(
    "header", ["Host", "Last-Event-ID", "X-Forwarded-Host", "X-Forwarded-Proto", "Origin", "Cookie"]
)
def test_no_header_of_a_request_comes_back(header: str) -> None:
    async def asking(url: str, _: ClientSession) -> None:
        own = b"" if header == "Host" else b"Host: x\r\n"
        for path in (b"/", b"/api/v1/latest", b"/nowhere"):
            request = b"GET " + path + b" HTTP/1.1\r\n" + own + header.encode() + b": " + MARK + b"<script>\r\n"
            assert MARK not in await exchanged(url, request + b"Connection: close\r\n\r\n")

    ask(asking)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "PROPFIND", "CONNECT"])
def test_only_get_and_head_are_answered_and_no_body_is_waited_for(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_LINGER_S", 0.1)

    async def asking(url: str, _: ClientSession) -> None:
        head = f"{method} /api/v1/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        first, _headers, body = parsed(await exchanged(url, head.encode() + b"Content-Length: 9999999999\r\n\r\nabc"))
        assert first.split()[1] in (b"405", b"404")
        assert body.startswith(b'{"error":"')

    ask(asking)


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end; a server that closes before it has read all resets the connection."""
    with suppress(ConnectionResetError):
        return await reader.read()
    return b""


def test_one_who_sends_a_header_byte_by_byte_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.5)

    async def asking(url: str, _: ClientSession) -> None:
        async with connected(url) as (reader, writer):
            ended = asyncio.create_task(all_of(reader))
            for byte in b"GET / HTTP/1.1\r\nX: " + b"a" * 3_000:
                writer.write(bytes([byte]))
                done, _pending = await asyncio.wait([ended], timeout=0.02)
                if done:
                    break
            assert (ended.done(), ended.result() if ended.done() else None) == (True, b"")

    ask(asking)


async def test_one_who_reads_nothing_is_disconnected_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PIECE_S", 0.5)
    made = feed([release(0, filler="x" * 8_000_000)])

    async def run() -> None:
        async with served(made) as (url, client), connected(url, 4_096) as (_reader, slow):
            slow.write(b"GET /api/v1/latest HTTP/1.1\r\nHost: x\r\n\r\n")
            async with client.get(f"{url}/api/v1/latest", headers={"Accept-Encoding": "identity"}) as response:
                assert len(await response.read()) > 8_000_000
            with pytest.raises(ConnectionError):  # what it sends now is refused
                while True:
                    slow.write(b"x")
                    await slow.drain()
                    await asyncio.sleep(0.01)

    with capture_logs() as logs:
        await asyncio.wait_for(run(), WAIT_S)
    assert logs == []


async def test_one_who_reads_nothing_costs_little_memory() -> None:
    """Of a body of 8 MB, in this process and in the kernel."""

    async def large(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * 8_000_000)

    app = web.Application(middlewares=[http.send_in_pieces])
    app.router.add_get("/", large)
    server = listener.Listener(app, 1)
    address = await server.start(Address("127.0.0.1", 0))
    async with connected(f"http://{address}", 4_096) as (_reader, slow):
        slow.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: any(_transport(each).get_write_buffer_size() for each in server._open))
        (own,) = (_transport(each) for each in server._open)
        for _turn in range(50):
            assert own.get_write_buffer_size() <= listener.BUFFER_BYTES + 2 * http.PIECE_BYTES
            await asyncio.sleep(0)
        options = own.get_extra_info("socket")
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 65_536
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    await server.stop()


def _transport(connection: web.RequestHandler) -> asyncio.Transport:
    assert connection.transport is not None
    return connection.transport


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_one_connection_too_many_is_told_to_come_back_and_is_served_once_another_leaves() -> None:
    async with (
        served(feed([release(0)]), most=3) as (url, client),
        connected(url),
        connected(url) as (_reader, writer),
        listening(client, url) as viewer,
    ):
        await viewer.until(b"event: ready")
        first, headers, body = parsed(await exchanged(url, b"GET /" + END))
        assert first == b"HTTP/1.1 503 Service Unavailable"
        assert {each: headers[each] for each in HEADERS} == HEADERS
        assert headers["Retry-After"] == "2"
        assert body == b'{"error":"too many connections: try again in a moment"}\n'
        writer.transport.abort()
        await until_served(url)


async def until_served(url: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not (await exchanged(url, b"GET /livez" + END)).startswith(b"HTTP/1.1 200"):
            await asyncio.sleep(0.01)


def test_fewer_files_are_fewer_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    for soft, hard, most in ((1_024, 4_096, 3_840), (1_024, 1_000_000, 12_000), (100, 100, 16), (-1, -1, 12_000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, both=(soft, hard): both)
        assert listener.connection_limit() == most
    assert limits == [(4_096, 4_096), (1_000_000, 1_000_000)]


def test_an_event_id_of_another_log_costs_no_snapshot_of_its_own() -> None:
    made = feed([release(0)])
    for log in ("00000000", "ffffffff"):
        assert made.initial_chunk(None, EventPosition(log, [1], [1])) is made.initial_chunk(None, None)


@pytest.mark.parametrize("left", [b"GET /api/v1/events", b"GET /api/v1/latest"])
async def test_one_who_leaves_in_the_middle_of_an_answer_is_not_logged(
    left: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logs:
        async with served(feed([release(0, filler="x" * 2_000_000)])) as (url, client):
            async with connected(url, 4_096) as (reader, writer):
                writer.write(left + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.read(100)
            async with client.get(f"{url}/livez") as alive:
                assert alive.status == 200
    assert logs == []
    assert [each.name for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("name", ["NUL in the path", "header of 100 kB", "two lengths", "unknown method"])
def test_the_operators_endpoint_is_as_discreet(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> tuple[bytes, bytes]:
        server = OperatorServer(Address("127.0.0.1", 0), Process.WORKER, dict)
        with capture_logs() as logs:
            await server.start()
        try:
            url = f"http://{logs[0]['address']}"
            return await exchanged(url, MALFORMED[name]), await exchanged(url, b"GET /" + MARK + END)
        finally:
            await server.stop()

    malformed, absent = asyncio.run(run())
    assert parsed(malformed)[2] == b'{"error":"malformed request"}\n'
    for answer in (malformed, absent):
        headers = parsed(answer)[1]
        assert (headers["Server"], headers["X-Content-Type-Options"]) == ("hatcast", "nosniff")
        assert MARK not in answer
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
