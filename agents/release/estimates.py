"""Publish estimates and running means after each slot, from the records of `hats.means` alone.    [decisions/0032]

The worker that owns release partition 0 does it, beside the release loop: a failure here neither stops nor delays a
release. Equal records give equal bytes, so it needs no transaction: what is sent twice is the same, and the topic is
compacted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import Message
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.release.estimate_progress import EstimateProgress
from hatcast.agents.release.loop import PublicationProgress
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.tracker.observations import SlotKey

log = structlog.get_logger()

ROUND_S: Final = 1.0  # between rounds
_OWNER_PARTITION: Final = 0  # the owner of this release partition publishes
_SENDS: Final = 500  # in flight


class EstimatePublisher:
    """Publishes the estimates and the running means of one policy, in one worker."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        producer: AIOKafkaProducer,
        snapshots: SnapshotStore,
        owned: Callable[[], frozenset[int]],
        published: Callable[[], Awaitable[PublicationProgress | None]],
    ) -> None:
        """Args:
        partitions:         number of partitions of `hats.estimates` and of `hats.running`
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
        self._progress: EstimateProgress | None = None

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
                dates = await self._snapshots.read_dates(stored)
            self._progress = await asyncio.to_thread(EstimateProgress, self._settings, stored, dates)
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

    async def _take(self, progress: EstimateProgress, key: SlotKey) -> None:
        """Publish what follows from a slot or settlement; before the first of a date, store a snapshot."""
        messages = await asyncio.to_thread(progress.take, key, self._partitions)
        with self._failures.attempt("publish estimates"):
            for at in range(0, len(messages), _SENDS):
                await self._send(messages[at : at + _SENDS])
        # After the send: whoever continues from the snapshot does not publish the settled estimates before it.
        if key.date != progress.stored_date:
            snapshot, dates = await asyncio.to_thread(progress.snapshot)
            with self._failures.attempt("store the snapshot of the estimates"):
                await self._snapshots.write(snapshot, dates)
            progress.stored_date = key.date

    async def _send(self, messages: list[Message]) -> None:
        sent = [
            await self._producer.send(each.topic, each.value, each.key, each.partition, headers=each.headers)
            for each in messages
        ]
        await asyncio.gather(*sent)
