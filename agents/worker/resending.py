"""Send again what the ledger has and Kafka has not committed, where no open HAT would bring it up.

Such a record was adopted from an aborted transaction, or from behind one that was open, and its contributions are gone.
"""

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import release_event
from hatcast.agents.kafka.producers import Message
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.release.budget_records import budget_message
from hatcast.stream.policy.policy import Relation
from hatcast.stream.readings.partitioner import by_murmur2


class _Record(msgspec.Struct):
    """What tells where a release or an answer goes. `query`: of an answer."""

    cell: str
    query: str | None = None


class Resender:
    """Resends for the owner of release partitions, who holds their producers."""

    def __init__(self, settings: Settings, ledger: LedgerStore, recovery: LedgerRecovery, partitions: int) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._ledger = ledger
        self._recovery = recovery
        self._partitions = partitions

    async def resend(self, dates: list[str], owned: frozenset[int]) -> None:
        """Send what of these dates is ours and not published. Raises ProducerGone and KafkaError, as a release does."""
        for date in dates:
            if not await self._ledger.count_unpublished(date):
                continue
            by_owner: dict[int, dict[str, bytes]] = {}
            for release_id, record in (await self._ledger.unpublished_records(date)).items():
                by_owner.setdefault(self._release_partition(release_id, record), {})[release_id] = record
            for release_partition, records in by_owner.items():
                if release_partition in owned:
                    await self._send(release_partition, date, records)

    async def _send(self, release_partition: int, date: str, records: dict[str, bytes]) -> None:
        summary = await self._ledger.summary(date)
        messages = [self._message(release_id, record) for release_id, record in records.items()]
        messages.append(budget_message(self._settings.topics, self._policy, date, summary))
        await self._recovery.confirm()
        await self._recovery.publishers.publish(release_partition, messages)
        await self._ledger.mark_published(date, list(records))

    def _message(self, release_id: str, record: bytes) -> Message:
        topics, read = self._settings.topics, msgspec.json.decode(record, type=_Record)
        return Message(
            topic=topics.means if read.query is None else topics.queries,
            partition=by_murmur2(read.cell.encode(), self._partitions),
            key=release_id.encode(),
            value=record,
            headers=release_event("release" if read.query is None else "query", release_id, topics.telemetry, record),
        )

    def _release_partition(self, release_id: str, record: bytes) -> int:
        """Whose owner sends it: under `add_remove` that of the cell's HATs."""
        hidden = self._policy.relation is Relation.ADD_REMOVE
        of = msgspec.json.decode(record, type=_Record).cell if hidden else release_id
        return by_murmur2(of.encode(), self._partitions)
