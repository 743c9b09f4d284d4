"""Slot progress of a policy under `add_remove`: its first slot, and the last slot committed and published.

Progress is by slot and not by HAT, so that a release round costs only the new slots. It does not replace the ledger: a
record and a charge are looked up before anything is drawn.    [decisions/0007]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.agents.redis.stored_values import parsing
from hatcast.stream.ledger.rejections import Unrecovered


class Mark(StrEnum):
    """A step that is done for all HATs of a release partition, in all slots up to the mark."""

    COMMITTED = "committed"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Progress:
    """A policy's progress. Times are ms UTC.

    first_ms   start of the policy's first slot; None if Redis has lost it, or no worker was ever started
    marks      (mark, release partition) -> end of the last slot done
    """

    first_ms: int | None
    marks: Mapping[tuple[Mark, int], int]

    def through(self, mark: Mark, release_partitions: Iterable[int]) -> int:
        """Return the end of the last slot that all of these partitions have done; 0 for none."""
        return min((self.marks.get((mark, partition), 0) for partition in release_partitions), default=0)


class ProgressStore:
    """Slot progress of one policy. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        keys = DomainKeys(domain)
        self._key = keys.progress(name)
        self._recovery = keys.recovery
        self._advance = Script(redis, "advance_progress")
        self._restore = Script(redis, "restore_progress")

    async def read(self) -> Progress:
        """Return the stored progress."""
        first = None
        marks = {}
        stored: Any = await self._redis.hgetall(self._key)  # bytes, but the types allow for text
        with parsing(self._key):
            for field, value in stored.items():
                kind, _, partition = field.decode().partition(":")
                if partition:
                    marks[Mark(kind), int(partition)] = int(value)
                else:
                    first = int(value)
        return Progress(first, marks)

    async def start(self, first_ms: int) -> int:
        """Store the first slot unless one is stored; return the stored one."""
        await self._redis.hsetnx(self._key, "first", str(first_ms))
        stored = await self._redis.hget(self._key, "first")
        with parsing(self._key):
            return int(stored or first_ms)

    async def restore(self, first_ms: int, done_ms: int = 0, release_partitions: Iterable[int] = ()) -> None:
        """Restore lost progress: the first slot, and that all slots that end by `done_ms` are published."""
        marks = [(f"{mark}:{r}", str(done_ms)) for mark in Mark for r in release_partitions]
        await self._restore(keys=[self._key], args=[str(first_ms), *(part for each in marks for part in each)])

    async def advance(self, mark: Mark, release_partitions: Iterable[int], end_ms: int, token: str) -> Progress:
        """Raise a mark to the end of a slot; return the progress after that.

        Raises Unrecovered, and writes nothing, if the ledger is not recovered under this token.
        """
        marks = [(f"{mark}:{partition}", str(end_ms)) for partition in release_partitions]
        answer = await self._advance(
            keys=[self._key, self._recovery], args=[token, *(part for each in marks for part in each)]
        )
        if answer == b"unrecovered":
            raise Unrecovered
        return await self.read()
