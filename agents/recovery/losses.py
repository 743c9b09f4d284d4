"""Losses of a ledger recovery: releases that only `hats.budget` counts, and unsent records, which it discards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from hatcast.agents.monitoring.declarations import RELEASES_LACKING
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery.domain import Domain, offset_of
from hatcast.agents.recovery.outputs import OutputBatch, OutputReader
from hatcast.agents.recovery.published_records import Contents
from hatcast.agents.redis.recovery import RecoveryStore, UnsentStore
from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import OutputPartition, Position, Published
from hatcast.stream.ledger.recovery import Attempt, Nonces
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import Fineness, fineness_of

log = structlog.get_logger()

Decode = Callable[[Domain, OutputBatch], Contents]
Day = tuple[str, str]  # policy name, local date

_FIX: Final = (
    "they would be drawn again, so nothing is released; restore the topic with its records, or start with another"
    " telemetry topic, and count what these dates cost as spent"
)


class LostReleases:
    """Looks, at each recovery, for releases that `hats.budget` counts and neither Redis nor the output topics have.

    A budget record counts the charged commits of its policy and date, also those of other release partitions that had
    not been sent yet: after a crash some may be lacking, nobody has seen them, and they are drawn again. But if
    something shows that a topic lost records, these may be releases that were published, and a second value would be
    drawn. A recovery then refuses, before it adopts anything: so the next one finds what this one found.
    """

    def __init__(self, store: RecoveryStore, reader: OutputReader, decode: Decode) -> None:
        """Args: `decode`, decodes a batch of an output topic."""
        self._store = store
        self._reader = reader
        self._decode = decode

    async def check(self, domain: Domain, ends: Mapping[OutputPartition, Position]) -> None:
        """Raise HatcastError if a topic has lost records, and releases are lacking. Call before the adoption."""
        partitions = [partition for partition in ends if partition.topic in domain.releases]
        adopted = await self._store.adopted()
        ranges = await asyncio.to_thread(self._reader.ranges, partitions)
        for partition in partitions:
            known = [
                position for position in (adopted.get(partition), domain.read_from(partition)) if position is not None
            ]
            if (shown := _shown(known, ends[partition].topic_id, *ranges[partition])) is None:
                continue
            lacking = await self._lacking(domain, *await asyncio.to_thread(self._read, domain, ends))
            if lacking:
                (name, date), number = min(lacking.items())
                raise HatcastError(
                    f"topic {partition.topic} {shown}, and {number} releases of policy {name!r} on {date} that"
                    f" {' and '.join(sorted(domain.budgets))} count are neither there nor in Redis: {_FIX}"
                )
            return

    async def warn(self, domain: Domain, budgets: Mapping[Day, int]) -> None:
        """Log and count the releases that are lacking after an adoption.

        budgets   policy name and date -> number of charged releases in the newest budget record
        """
        for (name, date), number in sorted((await self._lacking(domain, budgets, {})).items()):
            METERS.count(RELEASES_LACKING, number)
            log.warning(
                "hats.budget counts more releases than were recovered: commits that were never sent, or lost records",
                policy=name,
                date=date,
                releases=number,
            )

    async def _lacking(
        self, domain: Domain, budgets: Mapping[Day, int], sent: Mapping[Day, Iterable[str]]
    ) -> dict[Day, int]:
        """Return how many releases of each open date are neither in Redis nor `sent` (ids on the topics)."""
        found = {}
        for (name, date), number in budgets.items():
            if domain.is_sealed(name, date):
                continue
            charged, ids = await self._store.charged(name, date)
            lacking = number - charged - len(set(sent.get((name, date), ())) - ids)
            if lacking > 0:
                found[name, date] = lacking
        return found

    def _read(
        self, domain: Domain, ends: Mapping[OutputPartition, Position]
    ) -> tuple[dict[Day, int], dict[Day, set[str]]]:
        """Return the counts of the newest budget records, and the ids of the charged releases on the topics."""
        starts = {partition: offset_of(domain.read_from(partition), end) for partition, end in ends.items()}
        budgets: dict[Day, tuple[int, int]] = {}
        sent: dict[Day, set[str]] = {}
        for batch in self._reader.read(starts, {partition: end.offset for partition, end in ends.items()}):
            contents = self._decode(domain, batch)
            for day, budget in contents.budgets.items():
                budgets[day] = max(budgets.get(day, (0, 0)), (budget.seq, budget.releases))
            for _, release in contents.releases:
                if release.charge:
                    sent.setdefault((release.name, release.date), set()).add(release.release_id)
        return {day: releases for day, (_, releases) in budgets.items()}, sent


def _shown(known: Iterable[Position], topic_id: str, start: int, end: int) -> str | None:
    """Return what shows that a partition lost records which were not read; None if nothing does.

    known        positions up to which records were read: the adopted one, and where unsealed days begin
    start, end   of the log as it is now: others that share the topic, and this recovery, may be past its stored ends
    """
    known = list(known)
    if any(position.topic_id and topic_id and position.topic_id != topic_id for position in known):
        return "was deleted and created again"
    read_to = max((position.offset for position in known), default=0)
    if end < read_to:
        return f"ends at offset {end}, though it was read up to {read_to}"
    if start > read_to:
        return f"begins at offset {start}, though it was read up to {read_to} only"
    return None


@dataclass(frozen=True, slots=True)
class Discarded:
    """Unsent records that are discarded."""

    number: int  # how many
    nonces: Nonces  # of the dates and of the total, after the last one


class Unsent:
    """Discards unsent records. Several workers may do it at the same time: the second one finds nothing."""

    def __init__(self, policy: Policy, store: UnsentStore) -> None:
        self._policy_id = policy.policy_id
        self._fineness: Fineness = fineness_of(policy)
        self._store = store

    async def discard(self, domain: Domain, attempt: Attempt) -> Discarded:
        """Discard all unsent records of the domain, after all sent ones are adopted.

        Raises RecoveryEnded if the attempt is over.
        """
        number, unreadable = 0, set[tuple[str, str]]()
        while True:
            before, nonces = number, await self._store.nonces()
            days = [(name, date) for date in nonces if date != rows.TOTAL for name in domain.partitions]
            for day in (day for day in days if not domain.is_sealed(*day)):
                async for record in self._records(day, unreadable):
                    await self._store.discard(attempt, record)
                    number += 1
            # Sealed days too: an answer to a query over days charges each day of its period.
            await self._store.unreserve(attempt, days)
            # Otherwise look again: as long as these nonces stay, nothing unsent is there.
            if number == before and await self._store.nonces() == nonces:
                return Discarded(number, nonces)

    async def _records(self, day: tuple[str, str], unreadable: set[tuple[str, str]]) -> AsyncIterator[Published]:
        """Yield the unsent records of a policy and date; `unreadable` has the days that were logged."""
        for record in (await self._store.records(*day)).values():
            try:
                yield published_of(record, self._policy_id, self._fineness)
            except UNREADABLE:  # of another version of hatcast
                if day not in unreadable:
                    name, date = day
                    log.warning("unreadable record in the ledger: it keeps its charge", policy=name, date=date)
                unreadable.add(day)
