"""Proving Redis: fence, read what was published, put back what is missing, write the proof.    [design 4, Proven]

The output topics are the ledger's second home. All publishing goes through the transactional producers, so once each
of their ids was taken over, no older worker can add a byte; what is on the topics then, aborted sends included, is all
that ever left.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from agents.clock import monotonic_s
from agents.kafka import confluent_options
from agents.metrics.declared import PROOFS
from agents.metrics.meters import METERS
from agents.published import published_of
from agents.publisher import Publishers
from agents.settings import Settings
from agents.store.proof import Answered, ProofStore, Published, Span
from stream.contracts import BUDGET, BudgetRecord
from stream.spending import fineness_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = structlog.get_logger()

_BATCH: Final = 2_000
_POLL_S: Final = 0.1  # consume() waits that long to fill a batch
_SILENCE_S: Final = 30.0


class Prover:
    """Keeps a worker from committing to a Redis that lost something.

    token   of the proof that commits compare; "" while there is none that we know of
    """

    def __init__(self, settings: Settings, store: ProofStore, publishers: Publishers, partitions: int) -> None:
        self.token = ""
        self.publishers = publishers
        self._settings = settings
        self._store = store
        self._partitions = partitions
        self._fineness = fineness_of(settings.policy)

    async def ensure(self) -> bool:
        """True if Redis is proven, by us or by another worker; False if somebody is at it, or it changed again."""
        token = None
        try:
            token = await self._store.token(self.publishers.held())
            if token is None:
                self.token = ""
                token = await self._prove_alone()
        finally:
            self.token = token or ""
        return token is not None

    async def is_proven(self, token: str) -> bool:
        """True if Redis has the proof with this token, in this life of the server."""
        return token != "" and await self._store.token() == token

    async def _prove_alone(self) -> str | None:
        if not await self._store.lock():
            return None
        token = None
        try:
            token = await self._prove()
        finally:
            METERS.count(PROOFS, result="proven" if token else "failed")
            await self._store.unlock()
        return token

    async def _prove(self) -> str | None:
        attempt = await self._store.begin()
        log.warning("proving Redis", run_id=attempt.run_id)
        # Anew, also those that are ours: whoever had one after us would not be fenced by it.
        await self.publishers.keep(frozenset())
        await self.publishers.hold(frozenset(range(self._partitions)))
        topics = self._settings.topics
        records = read_outputs(self._settings, [topics.means, topics.queries, topics.budget])
        seen = missing = 0
        found = Found()
        while batch := await asyncio.to_thread(self._take, records):
            seen += len(batch)
            missing += await self._adopt(self._releases(batch, found))
        if missing:
            sent = read_committed_ids(self._settings, [topics.means, topics.queries])
            while ids := await asyncio.to_thread(lambda: list(islice(sent, _BATCH))):
                await self._store.mark(ids)
        for date in found.dates:
            await self._store.number(date)
        for answered in found.answered:
            await self._store.reserve(answered)
        for budget in found.budgets.values():
            await self._store.recall(budget)
        for name, span in found.spans.items():
            await self._store.restore_progress(name, span, self._partitions)
        proven = await self._store.prove(attempt, self.publishers.held())
        log.info("Redis proven", records=seen, missing=missing, proven=proven)
        return attempt.token if proven else None

    async def _adopt(self, published: list[Published]) -> int:
        """Put back what is missing; returns how many were.

        Redis may also hold another record of a release: it was committed and not sent, then lost, drawn anew by
        somebody and sent; and now it is back, from a copy. What was sent is what counts.    [decisions/0010]
        """
        missing, others = await self._store.adopt(published)
        for sent in others:
            record = await self._store.kept(sent)
            if record is not None:
                log.warning("a record that was never sent gives way", release_id=sent.release_id)
                kept = published_of(record, self._settings.policy.policy_id, self._fineness)
                await self._store.supersede(kept, sent)
                missing += 1  # for what follows: of this one too Redis does not know that it was sent
        return missing

    def _take(self, records: Iterator[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """The next records of the output topics; memory holds these, and not a topic."""
        return list(islice(records, _BATCH))

    def _releases(self, records: Iterable[tuple[str, bytes]], found: "Found") -> list[Published]:
        """The releases among the records; what else these tell goes to `found`."""
        releases = []
        for topic, value in records:
            try:
                if topic == self._settings.topics.budget:
                    found.see_budget(BUDGET.decode(value))
                else:
                    release = published_of(value, self._settings.policy.policy_id, self._fineness)
                    found.see(release)
                    releases.append(release)
            except (msgspec.DecodeError, ValueError):
                log.warning("a record that is not ours on an output topic", topic=topic)
        return releases


@dataclass(slots=True)
class Found:
    """What the output topics tell beside their releases.

    dates     of the releases
    answered  by queries: what they have reserved
    budgets   (policy name, date) -> the newest budget record
    spans     policy name -> its slots, under `add_remove`
    """

    dates: set[str] = field(default_factory=set)
    answered: set[Answered] = field(default_factory=set)
    budgets: dict[tuple[str, str], BudgetRecord] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)

    def see_budget(self, budget: BudgetRecord) -> None:
        """Keep it if it is the newest of its policy and date."""
        known = self.budgets.get((budget.policy, budget.date))
        if known is None or known.seq <= budget.seq:
            self.budgets[budget.policy, budget.date] = budget

    def see(self, release: Published) -> None:
        """Keep its date, and widen its policy's span."""
        self.dates.add(release.date)
        if release.answered is not None:
            self.answered.add(release.answered)
        start_ms = release.slot_start_ms
        if start_ms is not None:
            self.spans[release.name] = self.spans.get(release.name, Span(start_ms, start_ms)).widened(start_ms)


def read_outputs(settings: Settings, topics: list[str]) -> Iterator[tuple[str, bytes]]:
    """(topic, value) of every record up to the ends that the topics have now, those of aborted transactions too.

    Raises KafkaError of aiokafka's kind if the brokers stop answering.
    """
    for message in _messages(settings, topics, "read_uncommitted"):
        name, value = message.topic(), message.value()
        if name is not None and value is not None:
            yield name, value


def read_committed_ids(settings: Settings, topics: list[str]) -> Iterator[str]:
    """The keys of the records, without those of aborted transactions: their release_ids. Raises like `read_outputs`."""
    for message in _messages(settings, topics, "read_committed"):
        key = message.key()
        if key is not None:
            yield key.decode(errors="replace")


def _messages(settings: Settings, topics: list[str], isolation: str) -> "Iterator[Message]":
    from aiokafka.errors import KafkaConnectionError
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    options = confluent_options(settings) | {
        "group.id": "hatcast-recovery",  # the library wants one; nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        # No waiting for more where there is none, and none for room where the queue was full.
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 10,
    }
    consumer = Consumer(options)
    try:
        left = {place for topic in topics for place in _partitions(consumer, topic)}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in sorted(left)])
        heard_s = monotonic_s()
        while left:
            messages = consumer.consume(_BATCH, _POLL_S)
            if messages:
                heard_s = monotonic_s()
            elif monotonic_s() - heard_s > _SILENCE_S:
                raise KafkaConnectionError("the output topics could not be read to their ends")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                    left.discard((message.topic() or "", message.partition() or 0))
                else:
                    raise KafkaConnectionError(error.str())
    except KafkaException as raised:
        raise KafkaConnectionError(str(raised)) from None
    finally:
        consumer.close()


def _partitions(consumer: "Consumer", topic: str) -> list[tuple[str, int]]:
    """A topic's partitions. A topic that cannot be looked at is not an empty one: raises KafkaConnectionError."""
    from aiokafka.errors import KafkaConnectionError

    found = consumer.list_topics(topic, timeout=_SILENCE_S).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaConnectionError(f"{topic}: {found.error}")
    return [(topic, partition) for partition in found.partitions]
