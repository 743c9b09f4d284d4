"""Contributions of HATs in Redis, of telemetry and of device reports, and the local dates that have opened in them."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import HatChunks


class HatStore:
    """The fold states of one policy, combined: of telemetry, and of devices' reports if the policy uses reports.

    Each topic has its own state, offsets and watermarks. A HAT is final once the watermarks of all partitions of both
    topics are past its end plus lateness.
    """

    def __init__(self, telemetry: PartitionStore, reports: PartitionStore | None = None) -> None:
        self.partitions = telemetry.partitions  # number of partitions of either topic, and of release partitions
        self.telemetry = telemetry  # state of the telemetry partitions
        # state of the report partitions, under a name that no policy can have; None if the policy uses none
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
        """Return the time (ms UTC) before which a partition of either topic lacks records; None if none does."""
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
        readings = await self.telemetry.final_hats.load(hats)
        if readings is None:
            return None
        if self.reports is None:
            return [HatChunks(chunks) for chunks in readings]
        reports = await self.reports.final_hats.load(hats)
        return None if reports is None else list(map(HatChunks, readings, reports))

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs. `keep`: as in FinalHats, for readings only."""
        await self.telemetry.final_hats.delete(hats, keep=keep)
        if self.reports is not None:
            await self.reports.final_hats.delete(hats)

    async def sweep(self, date: str, users_from: str) -> None:
        """Delete the contributions from a local date on, of both topics. `users_from`: as in FinalHats."""
        for store in self._stores:
            await store.final_hats.sweep(date, users_from)


class OpenDates:
    """Compares the rules of a policy's open dates with those of this process.    [docs/proofs.md, Local dates]

    A worker whose time zone data are older or newer may have other rules for a date: other instants at which it begins
    and ends, and other slots. Then a reading would be in two HATs, of one date or of two. So workers of a policy fold a
    date, and those of a domain release it, under the same rules.

    A date is open from the checkpoint that stores its first HAT, in any partition, until it is sealed. A date that has
    not opened may change its rules. Before anything of a date is released its rules are pinned for all policies of the
    domain: hatcast.stream.ledger.date_rules.
    """

    def __init__(self, store: HatStore, ledger: LedgerStore, calendar: Calendar) -> None:
        self._store = store
        self._ledger = ledger
        self._calendar = calendar

    async def check(self) -> None:
        """Raise HatcastError if an open date has other rules in a partition than here."""
        registered = await self._store.rules()
        sealed = await self._ledger.sealed_through() if registered else ""
        self._calendar.check_rules(rule for rule in registered if rule[0] > sealed)

    async def open(self, rules: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of a partition's rules that are to be stored with its state, now that a date opens in it.

        Call it before the checkpoint. Raises HatcastError, as `check`, also if another worker is opening a date under
        other rules.
        """
        sealed = await self._ledger.sealed_through()
        unsealed = {date: own for date, own in rules.items() if date > sealed}
        claimed = [(date, await self._store.telemetry.claim(date, own)) for date, own in unsealed.items()]
        self._calendar.check_rules(claimed)
        await self.check()
        await self._ledger.check_rules(unsealed, self._calendar)
        return unsealed

    async def pin(self, date: str) -> None:
        """Pin the rules of a date of which something is about to be drawn. Raises HatcastError, as `check`."""
        await self._ledger.pin_rules(date, self._calendar)
