"""Transactional producers, one for each release partition that this worker owns.    [decisions/0002, 0004]

The `transactional.id` is `hatcast/<domain>/<policy>/<r>`: a worker that takes over r fences the previous owner, whose
next send fails. `read_committed` consumers see all records of a transaction at once, or none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from aiokafka.errors import IllegalOperation, KafkaTimeoutError, ProducerFenced
from aiokafka.producer.producer import TransactionContext

from hatcast.agents.kafka.aio import (
    AIOKafkaProducer,
    KafkaConnectionError,
    KafkaError,
    UnknownTopicOrPartitionError,
    back_off_reconnects,
    ignore_unread_kafka_errors,
)
from hatcast.agents.monitoring.declarations import FENCED, PUBLISH_SECONDS
from hatcast.agents.monitoring.meters import METERS

# aiokafka repeats without end what a broker does not do. Kafka itself aborts a transaction after 60 seconds.
_LIMIT_S: Final = 60.0
_STOP_S: Final = 5.0  # stopping a fenced producer may hang
_ABANDON_S: Final = 1.0
_ABORT_S: Final = 5.0  # aiokafka's abort waits until a broker answers: a worker could not stop while Kafka is away


@asynccontextmanager
async def time_limit() -> AsyncIterator[None]:
    """Raise aiokafka's KafkaTimeoutError if the block, a start or a transaction, takes longer than 60 seconds."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            yield
    except TimeoutError:
        raise KafkaTimeoutError(f"not done in {_LIMIT_S:g} s") from None


class Transaction(TransactionContext):  # type: ignore[misc] # aiokafka has no types
    """A transaction that is committed at the end of the block, or aborted after an error.

    After a cancellation the abort takes at most 5 seconds, and stays a cancellation if it fails. A transaction that is
    then still open is aborted by the start of the next producer with its `transactional.id`.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit or abort. Raises KafkaError."""
        if kind is not asyncio.CancelledError:
            await super().__aexit__(kind, error, traceback)
            return
        with suppress(TimeoutError, KafkaError):  # only here: after a commit it would hide that the end is unknown
            async with asyncio.timeout(_ABORT_S):
                await super().__aexit__(kind, error, traceback)


async def start_producer(transactional_id: str, client: dict[str, Any], **options: Any) -> AIOKafkaProducer:
    """Start a producer and fence the older ones with this id.

    client    aiokafka's connection options
    options   further options of aiokafka's producer
    Raises KafkaError, after closing all connections: KafkaTimeoutError if Kafka gave no producer id within 60 seconds.
    """
    ignore_unread_kafka_errors()
    producer = AIOKafkaProducer(transactional_id=transactional_id, acks="all", **options, **client)
    try:
        back_off_reconnects(producer.client)
        async with time_limit():
            await producer.start()
    except AssertionError:  # raised by aiokafka: the metadata of a broker that has just restarted may be empty
        await stop_producer(producer)
        raise KafkaConnectionError("no broker is known") from None
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer, fenced or not, within some seconds. Records that are unsent by then are dropped."""
    # In a task of its own: in one that was cancelled, no timeout of Python 3.11.2 becomes a TimeoutError.
    await asyncio.create_task(_stop(producer))


async def _stop(producer: AIOKafkaProducer) -> None:
    try:
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
    except (TimeoutError, KafkaError):
        await _abandon(producer)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """End a producer that did not stop: its tasks and connections would last until it is fenced, or longer.

    Its client refuses first, so that a commit that still waits cannot be sent after its messages have failed.
    """
    producer.client.send = _refuse
    sender = producer._sender  # noqa: SLF001 - there is no public API; test_publisher.py shows that nothing is left
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_ABANDON_S):  # its end also cancels what the sender waits for
            await sender.close()
    producer._message_accumulator.fail_all(KafkaTimeoutError("the producer is closed"))  # noqa: SLF001 - as above
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_ABANDON_S):
            await producer.client.close()


async def _refuse(*_: Any, **__: Any) -> None:
    raise KafkaConnectionError("the producer is closed")


_CONCURRENT_STARTS: Final = 16  # producers that are started in parallel: each opens its own connections


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """One record to publish, with an explicit partition."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    timestamp_ms: int | None = None  # ms UTC, the record's Kafka timestamp; None: the time of the send


class ProducerGone(Exception):
    """The release partition's producer is closed or was never started: start it, then read the ledger again."""


class TransactionalProducers:
    """Producers of one worker. One that was fenced or failed is closed; `start_missing` starts a new one."""

    def __init__(self, domain: str, name: str, client: dict[str, Any]) -> None:
        """Args: `name` of the policy; `client`, aiokafka's connection options."""
        self.sent = 0  # records since the start of the process
        self._domain = domain
        self._name = name
        self._client = client
        self._producers: dict[int, AIOKafkaProducer] = {}
        self._renewed: set[int] = set()

    async def publish(self, release_partition: int, messages: Iterable[OutputMessage]) -> None:
        """Send all messages in one transaction and wait for its commit (acks=all).

        Uses only a producer that was started before the messages were read from the ledger: with one started now, this
        worker could send releases whose noise another worker, which has fenced it meanwhile, has drawn again.
        Raises ProducerGone if another worker, also one of another policy, has taken over, and KafkaError: then nothing
        or everything was published. After an error the producer is closed, and the messages must be read from the
        ledger again. Transactions of several release partitions may run at once, of one they may not.
        """
        producer = self._producers.get(release_partition)
        if producer is None:
            raise ProducerGone
        try:
            with METERS.timed(PUBLISH_SECONDS):
                async with time_limit(), Transaction(producer):
                    number = await send_all(producer, messages)
        except (ProducerFenced, IllegalOperation):  # IllegalOperation: fenced between two sends
            METERS.count(FENCED)
            await self._drop(release_partition)
            raise ProducerGone from None
        except BaseException:
            await self._drop(release_partition)
            raise
        self.sent += number  # not around the await: transactions of other partitions end meanwhile

    async def start_missing(self, release_partitions: frozenset[int]) -> None:
        """Start the missing producers; this fences the producers of other workers for these partitions.

        Raises KafkaError.
        """
        missing = [r for r in sorted(release_partitions) if r not in self._producers]
        for release_partition, producer in zip(missing, await self._start_all(self._name, missing), strict=True):
            self._producers[release_partition] = producer
            self._renewed.add(release_partition)

    def renewed(self) -> frozenset[int]:
        """Return the release partitions whose producer was started since the last call.

        Other workers may have sent records of these partitions before.
        """
        renewed = frozenset(self._renewed)
        self._renewed.clear()
        return renewed

    async def fence(self, partitions: Mapping[str, int]) -> None:
        """Fence every producer of the domain, this worker's own included.

        partitions   policy name -> number of its release partitions
        Raises KafkaError.
        """
        await self.close_except(frozenset())
        for name, number in partitions.items():
            for producer in await self._start_all(name, range(number)):
                await stop_producer(producer)

    async def close_except(self, owned: frozenset[int]) -> None:
        """Close the producers of all other release partitions: other workers own them now."""
        await asyncio.gather(*(self._drop(r) for r in list(self._producers) if r not in owned))

    async def stop(self) -> None:
        """Close all producers."""
        await self.close_except(frozenset())

    async def _start_all(self, name: str, release_partitions: Sequence[int]) -> list[AIOKafkaProducer]:
        """Start a producer for each release partition, or none. Raises KafkaError."""
        producers: list[AIOKafkaProducer] = []
        first, rest = release_partitions[:1], release_partitions[1:]
        batches = [first, *(rest[at : at + _CONCURRENT_STARTS] for at in range(0, len(rest), _CONCURRENT_STARTS))]
        for batch in batches:  # the first producer alone: if no broker answers, one attempt is enough
            started = await asyncio.gather(*(self._start(name, r) for r in batch), return_exceptions=True)
            producers += [each for each in started if isinstance(each, AIOKafkaProducer)]
            for error in started:
                if isinstance(error, BaseException):
                    await asyncio.gather(*map(stop_producer, producers))
                    raise error
        return producers

    async def _start(self, name: str, release_partition: int) -> AIOKafkaProducer:
        transactional_id = f"hatcast/{self._domain}/{name}/{release_partition}"
        return await start_producer(transactional_id, self._client, compression_type="gzip")

    async def _drop(self, release_partition: int) -> None:
        producer = self._producers.pop(release_partition, None)
        if producer is not None:
            await stop_producer(producer)


async def send_all(producer: AIOKafkaProducer, messages: Iterable[OutputMessage]) -> int:
    """Send messages and wait until Kafka has them; return their number. Raises KafkaError."""
    sent = []
    for m in messages:
        try:
            future = await producer.send(
                m.topic, m.value, m.key, m.partition, timestamp_ms=m.timestamp_ms, headers=m.headers
            )
        except AssertionError:  # raised by aiokafka: the topic was made again with fewer partitions
            raise UnknownTopicOrPartitionError(m.topic) from None
        # If many fail, only one error is raised, and asyncio would report the others as never retrieved.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        sent.append(future)
    await asyncio.gather(*sent)
    return len(sent)
