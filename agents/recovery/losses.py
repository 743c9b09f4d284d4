"""Losses of a ledger recovery: releases that only `hats.budget` counts, and unsent records, discarded or kept."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from hatcast.agents.monitoring.declarations import RELEASES_LACKING
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import OutputBatch, OutputReader
from hatcast.agents.recovery.published_records import Contents
from hatcast.agents.recovery.starts import Start
from hatcast.agents.redis.recovery import RecoveryStore, UnsentStore
from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import OutputPartition, Published
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
    """Looks for releases that `hats.budget` counts and neither Redis nor the output topics have.

    A budget record counts the charged commits of its policy and date, also those of other release partitions that had
    not been sent yet: after a crash some may be lacking, nobody has seen them, and they are drawn again. But if a topic
    lost records, they may have been published, and a second value would be drawn. A recovery then refuses, before it
    adopts anything: so the next one looks again.
    """

    def __init__(self, store: RecoveryStore, reader: OutputReader, decode: Decode) -> None:
        """Args: `decode`, decodes a batch of an output topic."""
        self._store = store
        self._reader = reader
        self._decode = decode

    async def check(self, domain: Domain, lost: tuple[str, str], starts: Mapping[OutputPartition, Start]) -> None:
        """Raise HatcastError if releases are lacking. Call before the adoption.

        lost   a topic that lost records, and what shows it
        """
        lacking = await self._lacking(domain, *await asyncio.to_thread(self._read, domain, starts))
        if lacking:
            (name, date), number = min(lacking.items())
            raise HatcastError(
                f"topic {' '.join(lost)}, and {number} releases of policy {name!r} on {date} that"
                f" {' and '.join(sorted(domain.budgets))} count are neither there nor in Redis: {_FIX}"
            )

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
        self, domain: Domain, starts: Mapping[OutputPartition, Start]
    ) -> tuple[dict[Day, int], dict[Day, set[str]]]:
        """Return the counts of the newest budget records, and the ids of the charged releases on the topics."""
        first = {each: start.unsealed for each, start in starts.items()}
        budgets: dict[Day, tuple[int, int]] = {}
        sent: dict[Day, set[str]] = {}
        for batch in self._reader.read(first, {each: start.end for each, start in starts.items()}):
            contents = self._decode(domain, batch)
            for day, budget in contents.budgets.items():
                budgets[day] = max(budgets.get(day, (0, 0)), (budget.seq, budget.releases))
            for _, release in contents.releases:
                if release.charge:
                    sent.setdefault((release.name, release.date), set()).add(release.release_id)
        return {day: releases for day, (_, releases) in budgets.items()}, sent


@dataclass(frozen=True, slots=True)
class Discarded:
    """Unsent records that are discarded."""

    number: int  # how many
    nonces: Nonces  # of the dates and of the total, after the last one


class Unsent:
    """Discards or keeps unsent records. Several workers may do it at the same time: the second one finds nothing."""

    def __init__(self, policy: Policy, store: UnsentStore) -> None:
        self._policy_id = policy.policy_id
        self._fineness: Fineness = fineness_of(policy)
        self._store = store

    async def keep(self, domain: Domain, attempt: Attempt) -> Attempt:
        """Keep all unsent records and all reservations of the domain: a topic that lost records may have had them.

        Return the attempt, which from then on requires that they are kept. Call before the adoption. Raises
        RecoveryEnded if the attempt is over.
        """
        number = 0
        while True:
            nonces = await self._store.nonces()
            days = _days(domain, nonces)
            for day in _open(domain, days):
                ids = await self._store.ids(*day)
                await self._store.keep(attempt, *day, ids)
                number += len(ids)
            await self._store.keep_reserved(attempt, days)  # of sealed days too: see `discard`
            if await self._store.nonces() == nonces:  # nothing was left to keep
                break
        await self._store.end_keeping(attempt, nonces)
        if number:
            log.warning("kept what a topic that lost records may have had", releases=number)
        return replace(attempt, is_kept=True)

    async def discard(self, domain: Domain, attempt: Attempt) -> Discarded:
        """Discard all unsent records of the domain, after all sent ones are adopted.

        Raises RecoveryEnded if the attempt is over.
        """
        number, unreadable = 0, set[Day]()
        while True:
            before, nonces = number, await self._store.nonces()
            for day in _open(domain, _days(domain, nonces)):
                async for record in self._records(day, unreadable):
                    await self._store.discard(attempt, record)
                    number += 1
            # Sealed days too: an answer to a query over days charges each day of its period.
            await self._store.unreserve(attempt, _days(domain, nonces))
            # Otherwise look again: as long as these nonces stay, nothing unsent is there.
            if number == before and await self._store.nonces() == nonces:
                return Discarded(number, nonces)

    async def _records(self, day: Day, unreadable: set[Day]) -> AsyncIterator[Published]:
        """Yield the unsent records of a policy and date; `unreadable` has the days that were logged."""
        for record in (await self._store.records(*day)).values():
            try:
                yield published_of(record, self._policy_id, self._fineness)
            except UNREADABLE:  # of another version of hatcast
                if day not in unreadable:
                    name, date = day
                    log.warning("unreadable record in the ledger: it keeps its charge", policy=name, date=date)
                unreadable.add(day)


def _days(domain: Domain, nonces: Nonces) -> list[Day]:
    return [(name, date) for date in nonces if date != rows.TOTAL for name in domain.partitions]


def _open(domain: Domain, days: Iterable[Day]) -> list[Day]:
    return [day for day in days if not domain.is_sealed(*day)]
