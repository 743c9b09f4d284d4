"""Release final HATs: commit each record with its charge, publish it, mark it, delete the contributions.

Each HAT belongs to the worker that owns partition murmur2(release_id) mod partitions. The steps are named; after a
crash between two of them the next owner finishes the rest [docs/specification/release.md, Steps]:

    loaded     its contributions, from partitions whose watermarks are past its close
    drawn      the estimate with noise, which has not left the process
    committed  record and charge in Redis, in one step; a stored record wins, and the draw is discarded
    sent       the record's bytes, as stored in Redis, inside a transaction
    acked      the transaction is committed by all replicas
    marked     Redis stores that it is published
    deleted    the contributions are gone
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import release_event
from hatcast.agents.kafka.producers import Message, ProducerGone
from hatcast.agents.monitoring.declarations import COMMIT_SECONDS
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.errors import Behind, DaySealed, Replaced, Unclaimed, Unrecovered
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.partition_state import FinalHat
from hatcast.agents.redis.proposals import Committed, Proposal
from hatcast.agents.release.batches import MAX_HATS, DueRelease, batches_of, proposal_of, publish_by_partition
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.counters import ClosingDelays, count_published
from hatcast.agents.release.queries import QueryReleaser
from hatcast.agents.release.query_inputs import NEVER
from hatcast.stream.accounting.composition import composed_epsilon
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.mechanisms import Noise
from hatcast.stream.queries import is_queried
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.hats import HatChunks, Release, exhausted_of, incomplete_of, release_id, release_of

log = structlog.get_logger()

ROUND_S: Final = 0.5  # between rounds


@dataclass(frozen=True, slots=True)
class ReleaserOptions:
    """Parts of a worker that its release loop calls.

    owned     returns the release partitions that the worker owns now
    queries   answers queries over days; None: the policy has none
    seal      seals finished days after a round; None: no day is sealed
    """

    owned: Callable[[], frozenset[int]]
    queries: QueryReleaser | None = None
    seal: Callable[["Releaser"], Awaitable[None]] | None = None


class Releaser:
    """Release loop of one worker.

    owned, queries, seal   as in ReleaserOptions
    closing_delays         delays until final slots are published
    """

    def __init__(
        self,
        settings: Settings,
        store: HatStore,
        ledger: LedgerStore,
        recovery: LedgerRecovery,
        noise: Noise,
        options: ReleaserOptions,
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._store = store
        self._ledger = ledger
        self._recovery = recovery
        self._publishers = recovery.publishers
        self._noise = noise
        self.owned = options.owned
        self.queries = options.queries
        self.seal = options.seal
        self.closing_delays = ClosingDelays()
        self._failures = FailureLog("release")

    async def prepare(self) -> None:
        """Warm up dp-accounting: its import takes a second or two, and would block the event loop."""
        await asyncio.to_thread(composed_epsilon, {self._policy.epsilon_nano: 1}, self._policy.delta)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run rounds until `stopping` is set. A failed round is repeated from what Redis stores."""
        failures = self._failures
        while await pause(max(ROUND_S, failures.wait_s), stopping):
            try:
                await self.round(stopping)
            except (ProducerGone, Behind):  # in a rebalance or recovery: this worker may take it over again
                log.info("release partition taken over by another worker")
            except (RedisError, KafkaError, Unrecovered, DaySealed, Replaced, Unclaimed) as error:
                failures.failed(error)
            else:
                failures.clear()

    async def round(self, stopping: asyncio.Event) -> int:
        """Release the final HATs of this worker once. Return the number of HATs deleted."""
        owned = self.owned()
        await self._publishers.close_except(owned)
        if owned:
            with self._failures.attempt("take over release partitions"):
                await self._publishers.start_missing(owned)  # before any read: see TransactionalProducers.publish
        with self._failures.attempt("recover the ledger"):
            recovered = await self._recovery.ensure(owned)
        if not recovered:
            self._failures.skip_next_clear()
            return 0
        done = await self._advance(owned, stopping)
        if self.seal is not None:
            await self.seal(self)
        if done:
            log.info("released", hats=done)
        return done

    async def _advance(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Release and answer, after the ledger is recovered. Return the number of HATs deleted."""
        done = 0
        for batch in batches_of(await self.due_releases(owned), MAX_HATS):
            if stopping.is_set():
                break
            if batch[0].date <= self._recovery.sealed_through:
                await self.delete(batch)  # folded again, since their partition went back: all of it is published
                continue
            records = await self.records(batch)
            if records is None:
                self._failures.skip_next_clear()
                continue  # a watermark went back: its partition is being folded again
            await self.publish(records)
            await self.delete(batch)
            done += len(batch)
        if self.queries is not None and not stopping.is_set():
            with self._failures.attempt("answer queries"):
                await self.queries.round(self._store, owned, await self.end_date())
        return done

    async def due_releases(self, owned: frozenset[int]) -> list[DueRelease]:
        """Return the final HATs of these release partitions, by slot, then cell: the order in which budget is spent."""
        with self._failures.attempt("read the watermarks of the partitions"):
            watermark = min_watermark(await self._store.watermarks())
        if watermark is None or not owned:
            return []
        end_date = await self.end_date()
        found = []
        for slot, end in sorted((await self._store.open_slots()).items(), key=lambda item: (item[1], item[0])):
            closes = end + self._policy.lateness_ms
            if watermark < closes or slot >= end_date:
                continue
            self.closing_delays.add([slot])
            for cell, users in sorted((await self._store.cells(slot)).items()):
                due = DueRelease(FinalHat(slot, cell, closes), release_id(self._policy, slot, cell), users)
                if self.release_partition(due) in owned:
                    found.append(due)
        return found

    async def final_slots(self) -> list[str]:
        """Return the slots that are final and not yet published as a whole, of all owners."""
        watermark, end_date = min_watermark(await self._store.watermarks()), await self.end_date()
        closed = -1 if watermark is None else watermark - self._policy.lateness_ms
        open_slots = await self._store.open_slots()
        return [slot for slot, end in open_slots.items() if end <= closed and slot < end_date]

    async def end_date(self) -> str:
        """Return the local date on which the next policy takes over; without one, a date greater than every other."""
        next_policy = await self._ledger.next_policy()
        return NEVER if next_policy is None else next_policy.from_date

    async def is_done(self, end_date: str) -> bool:
        """Return True if everything of this policy before a local date is published."""
        if not await self._is_closed(end_date) or any(slot < end_date for slot in await self._store.open_slots()):
            return False
        return self.queries is None or not await self.queries.has_retained(end_date)

    async def _is_closed(self, end_date: str) -> bool:
        """Return True if no partition accepts readings of days before a local date any more."""
        watermark = min_watermark(await self._store.watermarks())
        return (
            watermark is not None and watermark >= self._calendar.previous_day_end(end_date) + self._policy.lateness_ms
        )

    def release_partition(self, due: DueRelease) -> int:
        """Return the release partition of a HAT."""
        return by_murmur2(due.release_id.encode(), self._store.partitions)

    async def records(self, batch: Sequence[DueRelease]) -> dict[DueRelease, Committed] | None:
        """Return the one record of each HAT of a date; commit those that are missing.

        None, with nothing committed, if a partition's watermark is missing or too small.
        """
        stored = await self._ledger.find(batch[0].date, [due.release_id for due in batch])
        records = {due: record for due, record in zip(batch, stored, strict=True) if record is not None}
        missing = [due for due in batch if due not in records]
        if missing:
            loaded = await self.load(missing)
            if loaded is None:
                return None
            # Read after the load: a HAT that was complete then may be called incomplete, but not the reverse.
            proposals = await self.draw(missing, loaded, await self._store.complete_from())
            records.update(zip(missing, await self.commit(proposals), strict=True))
        return {due: records[due] for due in batch}

    async def publish(self, records: Mapping[DueRelease, Committed]) -> None:
        """Send the unpublished records of a date, in order, by release partition, and mark them.

        Raises ProducerGone if another worker has taken over a release partition, after the others are published.
        """
        await publish_by_partition(records, self.release_partition, MAX_HATS, self._send_and_mark)

    async def _send_and_mark(self, release_partition: int, pending: Sequence[tuple[DueRelease, Committed]]) -> None:
        date = pending[0][0].date
        await self.send(release_partition, date, pending)
        await self.mark(date, [due for due, _ in pending])
        await self._recovery.confirm()
        count_published("hat", [record for _, record in pending])
        self.closing_delays.published(due.hat.slot for due, _ in pending)

    # The named steps. Tests wrap them.

    async def load(self, batch: Sequence[DueRelease]) -> list[HatChunks] | None:
        """Load each HAT's chunks (step loaded); None if a partition's watermark is missing or too small."""
        with self._failures.attempt("load contributions"):
            return await self._store.load([due.hat for due in batch])

    async def draw(
        self, batch: Sequence[DueRelease], loaded: Sequence[HatChunks], complete_from: int | None
    ) -> list[Proposal]:
        """Draw each HAT's estimate with its noise (step drawn), in a thread: a large HAT takes a second of computing.

        Days that begin before `complete_from` (ms UTC) have lost records: their HATs are incomplete.
        """
        without_data = None
        if complete_from is not None and self._calendar.day_start(batch[0].date) < complete_from:
            without_data = incomplete_of
        elif not await self.has_room(batch):
            without_data = exhausted_of
        if without_data is not None:
            releases = (without_data(self._policy, self._calendar, due.hat.slot, due.hat.cell) for due in batch)
            return self._proposals(batch, releases)
        return await asyncio.to_thread(self._draw, batch, loaded)

    def _draw(self, batch: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        releases = (
            release_of(self._policy, self._calendar, due.hat.slot, due.hat.cell, chunks, self._noise)
            for due, chunks in zip(batch, loaded, strict=True)
        )
        return self._proposals(batch, releases)

    def _proposals(self, batch: Sequence[DueRelease], releases: Iterable[Release]) -> list[Proposal]:
        return [
            proposal_of(release, now_ms(), self.release_partition(due))
            for due, release in zip(batch, releases, strict=True)
        ]

    async def has_room(self, batch: Sequence[DueRelease]) -> bool:
        """Return False if the budget is known to be exhausted before the draw; here each commit checks it instead."""
        del batch
        return True

    async def commit(self, proposals: Sequence[Proposal]) -> list[Committed]:
        """Commit record and charge of each HAT in one step (step committed); a stored record wins."""
        with METERS.timed(COMMIT_SECONDS), self._failures.name_operation("commit releases"):
            await self._recovery.confirm()
            committed = await self._ledger.commit(proposals, self._recovery.guard)
        if any(each.new for each in committed):
            self._failures.succeeded("commit releases")
        return committed

    async def send(self, release_partition: int, date: str, pending: Sequence[tuple[DueRelease, Committed]]) -> None:
        """Send the stored bytes and the day's budget record in one transaction (steps sent and acked)."""
        topics = self._settings.topics
        messages = [
            Message(
                topic=topics.means,
                partition=by_murmur2(due.hat.cell.encode(), self._store.partitions),
                key=due.release_id.encode(),
                value=record.record,
                headers=release_event("release", due.release_id, topics.telemetry, record.record),
                timestamp_ms=due.released_at_ms,
            )
            for due, record in pending
        ]
        summary = await self._ledger.summary(date)
        # In a thread: composing a new number of charges takes up to a second of computing.
        messages.append(
            await asyncio.to_thread(budget_message, topics, self._policy, date, summary, pending[-1][0].released_at_ms)
        )
        with self._failures.attempt("publish releases"):
            await self._recovery.confirm()
            await self._publishers.publish(release_partition, messages)

    async def mark(self, date: str, batch: Sequence[DueRelease]) -> None:
        """Mark HATs as published in Redis (step marked)."""
        with self._failures.attempt("mark releases as published"):
            await self._ledger.mark_published(date, [due.release_id for due in batch])

    async def delete(self, batch: Sequence[DueRelease]) -> None:
        """Delete contributions, except those that queries over days will read (step deleted)."""
        keep = is_queried(self._policy, batch[0].date)
        with self._failures.attempt("delete contributions"):
            await self._store.delete([due.hat for due in batch], keep=keep)
