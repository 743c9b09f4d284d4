"""Publish estimates and running means after each slot, from the records of `hats.means` alone.    [decisions/0032]

The worker that owns release partition 0 does it, beside the release loop: a failure here neither stops nor delays a
release. Equal records give equal bytes, so it needs no transaction: what is sent twice is the same, and the topic is
compacted.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, Final

import msgspec
import structlog
from confluent_kafka import TopicPartition
from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import TopicsTable
from hatcast.agents.kafka.aio import AIOKafkaProducer, KafkaError
from hatcast.agents.kafka.cloud_events import cloud_event, is_from_other_domain
from hatcast.agents.kafka.partition_reader import connection_errors, is_end, next_messages, open_consumer
from hatcast.agents.kafka.producers import OutputMessage, send_all
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.recovery.outputs import OutputReader
from hatcast.agents.redis.estimates import RunningSnapshot, SnapshotStore, StoredSnapshot
from hatcast.agents.release.loop import PublicationProgress
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.running_keys import RunningOf
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records import EstimateRecord, ReleaseRecord, RunningRecord
from hatcast.stream.running.inputs import RunningSetting
from hatcast.stream.running.running import RunningWindows
from hatcast.stream.tracker.observations import ReleasedSlot, SlotKey, end_of, read_release
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting

log = structlog.get_logger()

_BATCH: Final = 1_000
_FILL_S: Final = 0.05  # how long to wait for a full batch
_FETCH_OPTIONS: Final = {"queued.max.messages.kbytes": 2_048, "max.partition.fetch.bytes": 1_048_576}


@dataclass(frozen=True, slots=True)
class ReadRelease:
    """A record, and where it is in `hats.means`."""

    partition: int
    offset: int
    record: ReleaseRecord


class MeansReader:
    """Reader of the records of one policy and domain. Every method blocks. Raises KafkaConnectionError, of aiokafka."""

    def __init__(self, settings: Settings, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)  # partition -> offset of the next record to read
        self._settings = settings
        self._policy = settings.policy
        self._topic = settings.topics.means

    def read(self) -> tuple[list[ReadRelease], bool]:
        """Return the new records, in offset order within a partition, and whether they are all up to the present end.

        They are not while a transaction before the end is open: it may hide committed records behind it.
        """
        outputs = OutputReader(self._settings).ranges({self._topic: ""})
        ends = {output.partition: log.end.offset for output, log in outputs.items()}
        pending = {partition for partition, end in ends.items() if self.positions.get(partition, 0) < end}
        found: list[ReadRelease] = []
        with open_consumer(self._settings, "estimates", _FETCH_OPTIONS) as consumer, connection_errors():
            consumer.assign([TopicPartition(self._topic, each, self.positions.get(each, 0)) for each in pending])
            while pending:
                for message in next_messages(consumer, _BATCH, _FILL_S):
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if partition not in pending:
                        continue
                    at_end = is_end(message)
                    headers: Any = message.headers() or []
                    if not at_end and not is_from_other_domain(headers, self._settings.topics.telemetry):
                        record = read_release(message.value() or b"", self._policy)
                        found += [] if record is None else [ReadRelease(partition, offset, record)]
                    self.positions[partition] = offset if at_end else offset + 1
                    if at_end or offset + 1 >= ends[partition]:
                        pending.remove(partition)
        return found, all(self.positions.get(partition, 0) >= end for partition, end in ends.items())


class EstimateProgress:
    """Position of the publisher on `hats.means`, with its models."""

    def __init__(self, settings: Settings, stored: StoredSnapshot | None, dates: Mapping[str, bytes]) -> None:
        """dates: inputs of running means, by local date.

        Without the inputs that its running means need, it reads `hats.means` from the beginning, and sends nothing of
        the dates that the snapshot says were sent.
        """
        self._settings = settings
        self._running_setting = RunningSetting.of(settings.policy)
        running = self._restored(stored, dates)
        self._stored = set() if running is None else set(dates)
        self._silent_before = stored.state.date if running is None and stored is not None else ""
        used = None if running is None else stored
        self._running = running or RunningWindows(self._running_setting)
        self.reader = MeansReader(settings, {} if used is None else used.positions)
        self._smoother = Smoother(SmootherSetting.of(settings.policy), None if used is None else used.state)
        # records of the slots and settlements that are not taken yet
        self.waiting: dict[SlotKey, list[ReadRelease]] = defaultdict(list)
        self.stored_date = self._smoother.date  # date of the last snapshot that is stored
        self.seen: PublicationProgress | None = None

    def read(self) -> bool:
        """Read new records. Return whether they are all up to the topic's present end. Blocks."""
        records, complete = self.reader.read()
        for each in records:
            key = SlotKey.of(each.record)
            # A slot that was taken is published again after a crash, and read again after a snapshot.
            if key > self._smoother.taken:
                self.waiting[key].append(each)
        return complete

    def complete(self, published: PublicationProgress) -> list[SlotKey]:
        """Return the slots and settlements to take, in order: up to the first that is not published as a whole."""
        first_of = {key: records[0].record for key, records in self.waiting.items() if not key.is_settlement}
        ended = [key for key, record in first_of.items() if end_of(record) <= published.through_ms]
        newest = max((key.date for key in ended), default="")

        def is_complete(key: SlotKey) -> bool:
            if key.is_settlement:  # a later date begins after it, also where Redis has lost that the date was settled
                return key.date <= published.settled or key.date < newest
            return key in ended

        return list(takewhile(is_complete, sorted(self.waiting)))

    def take(self, key: SlotKey, partitions: int) -> list[OutputMessage]:
        """Add a slot or settlement to the model; return its messages. Takes seconds of computing for 10,000 cells.

        partitions   of `hats.estimates` and of `hats.running`
        """
        # Of each partition the offset of its first record that is not taken.
        self._positions = positions = dict(self.reader.positions)
        for each in chain.from_iterable(self.waiting.values()):
            positions[each.partition] = min(positions[each.partition], each.offset)
        slot = ReleasedSlot(key, [each.record for each in self.waiting[key]])
        estimates = self._smoother.add(slot)
        of_estimates = RunningOf.ESTIMATES in self._running_setting.kinds
        running = self._running.add(slot, self._smoother.day_parts() if of_estimates else None)
        del self.waiting[key]
        if key.date < self._silent_before:
            return []
        topics = self._settings.topics
        messages = [estimate_message(topics, each, partitions) for each in estimates]
        return messages + [running_message(topics, each, partitions) for each in running]

    def snapshot(self) -> tuple[StoredSnapshot, Mapping[str, bytes]]:
        """Return the state at the beginning of the date of the slot that was taken last, its first.

        The second part are those inputs of running means, by local date, that were not stored yet.
        """
        dates, setting = self._running.dates, self._running_setting
        new = {date: self._running.date_state(date) for date in dates if date not in self._stored}
        self._stored |= new.keys()
        running = RunningSnapshot(days=setting.days, dates=dates)
        return StoredSnapshot(positions=self._positions, state=self._smoother.snapshot, running=running), new

    def _restored(self, stored: StoredSnapshot | None, dates: Mapping[str, bytes]) -> RunningWindows | None:
        """Return the running means at the beginning of the snapshot's date; None if a needed date is not stored."""
        setting = self._running_setting
        if stored is None or not setting.means:
            return RunningWindows(setting)
        running = stored.running
        if running.days < setting.days or running.dates != [*dates]:
            return None
        try:
            return RunningWindows(setting, [*dates.values()])
        except ValueError:
            return None


def estimate_message(topics: TopicsTable, estimate: EstimateRecord, partitions: int) -> OutputMessage:
    """Return the message of an estimate: equal for equal estimates. partitions: of the topic."""
    return OutputMessage(
        topic=topics.estimates,
        partition=by_murmur2(estimate.cell.encode(), partitions),
        key=estimate.estimate_id.encode(),
        value=msgspec.json.encode(estimate),
        headers=cloud_event("estimate", f"{estimate.estimate_id}/{estimate.stage}", topics.telemetry),
    )


def running_message(topics: TopicsTable, running: RunningRecord, partitions: int) -> OutputMessage:
    """Return the message of a running mean: equal for equal records. partitions: of the topic."""
    return OutputMessage(
        topic=topics.running,
        partition=by_murmur2(running.cell.encode(), partitions),
        key=f"{running.policy}/{running.name}/{running.cell}".encode(),
        value=msgspec.json.encode(running),
        headers=cloud_event("running", f"{running.running_id}/{running.stage}", topics.telemetry),
    )


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

    async def _send(self, messages: list[OutputMessage]) -> None:
        await send_all(self._producer, messages)  # a step of its own: tests wrap it
