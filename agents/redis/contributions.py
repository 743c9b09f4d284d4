"""What releases read and delete: the contributions of telemetry, and devices' reports where the policy takes them.

Each topic has a state of its own, with its own offsets and clocks. A HAT is final once the clocks of all partitions of
both are past its close.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Self

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.partition_state import FinalHat, PartitionStore
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import HatChunks


class HatStore:
    """The states of one policy, together. Errors of redis-py pass through.

    telemetry    the state of its partitions
    reports      the same of reports, under a name that no policy has; None: the policy takes none
    partitions   of either, and of releases
    """

    def __init__(self, telemetry: PartitionStore, reports: PartitionStore | None = None) -> None:
        self.partitions = telemetry.partitions
        self.telemetry = telemetry
        self.reports = reports
        self._all = [telemetry] if reports is None else [telemetry, reports]

    @classmethod
    def of(cls, redis: AnyRedis, policy: Policy, partitions: int) -> Self:
        """What the policy's workers keep."""
        reports = PartitionStore(redis, f"{policy.name}/reports", partitions, "reports")
        return cls(PartitionStore(redis, policy.name, partitions), reports if policy.takes_reports else None)

    async def clocks(self) -> list[int | None]:
        """Every partition's stored clock (ms UTC), of both topics."""
        return [clock for clocks in await asyncio.gather(*(store.clocks() for store in self._all)) for clock in clocks]

    async def complete_from(self) -> int | None:
        """See PartitionStore; the later one: a HAT without some of its reports is incomplete too."""
        found = await asyncio.gather(*(store.complete_from() for store in self._all))
        return max((instant for instant in found if instant is not None), default=None)

    async def open_slots(self) -> dict[str, int]:
        """`date/slot` -> end (ms UTC) of every slot with contributions or reports."""
        found: dict[str, int] = {}
        for slots in await asyncio.gather(*(store.open_slots() for store in self._all)):
            found |= slots
        return found

    async def cells(self, slot: str) -> dict[str, int]:
        """The cells with contributions or reports in a slot, and how many users and devices are in each."""
        users: Counter[str] = Counter()
        for cells in await asyncio.gather(*(store.cells(slot) for store in self._all)):
            users.update(cells)
        return dict(users)

    async def load(self, hats: Sequence[FinalHat]) -> list[HatChunks] | None:
        """What is known of each HAT; None if a partition's clock is missing or too small."""
        readings = await self.telemetry.load(hats)
        if readings is None:
            return None
        if self.reports is None:
            return [HatChunks(chunks) for chunks in readings]
        reports = await self.reports.load(hats)
        return None if reports is None else list(map(HatChunks, readings, reports))

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete what is known of published HATs. `keep`: see PartitionStore; of readings only."""
        await self.telemetry.delete(hats, keep=keep)
        if self.reports is not None:
            await self.reports.delete(hats)

    async def sweep(self, date: str) -> None:
        """See PartitionStore."""
        for store in self._all:
            await store.sweep(date)
