"""Slot progress of a policy under `add_remove`, in Redis: hatcast.stream.ledger.progress."""

from collections.abc import Iterable

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.row_store import RowStore
from hatcast.stream.ledger import progress, rows
from hatcast.stream.ledger.progress import Mark, Progress
from hatcast.stream.ledger.recovery import RECOVERED_ROWS
from hatcast.stream.ledger.view import Wanted, merged


class ProgressStore:
    """Slot progress of one policy. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._rows = RowStore(redis, domain)
        self._name = name
        self._wanted: Wanted = {rows.progress(name): None}

    async def read(self) -> Progress:
        """Return the stored progress."""
        return await self._rows.look(self._wanted, lambda view: progress.progress_of(view, self._name))

    async def start(self, first_ms: int) -> int:
        """Store the first slot unless one is stored; return the stored one."""
        return await self._rows.decide(self._wanted, lambda view: progress.start(view, self._name, first_ms))

    async def restore(self, first_ms: int, done_ms: int = 0, release_partitions: Iterable[int] = ()) -> None:
        """Restore lost progress: the first slot, and that all slots that end by `done_ms` are published."""
        own = list(release_partitions)
        await self._rows.decide(self._wanted, lambda view: progress.restore(view, self._name, first_ms, done_ms, own))

    async def advance(self, mark: Mark, release_partitions: Iterable[int], end_ms: int, token: str) -> Progress:
        """Raise a mark to the end of a slot; return the progress after that.

        Raises Unrecovered, and writes nothing, if the ledger is not recovered under this token.
        """
        own = list(release_partitions)
        await self._rows.decide(
            merged(self._wanted, RECOVERED_ROWS),
            lambda view: progress.advance(view, self._name, mark, own, end_ms, token),
        )
        return await self.read()
