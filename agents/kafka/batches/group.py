"""Membership in a consumer group: librdkafka agrees with the other members on who reads which partition.

It reads none of them: they are paused, and fetched by aiokafka (agents/kafka/batches/thread.py), which has no
cooperative rebalance. In one, only what moves is given up; everything else is read on. [docs/decisions/0061]
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.aio import for_code
from hatcast.agents.kafka.batches.batch import METADATA_SECONDS, BatchSettings
from hatcast.agents.kafka.client import BACKOFF_MAX_MS

if TYPE_CHECKING:
    from hatcast.agents.kafka.batches.consumer import BatchConsumer

log = structlog.get_logger()

Result = TypeVar("Result")

_POLL_S: Final = 0.1  # of one poll; a rebalance ends it at once
_LEAVE_S: Final = 5.0
# A member hears of a rebalance with its next heartbeat: what moves stands still for two of them.
_HEARTBEATS_PER_SESSION: Final = 10
_PERMANENT: Final = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
# What a rebalance does to commits on their way, and the end of a session, of which others tell.
_PASSING: Final = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID)


class GroupMember:
    """Member of a consumer group, from `join` to `leave`, in a thread of its own.

    The thread polls only while the event loop runs: a loop that hangs for `BatchSettings.poll_seconds` loses its
    partitions to others. While it only waits, for Redis say, it stays a member.

    member_id   its id in the group; None before it has one, and from the end of its session until it joins again
    """

    def __init__(self, settings: BatchSettings, owner: "BatchConsumer") -> None:
        self.member_id: str | None = None
        self._assigned_as: str | None = None  # its id at the last assignment
        self._settings = settings
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._next_commit_s = 0.0  # monotonic
        self._told: set[str] = set()  # errors that were logged since the last assignment, or commit
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="consumer group", daemon=True)

    @property
    def is_in_group(self) -> bool:
        """Whether it has joined the group, and its session has not ended since; it may hold no partition."""
        # librdkafka reports the end of a session only to a member with partitions, but always drops the id.
        return self._assigned_as is not None and self._assigned_as == self.member_id

    def join(self) -> None:
        """Begin to join the group. A second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    async def leave(self) -> None:
        """Commit, and leave the group; it keeps its `member_id` if Kafka does not answer."""
        self._stopping.set()
        if self._thread.ident is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._ended.wait()

    # In the thread.

    def _run(self) -> None:
        try:
            self._poll_until_stopped()
        except Exception as error:
            with suppress(RuntimeError):  # the loop has ended
                self._in_loop(self._owner.crash(error))  # trying again cannot help
        finally:
            self.member_id = None
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)

    def _poll_until_stopped(self) -> None:
        consumer = Consumer(self._options())
        try:
            consumer.subscribe(
                [self._settings.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stopping.is_set():
                self._commit(consumer, self._next_commit_s)
                if (error := _error_of(consumer.poll(_POLL_S))) is not None:
                    self._tell("not in the consumer group, joining again", error)
                self.member_id = consumer.memberid() or None
            self._commit(consumer)
        finally:
            consumer.close()

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            **settings.group_options,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": settings.name,
            # Its growing backoff begins anew at each connection that a proxy accepts and closes again.
            "reconnect.backoff.ms": BACKOFF_MAX_MS,
            "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
            "group.id": settings.name,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": _ms(settings.session_timeout),
            "heartbeat.interval.ms": _ms(settings.session_timeout / _HEARTBEATS_PER_SESSION),
            "max.poll.interval.ms": _ms(max(settings.poll_seconds, settings.session_timeout)),
            "topic.metadata.refresh.interval.ms": _ms(METADATA_SECONDS),
            "enable.auto.commit": False,
            "on_commit": self._on_commit,
        }

    def _in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the event loop, and wait for its result. Raises RuntimeError if the loop has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except RuntimeError:
            coroutine.close()
            raise

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From the end, for which librdkafka asks first: from an offset it would fetch before the pause.
        held = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        consumer.incremental_assign(held)
        consumer.pause(held)
        self.member_id = self._assigned_as = consumer.memberid()
        self._told.clear()
        self._in_loop(self._owner.gain(_numbers(partitions)))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._in_loop(self._owner.give_up(_numbers(partitions)))
        self._commit(consumer)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned_as = None
        self._in_loop(self._owner.give_up(_numbers(partitions)))
        self._in_loop(self._owner.take_acknowledged())  # others own them by now, and have committed more
        consumer.incremental_unassign(partitions)

    def _commit(self, consumer: Consumer, from_s: float = 0.0) -> None:
        """Commit the acknowledged offsets, but not before `from_s` (monotonic seconds). Waits for the event loop.

        A failure is only logged, where Faust would end the worker: nobody but operators reads these offsets.
        """
        now_s = monotonic_s()
        if now_s < from_s:
            self._in_loop(asyncio.sleep(0))
            return
        self._next_commit_s = now_s + self._settings.commit_interval
        topic = self._settings.topic
        positions = self._in_loop(self._owner.take_acknowledged())
        offsets = [TopicPartition(topic, partition, position) for partition, position in positions.items()]
        if offsets:
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                self._on_commit(error.args[0], offsets)

    def _on_commit(self, error: KafkaError | None, _offsets: Iterable[TopicPartition]) -> None:
        if error is None:
            self._told.clear()
        elif error.code() not in _PASSING:
            self._tell("Offsets were not committed to Kafka", error)

    def _tell(self, event: str, error: KafkaError) -> None:
        """Log an error, once until it is over."""
        if event not in self._told:
            log.warning(event, why=error.str())
        self._told.add(event)


def _error_of(message: Message | None) -> KafkaError | None:
    """Return the error of a poll; raise it, as aiokafka would, if joining again cannot help. Ignores records.

    Of a topic that is gone nothing is returned: who knows what that means tells it.
    """
    error = None if message is None else message.error()
    if error is not None and error.code() in _PERMANENT:
        raise for_code(error.code())(error.str())
    if error is not None and error.fatal():
        raise KafkaException(error)
    return None if message is None or message.topic() is not None else error


def _numbers(partitions: Iterable[TopicPartition]) -> frozenset[int]:
    return frozenset(each.partition for each in partitions)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
