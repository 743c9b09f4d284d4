"""Publish estimates of every cell after each slot, from the records of `hats.means` alone.    [decisions/0032]

The worker that owns release partition 0 does it, beside the release loop: a failure here neither stops nor delays a
release. Equal records give equal bytes, so it needs no transaction: what is sent twice is the same, and the topic is
compacted.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import takewhile
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import Message
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.redis.estimates import SnapshotStore, StoredSnapshot
from hatcast.agents.release.estimate_records import estimate_message
from hatcast.agents.release.hats import Published
from hatcast.agents.release.means_reader import MeansReader, ReadRelease
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.tracker.slots import ReleasedSlot, SlotKey, end_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting

log = structlog.get_logger()

ROUND_S: Final = 1.0  # between rounds
_OWNER_PARTITION: Final = 0  # the owner of this release partition publishes
_SENDS: Final = 500  # in flight


class _Progress:
    """Position of the publisher on `hats.means`, with its model.

    waiting   records of the slots and settlements that are not taken yet
    """

    def __init__(self, settings: Settings, stored: StoredSnapshot | None) -> None:
        state = None if stored is None else stored.state
        self.reader = MeansReader(settings, {} if stored is None else stored.positions)
        self.smoother = Smoother(SmootherSetting.of(settings.policy), state)
        self.waiting: dict[SlotKey, list[ReadRelease]] = defaultdict(list)
        self.stored_date = self.smoother.date
        self.seen: Published | None = None

    def read(self) -> bool:
        """Read new records. Return whether they are all up to the topic's present end. Blocks."""
        records, complete = self.reader.read()
        for each in records:
            key = SlotKey.of(each.record)
            # A slot that was taken is published again after a crash, and read again after a snapshot.
            if key > self.smoother.taken:
                self.waiting[key].append(each)
        return complete

    def complete(self, published: Published) -> list[SlotKey]:
        """Return the slots and settlements to take, in order: up to the first that is not published as a whole."""
        ended = [key for key in self.waiting if not key.is_settlement and self._end_of(key) <= published.through_ms]
        newest = max((key.date for key in ended), default="")

        def is_complete(key: SlotKey) -> bool:
            if key.is_settlement:  # a later date begins after it, also where Redis has lost that the date was settled
                return key.date <= published.settled or key.date < newest
            return key in ended

        return list(takewhile(is_complete, sorted(self.waiting)))

    def _end_of(self, key: SlotKey) -> int:
        return end_of(self.waiting[key][0].record)

    def positions(self) -> dict[int, int]:
        """Return for each partition the offset of its first record that is not taken."""
        positions = dict(self.reader.positions)
        for records in self.waiting.values():
            for each in records:
                positions[each.partition] = min(positions[each.partition], each.offset)
        return positions


class EstimatePublisher:
    """Publishes the estimates of one policy, in one worker."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        producer: AIOKafkaProducer,
        snapshots: SnapshotStore,
        owned: Callable[[], frozenset[int]],
        published: Callable[[], Awaitable[Published | None]],
    ) -> None:
        """Args:
        partitions:         number of partitions of `hats.estimates`
        owned:              returns the release partitions that the worker owns now
        published:          returns how far the policy's releases are published; None: it is not known now
        """
        self._settings = settings
        self._partitions = partitions
        self._producer = producer
        self._snapshots = snapshots
        self._owned = owned
        self._published = published
        self._calendar = Calendar(settings.policy)
        self._failures = FailureLog("estimates")
        self._progress: _Progress | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Run rounds until `stopping` is set. After a failure the model is read again from the last snapshot."""
        while await pause(max(ROUND_S, self._failures.wait_s), stopping):
            try:
                await self.round(stopping)
            except Exception as error:
                if not isinstance(error, (RedisError, KafkaError)):
                    log.exception("estimates failed")
                self._progress = None
                self._failures.failed(error)
            else:
                self._failures.clear()

    async def round(self, stopping: asyncio.Event) -> int:
        """Publish the estimates of the slots that are complete now. Return the number of slots."""
        if _OWNER_PARTITION not in self._owned():
            self._progress = None
            return 0
        with self._failures.attempt("read what is published"):
            published = await self._published()
        if published is None:
            return 0
        if self._progress is None:
            with self._failures.attempt("read the snapshot of the estimates"):
                stored = await self._snapshots.read(self._settings.policy.policy_id)
            self._progress = _Progress(self._settings, stored)
        progress = self._progress
        # A slot becomes complete only when the time enters a new one, a settlement when its date is settled.
        seen = replace(published, through_ms=self._calendar.slot_at(published.through_ms).start_ms)
        if seen == progress.seen:
            return 0
        with self._failures.attempt("read releases"):
            complete = await asyncio.to_thread(progress.read)
        if not complete:
            self._failures.skip_next_clear()
            return 0
        done = 0
        for key in progress.complete(published):
            if stopping.is_set():
                return done
            await self._take(progress, key)
            done += 1
        progress.seen = seen
        return done

    async def _take(self, progress: _Progress, key: SlotKey) -> None:
        """Publish the estimates of a slot or settlement; before the first of a date, store a snapshot."""
        slot = ReleasedSlot(key, [each.record for each in progress.waiting[key]])
        positions = progress.positions()
        messages = await asyncio.to_thread(self._messages, progress.smoother, slot)
        del progress.waiting[key]
        with self._failures.attempt("publish estimates"):
            for at in range(0, len(messages), _SENDS):
                await self._send(messages[at : at + _SENDS])
        # After the send: whoever continues from the snapshot does not publish the settled estimates before it.
        if key.date != progress.stored_date:
            with self._failures.attempt("store the snapshot of the estimates"):
                await self._snapshots.write(StoredSnapshot(positions=positions, state=progress.smoother.snapshot))
            progress.stored_date = key.date

    def _messages(self, smoother: Smoother, slot: ReleasedSlot) -> list[Message]:
        """Return the messages of a slot. Takes seconds of computing for 10,000 cells."""
        topics = self._settings.topics
        return [estimate_message(topics, each, self._partitions) for each in smoother.add(slot)]

    async def _send(self, messages: list[Message]) -> None:
        sent = [
            await self._producer.send(each.topic, each.value, each.key, each.partition, headers=each.headers)
            for each in messages
        ]
        await asyncio.gather(*sent)
