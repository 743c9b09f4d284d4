"""Resend ledger records whose HATs are not open: those that are not published, or those of a topic that was lost.

An unpublished record was adopted from an aborted transaction, or from behind an open one, and its contributions are
deleted.    [docs/specification/release.md, Adopting; docs/runbook.md, A lost output topic]
"""

from collections.abc import Mapping, Sequence

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.batching import sends_of
from hatcast.agents.release.kind import release_partition_of
from hatcast.agents.release.messages import budget_messages, release_message
from hatcast.stream.records.projections import HEAD


class Resender:
    """Resends records as the owner of release partitions."""

    def __init__(
        self,
        settings: Settings,
        ledger: LedgerStore,
        recovery: LedgerRecovery,
        producers: TransactionalProducers,
        partitions: int,
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._ledger = ledger
        self._recovery = recovery
        self._producers = producers
        self._partitions = partitions

    async def resend(self, dates: list[str], owned: frozenset[int]) -> None:
        """Send unpublished records of these dates and release partitions.

        Raises ProducerGone, KafkaError and Unrecovered; Behind, as `LedgerRecovery.confirm`, also if one of these
        partitions was not taken over. What was not sent is resent after the next `LedgerRecovery.ensure`.
        """
        for date in dates:
            if await self._ledger.count_unpublished(date):
                await self._send_all(date, await self._ledger.unpublished_records(date), owned)

    async def republish(self, date: str, owned: frozenset[int]) -> int:
        """Send the published records of a date again, in order; return their number. Raises as `resend`.

        An unpublished one has its own time: a worker sends it, with the slot that it belongs to.
        """
        records, unpublished = await self._ledger.records(date), await self._ledger.unpublished_records(date)
        published = records.keys() - unpublished.keys()
        in_order = sorted(published, key=lambda each: (HEAD.decode(records[each]).released_at, each))
        await self._send_all(date, {each: records[each] for each in in_order}, owned)
        return len(published)

    async def _send_all(self, date: str, records: Mapping[str, bytes], owned: frozenset[int]) -> None:
        by_owner: dict[int, list[tuple[str, bytes]]] = {}
        for release_id, record in records.items():
            cell = HEAD.decode(record).cell
            release_partition = release_partition_of(self._policy, release_id, cell, self._partitions)
            if release_partition in owned:
                by_owner.setdefault(release_partition, []).append((release_id, record))
        for pending in sends_of(by_owner):
            for release_partition, of_partition in pending.items():
                await self._send(release_partition, date, of_partition)

    async def _send(self, release_partition: int, date: str, records: Sequence[tuple[str, bytes]]) -> None:
        messages = [release_message(self._settings, name, record, self._partitions) for name, record in records]
        public_ms = messages[-1].timestamp_ms
        messages += await budget_messages(self._settings, self._ledger, [date], public_ms, lambda _: None)
        await self._recovery.confirm([release_partition])
        await self._producers.publish(release_partition, messages)
        await self._ledger.mark_published(date, [release_id for release_id, _ in records])
        # No confirm after the mark: another send confirms, sealing catches up first, and a round begins with `ensure`.
