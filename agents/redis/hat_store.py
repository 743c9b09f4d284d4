"""Contributions of HATs in Redis: those of telemetry, and of devices' reports if the policy uses reports.

Each topic has its own state, offsets and watermarks. A HAT is final once the watermarks of all partitions of both
topics are past its end plus lateness.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Self

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import HatChunks


class HatStore:
    """The fold states of one policy, combined. Errors of redis-py pass through.

    telemetry    state of the telemetry partitions
    reports      state of the report partitions, under a name that no policy can have; None if the policy uses none
    partitions   number of partitions of either topic, and of release partitions
    """

    def __init__(self, telemetry: PartitionStore, reports: PartitionStore | None = None) -> None:
        self.partitions = telemetry.partitions
        self.telemetry = telemetry
        self.reports = reports
        self._stores = [telemetry] if reports is None else [telemetry, reports]

    @classmethod
    def of(cls, redis: AnyRedis, policy: Policy, partitions: int) -> Self:
        """Return the store of a policy."""
        reports = PartitionStore(redis, f"{policy.name}/reports", partitions, "reports")
        return cls(PartitionStore(redis, policy.name, partitions), reports if policy.takes_reports else None)

    async def watermarks(self) -> list[int | None]:
        """Return every partition's stored watermark (ms UTC), of both topics."""
        found = await asyncio.gather(*(store.watermarks() for store in self._stores))
        return [watermark for watermarks in found for watermark in watermarks]

    async def complete_from(self) -> int | None:
        """Return the later time of both topics, as in PartitionStore: a HAT that lacks reports is incomplete too."""
        found = await asyncio.gather(*(store.complete_from() for store in self._stores))
        return max((instant for instant in found if instant is not None), default=None)

    async def open_slots(self) -> dict[str, int]:
        """Return `date/slot` -> end (ms UTC) of every slot with contributions or reports."""
        found: dict[str, int] = {}
        for slots in await asyncio.gather(*(store.open_slots() for store in self._stores)):
            found |= slots
        return found

    async def rules(self) -> set[tuple[str, str]]:
        """Return each local date that has opened in a partition of either topic, with its rules there."""
        return set().union(*await asyncio.gather(*(store.rules() for store in self._stores)))

    async def cells(self, slot: str) -> dict[str, int]:
        """Return cell -> number of users and devices, of the cells with contributions or reports in a slot."""
        users: Counter[str] = Counter()
        for cells in await asyncio.gather(*(store.cells(slot) for store in self._stores)):
            users.update(cells)
        return dict(users)

    async def load(self, hats: Sequence[FinalHat]) -> list[HatChunks] | None:
        """Return the contributions of each HAT; None if a partition's watermark is missing or too small."""
        readings = await self.telemetry.load(hats)
        if readings is None:
            return None
        if self.reports is None:
            return [HatChunks(chunks) for chunks in readings]
        reports = await self.reports.load(hats)
        return None if reports is None else list(map(HatChunks, readings, reports))

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs. `keep`: as in PartitionStore, for readings only."""
        await self.telemetry.delete(hats, keep=keep)
        if self.reports is not None:
            await self.reports.delete(hats)

    async def sweep(self, date: str, users_from: str) -> None:
        """Delete the contributions from a local date on, of both topics. `users_from`: as in PartitionStore."""
        for store in self._stores:
            await store.sweep(date, users_from)
