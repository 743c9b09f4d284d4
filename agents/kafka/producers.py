"""Transactional producers, one for each release partition that this worker owns.    [decisions/0002, 0027]

The `transactional.id` is `hatcast/<domain>/<policy>/<r>`: a worker that takes over r fences whoever had it before,
whose next send fails. What is sent in a transaction is seen by readers of committed records all at once, or not at all.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, ProducerFenced

from hatcast.agents.kafka.transactional import start_producer, stop_producer
from hatcast.agents.monitoring.declarations import FENCED, PUBLISH_SECONDS
from hatcast.agents.monitoring.meters import METERS

log = structlog.get_logger()

_AT_ONCE: Final = 16  # producers that are started side by side: each has connections of its own


@dataclass(frozen=True, slots=True)
class Message:
    """One record to publish, for an explicit partition.

    timestamp_ms   ms UTC, as Kafka shows it; None: when it is sent
    """

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    timestamp_ms: int | None = None


class ProducerGone(Exception):
    """The producer of this release partition is gone, or was never made: hold it, then read the ledger again."""


class TransactionalProducers:
    """The producers of one worker. One that was fenced, or failed, is dropped, and made again by the next `start_missing`."""

    def __init__(self, domain: str, name: str, client: dict[str, Any]) -> None:
        """Args: `name` of the policy; `client`, how aiokafka reaches the brokers."""
        self.sent = 0  # records, since the start
        self._domain = domain
        self._name = name
        self._client = client
        self._producers: dict[int, AIOKafkaProducer] = {}
        self._renewed: set[int] = set()

    async def publish(self, release_partition: int, messages: Iterable[Message]) -> None:
        """Send all in one transaction and wait for its commit (acks=all).

        Only by a producer that was held before the records were read: one made now could send what another worker,
        who has fenced us meanwhile, has drawn anew.
        Raises ProducerGone where another worker has taken over, also one of another policy, and KafkaError: nothing was
        published then, or all.
        The producer is gone afterwards, and what is to be sent has to be read from the ledger again.
        """
        producer = self._producers.get(release_partition)
        if producer is None:
            raise ProducerGone
        try:
            with METERS.timed(PUBLISH_SECONDS):
                self.sent += await _send(producer, messages)
        except (ProducerFenced, IllegalOperation):  # the second: between two sends, when the transaction is gone
            METERS.count(FENCED)
            await self._drop(release_partition)
            raise ProducerGone from None
        except BaseException:
            await self._drop(release_partition)
            raise

    async def start_missing(self, release_partitions: frozenset[int]) -> None:
        """Make the producers that are missing: from then on nobody else's of these partitions can send.

        Raises KafkaError.
        """
        missing = [r for r in sorted(release_partitions) if r not in self._producers]
        for release_partition, producer in zip(missing, await self._made(self._name, missing), strict=True):
            self._producers[release_partition] = producer
            self._renewed.add(release_partition)

    def renewed(self) -> frozenset[int]:
        """Return the release partitions whose producer was made since the last call: others may have sent before."""
        renewed = frozenset(self._renewed)
        self._renewed.clear()
        return renewed

    async def fence(self, partitions: Mapping[str, int]) -> None:
        """Fence every producer of the domain, ours too.

        partitions   policy name -> its release partitions
        Raises KafkaError.
        """
        await self.close_except(frozenset())
        for name, number in partitions.items():
            for producer in await self._made(name, range(number)):
                await stop_producer(producer)

    async def close_except(self, owned: frozenset[int]) -> None:
        """Let go of the producers of release partitions that went to other workers."""
        for release_partition in [r for r in self._producers if r not in owned]:
            await self._drop(release_partition)

    async def stop(self) -> None:
        """Close all producers."""
        await self.close_except(frozenset())

    async def _made(self, name: str, release_partitions: Sequence[int]) -> list[AIOKafkaProducer]:
        """Start a producer for each, or none. Raises KafkaError."""
        made: list[AIOKafkaProducer] = []
        first, rest = release_partitions[:1], release_partitions[1:]
        batches = [first, *(rest[at : at + _AT_ONCE] for at in range(0, len(rest), _AT_ONCE))]
        for batch in batches:  # the first alone: where no broker answers, one has asked for all
            started = await asyncio.gather(*(self._make(name, r) for r in batch), return_exceptions=True)
            made += [each for each in started if isinstance(each, AIOKafkaProducer)]
            for error in started:
                if isinstance(error, BaseException):
                    await asyncio.gather(*map(stop_producer, made))
                    raise error
        return made

    async def _make(self, name: str, release_partition: int) -> AIOKafkaProducer:
        transactional_id = f"hatcast/{self._domain}/{name}/{release_partition}"
        return await start_producer(transactional_id, self._client, compression_type="gzip")

    async def _drop(self, release_partition: int) -> None:
        producer = self._producers.pop(release_partition, None)
        if producer is not None:
            await stop_producer(producer)


async def _send(producer: AIOKafkaProducer, messages: Iterable[Message]) -> int:
    """Returns how many records were sent."""
    async with producer.transaction():
        sent = []
        for m in messages:
            future = await producer.send(
                m.topic, m.value, m.key, m.partition, timestamp_ms=m.timestamp_ms, headers=m.headers
            )
            future.add_done_callback(_heard)
            sent.append(future)
        await asyncio.gather(*sent)
    return len(sent)


def _heard(sent: "asyncio.Future[Any]") -> None:
    """Of many sends that fail together one is raised; asyncio would complain about the others."""
    if not sent.cancelled():
        sent.exception()
