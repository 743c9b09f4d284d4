"""Transactional producers, one for each release partition that this worker owns.    [design 4, Release]

The `transactional.id` is `hatcast/<domain>/<r>`: a worker that takes over r fences whoever had it before, whose next
send fails. What is sent in a transaction is seen by readers of committed records all at once, or not at all.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, KafkaConnectionError, KafkaError, ProducerFenced

from agents.metrics.declared import FENCED, PUBLISH_SECONDS
from agents.metrics.meters import METERS
from agents.redial import redial_slowly
from agents.store.proof import Term

log = structlog.get_logger()

_STOP_S: Final = 5.0  # the stop of a fenced producer may hang


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


class NotHeld(Exception):
    """The producer of this release partition is gone, or was never made: hold it, then read the ledger again."""


class Publishers:
    """The producers of one worker. One that was fenced, or failed, is dropped, and made again by the next `hold`."""

    def __init__(self, domain: str, client: dict[str, Any]) -> None:
        """Args: `client`, how aiokafka reaches the brokers."""
        self._domain = domain
        self._client = client
        self._producers: dict[int, AIOKafkaProducer] = {}

    async def publish(self, release_partition: int, messages: Iterable[Message]) -> None:
        """Send all in one transaction and wait for its commit (acks=all).

        Only by a producer that was held before the records were read: one made now could send what another worker,
        who has fenced us meanwhile, has drawn anew.
        Raises NotHeld where another worker has taken over, also one of another policy, and KafkaError: nothing was
        published then, or all.
        The producer is gone afterwards, and what is to be sent has to be read from the ledger again.
        """
        producer = self._producers.get(release_partition)
        if producer is None:
            raise NotHeld
        try:
            with METERS.timed(PUBLISH_SECONDS):
                await _send(producer, messages)
        except (ProducerFenced, IllegalOperation):  # the second: between two sends, when the transaction is gone
            METERS.count(FENCED)
            await self._drop(release_partition)
            raise NotHeld from None
        except BaseException:
            await self._drop(release_partition)
            raise

    async def hold(self, release_partitions: frozenset[int]) -> None:
        """Make the producers that are missing: from then on nobody else's of these partitions can send.

        Raises KafkaError.
        """
        missing = [r for r in sorted(release_partitions) if r not in self._producers]
        for first in missing[:1]:  # alone: where no broker answers, one has asked for all
            await self._make(first)
        made = await asyncio.gather(*(self._make(r) for r in missing[1:]), return_exceptions=True)
        for error in made:
            if isinstance(error, BaseException):
                raise error

    def held(self) -> dict[int, Term]:
        """The producers that we have, some of which may be fenced by now."""
        # aiokafka 0.14 has no public way to a producer's id; test_faust_pins.py hashes what it needs.
        terms = {r: producer._txn_manager for r, producer in self._producers.items()}  # noqa: SLF001
        return {r: Term(term.producer_id, term.producer_epoch) for r, term in terms.items()}

    async def keep(self, owned: frozenset[int]) -> None:
        """Let go of the producers of release partitions that went to other workers."""
        for release_partition in [r for r in self._producers if r not in owned]:
            await self._drop(release_partition)

    async def stop(self) -> None:
        """Close all producers."""
        await self.keep(frozenset())

    async def _make(self, release_partition: int) -> None:
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() is None:
            loop.set_exception_handler(_tell)
        producer = AIOKafkaProducer(
            transactional_id=f"hatcast/{self._domain}/{release_partition}",
            acks="all",
            compression_type="gzip",
            **self._client,
        )
        try:
            redial_slowly(producer.client)
            await producer.start()
        except AssertionError:  # aiokafka's: a broker that comes back may name no broker at all, not even itself
            await _stop(producer)
            raise KafkaConnectionError("no broker is known") from None
        except BaseException:
            await _stop(producer)
            raise
        self._producers[release_partition] = producer

    async def _drop(self, release_partition: int) -> None:
        producer = self._producers.pop(release_partition, None)
        if producer is not None:
            await _stop(producer)


async def _send(producer: AIOKafkaProducer, messages: Iterable[Message]) -> None:
    async with producer.transaction():
        sent = []
        for m in messages:
            future = await producer.send(
                m.topic, m.value, m.key, m.partition, timestamp_ms=m.timestamp_ms, headers=m.headers
            )
            future.add_done_callback(_heard)
            sent.append(future)
        await asyncio.gather(*sent)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio complains of, but for Kafka's failures: aiokafka keeps each in more futures than it reads.

    The call that failed has raised it. A complaint would come when such a future is collected, at any time later.
    """
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)


def _heard(sent: "asyncio.Future[Any]") -> None:
    """Of many sends that fail together one is raised; asyncio would complain about the others."""
    if not sent.cancelled():
        sent.exception()


async def _stop(producer: AIOKafkaProducer) -> None:
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
