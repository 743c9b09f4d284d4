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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from hatcast.agents.redis.ledger import Committed, LedgerStore, Proposal
from hatcast.agents.redis.partition_state import FinalHat
from hatcast.agents.release.batches import HATS, DueRelease, batches_of, date_of, proposal_of
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.counters import Closing, count_published
from hatcast.agents.release.lots import publish_by_owner
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

ROUND_S: Final = 0.5  # between looks at the clocks


class Releaser:
    """The release loop of one worker.

    owned     tells which release partitions are ours right now
    queries   answers those over days; None: the policy has none
    seal      seals days that are over, after a round; None: no day is sealed
    closing   when we saw that slots are final
    """

    def __init__(
        self,
        settings: Settings,
        store: HatStore,
        ledger: LedgerStore,
        recovery: LedgerRecovery,
        noise: Noise,
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._store = store
        self._ledger = ledger
        self._recovery = recovery
        self._publishers = recovery.publishers
        self._noise = noise
        self.owned: Callable[[], frozenset[int]] = frozenset
        self.queries: QueryReleaser | None = None
        self.seal: Callable[[Releaser], Awaitable[None]] | None = None
        self.closing = Closing()
        self._failures = FailureLog("release")

    async def prepare(self) -> None:
        """Load what the first release would hold up the event loop for: dp-accounting takes a second or two."""
        await asyncio.to_thread(composed_epsilon, {self._policy.epsilon_nano: 1}, self._policy.delta)

    async def run(self, stopping: asyncio.Event) -> None:
        """Release what becomes final, until `stopping` is set. A failed round is tried again: Redis has all of it."""
        failures = self._failures
        while await pause(max(ROUND_S, failures.wait_s), stopping):
            try:
                await self.round(stopping)
            except (ProducerGone, Behind):  # in a rebalance, or by a recovery: it is ours again after the next takeover
                log.info("release partition taken over by another worker")
            except (RedisError, KafkaError, Unrecovered, DaySealed, Replaced, Unclaimed) as error:
                failures.failed(error)
            else:
                failures.clear()

    async def round(self, stopping: asyncio.Event) -> int:
        """Release every final HAT of ours once; returns how many were deleted."""
        owned = self.owned()
        await self._publishers.close_except(owned)
        if owned:
            with self._failures.attempt("take over release partitions"):
                await self._publishers.start_missing(
                    owned
                )  # before anything is read: see TransactionalProducers.publish
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
        """Do what a round does once the ledger is recovered; returns how many HATs were deleted."""
        done = 0
        for batch in batches_of(await self.due(owned)):
            if stopping.is_set():
                break
            if date_of(batch[0]) <= self._recovery.sealed_through:
                await self.delete(batch)  # folded again, since their partition went back: all of it is published
                continue
            records = await self.records(batch)
            if records is None:
                self._failures.skip_next_clear()
                continue  # a clock went back: its partition is being folded again
            await self.publish(records)
            await self.delete(batch)
            done += len(batch)
        if self.queries is not None and not stopping.is_set():
            with self._failures.attempt("answer queries"):
                await self.queries.round(self._store, owned, await self.until())
        return done

    async def due(self, owned: frozenset[int]) -> list[DueRelease]:
        """Our final HATs, by slot, then cell: the order in which a tight budget serves them."""
        with self._failures.attempt("read the clocks of the partitions"):
            least = min_watermark(await self._store.watermarks())
        if least is None or not owned:
            return []
        until = await self.until()
        found = []
        for key, end in sorted((await self._store.open_slots()).items(), key=lambda item: (item[1], item[0])):
            closes = end + self._policy.lateness_ms
            if least < closes or key >= until:
                continue
            self.closing.saw([key])
            for cell, users in sorted((await self._store.cells(key)).items()):
                one = DueRelease(FinalHat(key, cell, closes), release_id(self._policy, key, cell), users)
                if self.release_partition(one) in owned:
                    found.append(one)
        return found

    async def final_slots(self) -> list[str]:
        """The slots that are final, and of which not all is published, whoever owns it."""
        least, until = min_watermark(await self._store.watermarks()), await self.until()
        closed = -1 if least is None else least - self._policy.lateness_ms
        return [key for key, end in (await self._store.open_slots()).items() if end <= closed and key < until]

    async def until(self) -> str:
        """The local date from which another policy releases; greater than any date where there is none."""
        successor = await self._ledger.next_policy()
        return NEVER if successor is None else successor.from_date

    async def is_done(self, until: str) -> bool:
        """Whether everything of ours before a local date is published."""
        if not await self._is_closed(until) or any(key < until for key in await self._store.open_slots()):
            return False
        return self.queries is None or not await self.queries.are_open(until)

    async def _is_closed(self, until: str) -> bool:
        """Whether no partition takes readings of days before a local date any more."""
        least = min_watermark(await self._store.watermarks())
        return least is not None and least >= self._calendar.previous_day_end(until) + self._policy.lateness_ms

    def release_partition(self, one: DueRelease) -> int:
        """Whose owner releases it."""
        return by_murmur2(one.release_id.encode(), self._store.partitions)

    async def records(self, due: Sequence[DueRelease]) -> dict[DueRelease, Committed] | None:
        """The one record of each of some HATs of a date, committed now where it is not there yet.

        None where a partition's clock is missing or too small: then nothing was committed.
        """
        found = await self._ledger.find(date_of(due[0]), [one.release_id for one in due])
        records = {one: record for one, record in zip(due, found, strict=True) if record is not None}
        absent = [one for one in due if one not in records]
        if absent:
            loaded = await self.load(absent)
            if loaded is None:
                return None
            # QueryPeriod after the load: what was complete then may be called incomplete, but not the other way.
            proposals = await self.draw(absent, loaded, await self._store.complete_from())
            records.update(zip(absent, await self.commit(proposals), strict=True))
        return {one: records[one] for one in due}

    async def publish(self, records: Mapping[DueRelease, Committed]) -> None:
        """Send the records of a date that are not published, in order, by release partition; and mark them.

        Raises ProducerGone where another worker has taken over one of these: then those of the others are published.
        """
        await publish_by_owner(records, self.release_partition, HATS, self._send_and_mark)

    async def _send_and_mark(self, release_partition: int, waiting: Sequence[tuple[DueRelease, Committed]]) -> None:
        date = date_of(waiting[0][0])
        await self.send(release_partition, date, waiting)
        await self.mark(date, [one for one, _ in waiting])
        await self._recovery.confirm()
        count_published("hat", [record for _, record in waiting])
        self.closing.published(one.hat.slot for one, _ in waiting)

    # The named steps. Tests wrap them from their own entry point.

    async def load(self, due: Sequence[DueRelease]) -> list[HatChunks] | None:
        """loaded: each HAT's chunks; None if a partition's clock is missing or too small."""
        with self._failures.attempt("load contributions"):
            return await self._store.load([one.hat for one in due])

    async def draw(
        self, due: Sequence[DueRelease], loaded: Sequence[HatChunks], complete_from: int | None
    ) -> list[Proposal]:
        """drawn: each HAT's estimate with its noise, in a thread: a large one takes a second of computing.

        Days that begin before `complete_from` (ms UTC) have lost records: their HATs are incomplete.
        """
        made = None
        if complete_from is not None and self._calendar.day_start(date_of(due[0])) < complete_from:
            made = incomplete_of
        elif not await self.has_room(due):
            made = exhausted_of
        if made is not None:
            releases = (made(self._policy, self._calendar, one.hat.slot, one.hat.cell) for one in due)
            return self._proposals(due, releases)
        return await asyncio.to_thread(self._draw, due, loaded)

    def _draw(self, due: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        releases = (
            release_of(self._policy, self._calendar, one.hat.slot, one.hat.cell, chunks, self._noise)
            for one, chunks in zip(due, loaded, strict=True)
        )
        return self._proposals(due, releases)

    def _proposals(self, due: Sequence[DueRelease], releases: Iterable[Release]) -> list[Proposal]:
        return [
            proposal_of(release, now_ms(), self.release_partition(one))
            for one, release in zip(due, releases, strict=True)
        ]

    async def has_room(self, due: Sequence[DueRelease]) -> bool:
        """Whether the budget is asked before anything is drawn: here it is asked for each HAT at its commit."""
        del due
        return True

    async def commit(self, proposals: Sequence[Proposal]) -> list[Committed]:
        """committed: record and charge, in one step each; what was there already wins."""
        with METERS.timed(COMMIT_SECONDS), self._failures.name_operation("commit releases"):
            await self._recovery.confirm()
            committed = await self._ledger.commit(proposals, self._recovery.guard)
        if any(each.new for each in committed):
            self._failures.succeeded("commit releases")
        return committed

    async def send(self, release_partition: int, date: str, waiting: Sequence[tuple[DueRelease, Committed]]) -> None:
        """sent and acked: the bytes in Redis, and the day's budget, in one transaction."""
        topics = self._settings.topics
        messages = [
            Message(
                topic=topics.means,
                partition=by_murmur2(one.hat.cell.encode(), self._store.partitions),
                key=one.release_id.encode(),
                value=record.record,
                headers=release_event("release", one.release_id, topics.telemetry, record.record),
                timestamp_ms=one.released_at_ms,
            )
            for one, record in waiting
        ]
        summary = await self._ledger.summary(date)
        # In a thread: composing a new number of charges takes up to a second of computing.
        messages.append(
            await asyncio.to_thread(budget_message, topics, self._policy, date, summary, waiting[-1][0].released_at_ms)
        )
        with self._failures.attempt("publish releases"):
            await self._recovery.confirm()
            await self._publishers.publish(release_partition, messages)

    async def mark(self, date: str, due: Sequence[DueRelease]) -> None:
        """marked: Kafka has them."""
        with self._failures.attempt("mark releases as published"):
            await self._ledger.mark_published(date, [one.release_id for one in due])

    async def delete(self, due: Sequence[DueRelease]) -> None:
        """deleted: their contributions, but for what queries over days will read."""
        keep = is_queried(self._policy, date_of(due[0]))
        with self._failures.attempt("delete contributions"):
            await self._store.delete([one.hat for one in due], keep=keep)
