"""Frames to contributions, and contributions to Redis.    [design 4: Frames, State in Redis]

A partition's memory is a cache of what Redis holds plus what was folded since. Any doubt about it (a checkpoint
that was refused or not answered, a batch that does not follow the last one) is settled the same way: drop it, read
the stored state, go on from the stored offset in a new epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog
from aiokafka.errors import ConsumerStoppedError, KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.kafka.batches import BatchConsumer, RecordBatch
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.monitoring.declarations import CHECKPOINT_SECONDS, CHECKPOINTS, READINGS, REBALANCES
from hatcast.agents.monitoring.failures import FailureLog, back_off_s
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.identity import partition_count_error
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.agents.redis.user_keys import OtherUserKey, StoredKey
from hatcast.agents.release.counters import count_outcomes
from hatcast.agents.worker.early_records import Ahead, EarlyRecords
from hatcast.agents.worker.partition import Held
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import restore, take_changes
from hatcast.stream.fold.partition_fold import PartitionFold

log = structlog.get_logger()

_CHECKPOINT: Final = "write a checkpoint"
CHECKPOINT_RECORDS: Final = 100_000  # of one partition: with the interval, what memory may hold beyond the store


class Ingest:
    """Folds the partitions that this worker owns. Implements `BatchHandler`.

    accept_gap   go on where records were deleted unread, instead of refusing
    answered_s   when Redis last answered (monotonic seconds)
    stored_s     the same, with all that was folded until then stored
    by_clock     only records that move a clock are signs of life: who sends may be anybody, and could hold a partition
                 back for ever with records of long ago
    went_back   called where a stored offset is not what was stored last
    waits        the partitions that wait for this machine's clock
    claim   called whenever a state is loaded: keeps the policy and the user key again where Redis lost them too
    user_key   under which the partitions are folded
    confirm    confirms that the topic is still the registered one; None where the broker has no topic ids
    """

    def __init__(
        self,
        store: PartitionStore,
        make_fold: Callable[[int], PartitionFold[bytes]],
        dead_letters: DeadLetters,
        checkpoint_interval_s: float,
        fail: Callable[[Exception], None],
    ) -> None:
        """Args:
        make_fold: a partition's empty fold
        fail: ends the worker; called with a refusal, or with what nobody foresaw
        """
        self.held: dict[int, Held] = {}
        self.answered_s: float | None = None
        self.stored_s: float | None = None
        self._failures = FailureLog("ingest")
        self.accept_gap = False
        self.counted = READINGS
        self.by_clock = False
        self.waits = EarlyRecords(store.topic)
        self.claim: Callable[[], Awaitable[None]] | None = None
        self.went_back: Callable[[], None] = lambda: None
        self.user_key: StoredKey | None = None
        self.confirm: Callable[[], Awaitable[None]] | None = None
        self._store = store
        self._make_fold = make_fold
        self._dead_letters = dead_letters
        self._interval = checkpoint_interval_s
        self._fail = fail
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._consumer: BatchConsumer | None = None

    def attach(self, consumer: BatchConsumer) -> None:
        """The consumer, which exists only once the app has started."""
        self._consumer = consumer

    @property
    def consumer(self) -> BatchConsumer:
        """The consumer. Raises ConsumerStoppedError before `attach`."""
        if self._consumer is None:
            raise ConsumerStoppedError
        return self._consumer

    # What the transport calls.

    def on_assigned(self, partitions: frozenset[int]) -> None:
        """After a rebalance: load each partition's state, then read on from its offset."""
        log.info("partitions assigned", partitions=sorted(partitions))
        METERS.count(REBALANCES)
        count = self.consumer.partition_count()
        if count not in (None, self._store.partitions):  # the topic has grown while we ran
            self._fail(partition_count_error(self._store.name, self._store.partitions, count))
            return
        self.waits.keep_only(partitions)
        for partition in partitions:
            self._load_soon(partition)

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """Before a rebalance, and at the end: the last checkpoint, then the memory goes."""
        for task in self._loading.values():
            task.cancel()
        self._loading.clear()
        self._again.clear()
        try:
            await asyncio.gather(*(self.checkpoint(partition) for partition in partitions))
        finally:
            self.held.clear()
        log.info("partitions revoked", partitions=sorted(partitions))

    def on_lost(self, partition: int, position: int) -> None:
        """The log does not have our position any more: loading finds the gap and says so."""
        log.warning("position not in the log", partition=partition, offset=position)
        self._load_soon(partition)

    # What the agent and the worker call.

    async def fold(self, batch: RecordBatch) -> None:
        """Fold a batch, up to the first record that is dated too far ahead of this machine's clock.

        Waits for the store only at such a record, or where `CHECKPOINT_RECORDS` are not stored yet.
        """
        partition = batch.partition
        if self.consumer.epoch(partition) != batch.epoch:
            return  # fetched before the last seek: it will come again
        held = self.held.get(partition)
        if held is not None and held.ahead is not None:
            return  # fetched behind a record that waits for the clock: it will come again, too
        if held is None or held.next != batch.base:
            self._load_soon(partition)
            return
        now = now_ms()
        batch, ahead = held.split(batch, now)
        if held.missing and batch.timestamps:
            # Whatever was made up to here may have stood in the deleted records.
            held.fold.complete_from = batch.timestamps[0] + held.fold.policy.max_ahead_ms
            held.missing = False
        clock = held.fold.watermark
        undecodable = held.fold.apply(now, batch.timestamps, batch.values)
        held.next, held.epoch = batch.next, batch.epoch
        if held.fold.watermark != clock if self.by_clock else batch.offsets:
            held.heard_s = monotonic_s()
        for index in undecodable:
            self._dead_letters.add(partition, batch.offsets[index], "undecodable")
        held.ahead = ahead
        if ahead is not None or held.next - held.base >= CHECKPOINT_RECORDS:
            await self.checkpoint(partition)  # before it is parked: Kafka takes no acknowledgement then
        if ahead is not None and self.held.get(partition) is held:
            self.waits.meet(partition, ahead)
            self._park_soon(partition)

    async def checkpoint_regularly(self, stopping: asyncio.Event) -> None:
        """Store what changed, every interval, until `stopping` is set; never leaves a checkpoint half way."""
        silent = 0  # looks in a row that Redis did not answer
        while await pause(max(self._interval, back_off_s(silent - 1) if silent else 0.0), stopping):
            stored = await asyncio.gather(*(self.checkpoint(partition) for partition in list(self.held)))
            self.waits.waiting()  # logs those that are over
            silent = 0 if await self._reload_forgotten() else silent + 1
            if not silent:
                self.answered_s = monotonic_s()
                if all(stored) and self.held.keys() >= self.consumer.assigned():
                    self.stored_s = self.answered_s
                    if not self._is_behind(self._failures.failed_partitions(_CHECKPOINT)):
                        self._failures.clear()

    def _is_behind(self, partitions: Iterable[int]) -> bool:
        """Whether some of these are ours with records that were folded before, and are not stored again yet."""
        mine = [(partition, self.held[partition]) for partition in partitions if partition in self.held]
        return any(not self.consumer.position_at_end(partition, held.base) for partition, held in mine)

    async def _reload_forgotten(self) -> bool:
        """Idle partitions would not notice that Redis went back: nothing of theirs is checkpointed.

        False if Redis did not answer.
        """
        idle = {partition: (held, held.base) for partition, held in self.held.items() if held.next == held.base}
        try:
            with self._failures.attempt("read the stored offsets"):
                stored = await self._store.offsets()
        except RedisError as error:
            self._failures.failed(error)
            return False  # the next checkpoint or the next look will tell what became of the state
        for partition, (held, base) in idle.items():
            unchanged = self.held.get(partition) is held and held.next == held.base == base
            if unchanged and stored[partition] != base:
                log.warning("stored offset went back", partition=partition, base=base)
                self.went_back()
                self._load_soon(partition)
        return True

    async def checkpoint(self, partition: int) -> bool:
        """Store what a partition has folded since its last checkpoint, and let Kafka know.

        False if that is not sure: its memory is dropped then, and the stored state loaded.
        """
        held = self.held.get(partition)
        if held is None:
            return False
        async with held.writing:
            if self.held.get(partition) is not held:
                return False
            if held.next == held.base:
                return True
            following = held.next
            stored = await self._store_changes(partition, held)
            if self.held.get(partition) is not held:
                return False
            if not stored:
                self._load_soon(partition)
                return False
            held.base = following
            held.fold.drop_closed()
            if held.epoch is not None:
                self.consumer.acknowledge(partition, held.epoch, following)
            return True

    async def _store_changes(self, partition: int, held: Held) -> bool:
        """Write them; False if they were refused, or may have been written or not."""
        following, changes = held.next, take_changes(held.fold)
        try:
            with METERS.timed(CHECKPOINT_SECONDS), self._failures.name_operation(_CHECKPOINT, partition):
                if self.confirm is not None:  # now that the last of these records was fetched, and not before
                    await self.confirm()
                stored = await self._store.checkpoint(partition, held.base, following, changes)
        except (RedisError, KafkaError) as error:  # Redis may have written it all the same: only the store knows
            METERS.count(CHECKPOINTS, result="failed")
            self._failures.failed(error)
            return False
        except HatcastError as refusal:
            self.held.pop(partition, None)
            self._fail(refusal)
            return False
        except BaseException:  # cancelled, or a bug: these changes are taken, so the memory misses them
            self.held.pop(partition, None)
            raise
        METERS.count(CHECKPOINTS, result="stored" if stored else "refused")
        if stored:
            self._failures.succeeded(_CHECKPOINT, partition)
            held.counted = count_outcomes(self.counted, held.counted, changes.outcomes)
        else:
            log.warning("checkpoint refused", partition=partition, base=held.base)
            self.went_back()  # or another worker has the partition
        return stored

    # Loading, and waiting for the clock: one task for each partition parks and starts it.

    def _load_soon(self, partition: int) -> None:
        self.held.pop(partition, None)
        self._park_soon(partition)

    def _park_soon(self, partition: int) -> None:
        running = self._loading.get(partition)
        if running is not None and not running.done():
            self._again.add(partition)  # it may be past the point that this asks for
            return
        task = asyncio.create_task(self._load(partition))
        task.add_done_callback(self._loaded)
        self._loading[partition] = task

    def _loaded(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    async def _load(self, partition: int) -> None:
        """Park the partition, wait for the clock or read its state, start it there.

        Again, with back-off, until it is ours no more.
        """
        attempt = 0
        while True:
            try:
                await self.consumer.park_partition(partition)
                if partition in self.consumer.assigned():
                    held = self.held.get(partition)
                    if held is not None and held.ahead is not None:
                        await self._start_when_allowed(partition, held, held.ahead)
                    else:
                        with self._failures.attempt("load a partition", partition):
                            await self._start(partition)
            except ConsumerStoppedError:
                return
            except (RedisError, KafkaError) as error:
                self._failures.failed(error)
                await asyncio.sleep(back_off_s(attempt))
                attempt += 1
            else:
                if partition not in self._again:
                    return
                self._again.discard(partition)

    async def _start_when_allowed(self, partition: int, held: Held, ahead: Ahead) -> None:
        """Start a partition from its memory once the clock allows its next record, unless the memory is dropped."""
        await self.waits.until_allowed(partition, ahead, lambda: self.held.get(partition) is held)
        if self.held.get(partition) is held:
            held.ahead = None
            if await self.consumer.start_partition(partition, held.next) is None:
                self.held.pop(partition, None)

    async def _start(self, partition: int) -> None:
        if self.confirm is not None:
            await self.confirm()
        start, end = (await self.consumer.log_range([partition]))[partition]
        try:
            offset, stored = await self._store.open(partition, start, self.user_key, accept_gap=self.accept_gap)
        except OtherUserKey:
            if self.claim is not None:  # where all of Redis went back to another key, this refuses with a simpler fix
                await self.claim()
            raise
        # After the open: what Redis loses from here on takes our right to write with it, so the user key that we found
        # is the one of all that we are going to store.
        if self.claim is not None:
            await self.claim()
        if offset > end:  # or it was, when we asked: we may have stood still since, and others folded on
            _, end = (await self.consumer.log_range([partition]))[partition]
        if offset > end:
            raise HatcastError(
                f"{self._store.topic} partition {partition}: the stored offset {offset} is beyond the topic's end"
                f" {end}: this is another topic than the one that was folded; point to the old one, or start under a"
                " new policy.name"
            )
        fold = self._make_fold(partition)
        restore(fold, stored)
        if stored.missing:
            log.warning(
                "earlier records were deleted: unreleased HATs of their days are incomplete", partition=partition
            )
        self.held[partition] = Held(fold, offset, offset, monotonic_s(), stored.missing, stored.outcomes)
        if await self.consumer.start_partition(partition, offset) is None:
            self.held.pop(partition, None)
        else:
            log.info("partition started", partition=partition, offset=offset)
