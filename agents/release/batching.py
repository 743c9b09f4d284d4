"""Cut due work into batches, which are committed together, and records into transactions, which are sent together."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Final, TypeVar

from hatcast.agents.clock import cancel_all
from hatcast.agents.release.kind import Due

MAX_BATCH: Final = 500  # releases committed together; a transaction has at most so many, of one release partition
MAX_TOGETHER: Final = 4  # batches that are published together
_CONCURRENT_SENDS: Final = 16  # transactions at once: a worker may own hundreds of release partitions

D = TypeVar("D", bound=Due)
T = TypeVar("T")
R = TypeVar("R")


def batches_of(due: Iterable[D]) -> Iterator[list[D]]:
    """Cut into batches, in order: of one date, with at most MAX_BATCH items and `max_users` users.

    An item with more users is a batch of its own. Not cut by bytes: their number depends on speeds.
    """
    batch: list[D] = []
    users = 0
    for item in due:
        full = len(batch) >= MAX_BATCH or users + item.users > item.max_users
        if batch and (full or item.date != batch[0].date):
            yield batch
            batch, users = [], 0
        batch.append(item)
        users += item.users
    if batch:
        yield batch


def groups_of(due: Iterable[D]) -> Iterator[list[list[D]]]:
    """Cut into groups of 1, 2, 4, 4, ... batches of one date, in order: the records of a group are published together.

    The first releases do not wait for others, and many releases need few transactions. Not cut by time: how long an
    estimate takes may depend on speeds.
    """
    most = 1
    for _, batches in groupby(batches_of(due), lambda batch: batch[0].date):
        while group := list(islice(batches, most)):
            yield group
            most = min(2 * most, MAX_TOGETHER)


def sends_of(records: Mapping[int, Sequence[T]]) -> Iterator[dict[int, Sequence[T]]]:
    """Cut the records of each release partition into transactions; yield those that are sent at once.

    Of one release partition they are in order, one after the other.
    """
    partitions = sorted(records)
    for first in range(0, len(partitions), _CONCURRENT_SENDS):
        some = partitions[first : first + _CONCURRENT_SENDS]
        for start in range(0, max(len(records[r]) for r in some), MAX_BATCH):
            cut = {r: records[r][start : start + MAX_BATCH] for r in some}
            yield {r: part for r, part in cut.items() if part}


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
