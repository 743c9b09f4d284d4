"""Run the next call of a sequence while the result of the last one is used."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import TypeVar

from hatcast.agents.clock import cancel_all

T = TypeVar("T")
R = TypeVar("R")


async def one_ahead(
    function: Callable[[T], Coroutine[object, object, R]], items: Iterable[T]
) -> AsyncGenerator[R, None]:
    """Yield the result of a call for each item, in order; one call at a time, each while the last result is used.

    An exception is raised in its place of the order. Close the generator: then a call that still runs is cancelled, and
    its result and its exception are dropped.
    """
    running: asyncio.Task[R] | None = None
    try:
        for item in items:
            result = None if running is None else (await running,)
            running = asyncio.create_task(function(item))
            if result is not None:
                yield result[0]
        if running is not None:
            yield await running
    finally:
        if running is not None:
            await cancel_all([running])
