"""Send responses in pieces: a slow client takes little memory, and one that takes nothing is disconnected."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

PIECE_BYTES: Final = 16_384
PIECE_S: Final = 20.0  # for a client to take a piece

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stream:
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
    stream = await Stream.open(made, request)
    try:
        for piece in pieces(body):
            await stream.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # a graceful close would wait for the send buffer
    return made
