"""Release by partition owners: what is final becomes one record, is charged, published, marked, deleted.    [design 4]

Each HAT belongs to the worker that owns partition murmur2(release_id) mod partitions. The steps have names, and a
crash between any two of them is made good by whoever runs them next:

    loaded     its contributions, from partitions whose clocks are past its close
    drawn      the estimate, with noise; seen by nobody yet
    committed  record + charge in Redis, in one step; a record that is there already wins, and the draw is discarded
    sent       the record's bytes, as they stand in Redis, inside a transaction
    acked      the transaction is committed by all replicas
    marked     Redis knows that it is published
    deleted    the contributions are gone
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from agents.budget import budget_message
from agents.clock import now_ms, pause
from agents.publisher import Message, NotHeld
from agents.recovery import Prover
from agents.settings import Settings
from agents.store.ledger import Committed, LedgerStore, Proposal, Unproven
from agents.store.partition import FinalHat, PartitionStore
from stream.clock import slowest
from stream.composition import composed
from stream.hats import Calendar
from stream.mechanisms import Noise
from stream.partitioner import by_murmur2
from stream.release import Release, incomplete_of, release_id, release_of

log = structlog.get_logger()

ROUND_S: Final = 0.5  # between looks at the clocks
_HATS: Final = 500  # released together; a transaction carries those of one release partition
_USERS: Final = 200_000  # of one load: bounds memory; a larger HAT is loaded alone


@dataclass(frozen=True, slots=True)
class Due:
    """A final HAT of ours, and how many users it has."""

    hat: FinalHat
    release_id: str
    users: int


class Releaser:
    """The release loop of one worker. `owned` tells which release partitions are ours right now."""

    def __init__(
        self,
        settings: Settings,
        store: PartitionStore,
        ledger: LedgerStore,
        prover: Prover,
        noise: Noise,
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._store = store
        self._ledger = ledger
        self._prover = prover
        self._publishers = prover.publishers
        self._noise = noise
        self.owned: Callable[[], frozenset[int]] = frozenset

    async def prepare(self) -> None:
        """Load what the first release would hold up the event loop for: dp-accounting takes a second or two."""
        await asyncio.to_thread(composed, {self._policy.epsilon_nano: 1}, self._policy.delta)

    async def run(self, stopping: asyncio.Event) -> None:
        """Release what becomes final, until `stopping` is set. A failed round is tried again: Redis has all of it."""
        while await pause(ROUND_S, stopping):
            try:
                await self.round(stopping)
            except (RedisError, KafkaError, NotHeld, Unproven) as error:
                log.warning("release round failed", error=type(error).__name__)

    async def round(self, stopping: asyncio.Event) -> int:
        """Release every final HAT of ours once; returns how many were deleted."""
        owned = self.owned()
        await self._publishers.keep(owned)
        await self._publishers.hold(owned)  # before anything is read: see Publishers.publish
        if not await self._prover.ensure():
            return 0
        done = 0
        for date, batch in self._batches(await self.due(owned)):
            if stopping.is_set():
                break
            done += await self._release(date, batch)
        if done:
            log.info("released", hats=done)
        return done

    async def due(self, owned: frozenset[int]) -> list[Due]:
        """Our final HATs, by slot, then cell: the order in which a tight budget serves them."""
        least = slowest(await self._store.clocks())
        if least is None or not owned:
            return []
        found = []
        for key, end in sorted((await self._store.open_slots()).items(), key=lambda item: (item[1], item[0])):
            closes = end + self._policy.lateness_ms
            if least < closes:
                continue
            for cell, users in sorted((await self._store.cells(key)).items()):
                name = release_id(self._policy, key, cell)
                if self._release_partition(name) in owned:
                    found.append(Due(FinalHat(key, cell, closes), name, users))
        return found

    def _release_partition(self, name: str) -> int:
        return by_murmur2(name.encode(), self._store.partitions)

    def _batches(self, due: Sequence[Due]) -> Iterator[tuple[str, list[Due]]]:
        """In order, cut at dates, at `_HATS` and at `_USERS`."""
        batch: list[Due] = []
        users = 0
        for one in due:
            full = len(batch) >= _HATS or users + one.users > _USERS
            if batch and (full or _date(one) != _date(batch[0])):
                yield _date(batch[0]), batch
                batch, users = [], 0
            batch.append(one)
            users += one.users
        if batch:
            yield _date(batch[0]), batch

    async def _release(self, date: str, due: Sequence[Due]) -> int:
        """The steps, for HATs of one date."""
        records = dict(zip(due, await self._ledger.find(date, [one.release_id for one in due]), strict=True))
        absent = [one for one, record in records.items() if record is None]
        if absent:
            loaded = await self.load(absent)
            if loaded is None:
                return 0  # a clock went back: its partition is being folded again
            # Asked after the load: what was complete then may be called incomplete, but not the other way.
            proposals = await self.draw(absent, loaded, await self._store.complete_from())
            records.update(zip(absent, await self.commit(proposals), strict=True))
        by_producer: dict[int, list[tuple[Due, Committed]]] = {}
        for one, record in records.items():
            if record is not None and not record.published:
                by_producer.setdefault(self._release_partition(one.release_id), []).append((one, record))
        for release_partition, waiting in by_producer.items():
            await self.send(release_partition, date, waiting)
            await self.mark(date, [one for one, _ in waiting])
        await self.delete(due)
        return len(due)

    # The named steps. Tests wrap them from their own entry point.

    async def load(self, due: Sequence[Due]) -> list[list[bytes]] | None:
        """loaded: each HAT's chunks; None if a partition's clock is missing or too small."""
        return await self._store.load([one.hat for one in due])

    async def draw(
        self, due: Sequence[Due], loaded: Sequence[Sequence[bytes]], complete_from: int | None
    ) -> list[Proposal]:
        """drawn: each HAT's estimate with its noise, in a thread: a large one takes a second of computing.

        Days that begin before `complete_from` (ms UTC) have lost records: their HATs are incomplete.
        """
        if complete_from is not None and self._calendar.days_start(_date(due[0])) < complete_from:
            lost = (incomplete_of(self._policy, self._calendar, one.hat.slot, one.hat.cell) for one in due)
            return [_proposal(release, now_ms()) for release in lost]
        return await asyncio.to_thread(self._draw, due, loaded)

    def _draw(self, due: Sequence[Due], loaded: Sequence[Sequence[bytes]]) -> list[Proposal]:
        releases = (
            release_of(self._policy, self._calendar, one.hat.slot, one.hat.cell, chunks, self._noise)
            for one, chunks in zip(due, loaded, strict=True)
        )
        return [_proposal(release, now_ms()) for release in releases]

    async def commit(self, proposals: Sequence[Proposal]) -> list[Committed]:
        """committed: record and charge, in one step each; what was there already wins."""
        return await self._ledger.commit(proposals, self._prover.token)

    async def send(self, release_partition: int, date: str, waiting: Sequence[tuple[Due, Committed]]) -> None:
        """sent and acked: the bytes in Redis, and the day's budget, in one transaction."""
        topics = self._settings.topics
        messages = [
            Message(
                topic=topics.means,
                partition=by_murmur2(one.hat.cell.encode(), self._store.partitions),
                key=one.release_id.encode(),
                value=record.record,
                headers=_headers(one.release_id, topics.telemetry),
            )
            for one, record in waiting
        ]
        summary = await self._ledger.summary(date)
        # In a thread: composing a new number of charges takes up to a second of computing.
        messages.append(await asyncio.to_thread(budget_message, topics.budget, self._policy, date, summary))
        await self._publishers.publish(release_partition, messages)

    async def mark(self, date: str, due: Sequence[Due]) -> None:
        """marked: Kafka has them."""
        await self._ledger.mark(date, [one.release_id for one in due])

    async def delete(self, due: Sequence[Due]) -> None:
        """deleted: their contributions."""
        await self._store.delete([one.hat for one in due])


def _date(due: Due) -> str:
    return due.hat.slot.partition("/")[0]


def _proposal(release: Release, released_at_ms: int) -> Proposal:
    return Proposal(
        release_id=release.release_id,
        date=release.date,
        place=release.place,
        charge=release.charge,
        record=release.record(released_at_ms),
        exhausted=release.exhausted().record(released_at_ms),
        fineness=release.fineness,
    )


def _headers(name: str, domain: str) -> list[tuple[str, bytes]]:
    """CloudEvents 1.0, Kafka binding, binary mode."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", name.encode()),
        ("ce_source", f"hatcast/{domain}".encode()),
        ("ce_type", b"hatcast.release.v1"),
        ("content-type", b"application/json"),
    ]
