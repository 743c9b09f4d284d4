"""Adopt records from the output topics into the ledger, batch by batch, from the adopted positions to given ends."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import TypeVar

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import OutputBatch, OutputReader
from hatcast.agents.recovery.published_records import Contents, decode_contents
from hatcast.agents.recovery.starts import Start, offset_of
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.adoption import AdoptionBatch, OutputPartition, Position, Published
from hatcast.stream.ledger.recovery import RecoveryCheck
from hatcast.stream.ledger.rejections import AlreadyAdopted, RecordsMissing, RecoveryEnded
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import BudgetRecord
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of

log = structlog.get_logger()

T = TypeVar("T")


class Adopter:
    """Adopts records for one worker. Any number of workers may adopt at once: each batch is stored and done once."""

    def __init__(self, policy: Policy, store: RecoveryStore, reader: OutputReader) -> None:
        self._policy = policy
        self._store = store
        self._reader = reader
        self._fineness = fineness_of(policy)
        self.budgets: dict[tuple[str, str], BudgetRecord] = {}  # the newest that were read, of a policy and date
        self._calendar = Calendar(policy)

    async def adopt(
        self,
        domain: Domain,
        check: RecoveryCheck,
        starts: Mapping[OutputPartition, Start],
        ends: Mapping[OutputPartition, Position],
    ) -> int:
        """Adopt all records up to the ends; return how many records Redis lacked or had with other bytes.

        Raises RecoveryEnded if the required recovery has ended, and HatcastError if a slot that is not sealed was
        published under other rules of its local date: this worker's HATs would have readings that it has, too.
        """
        partitions = list(ends)
        if partitions:  # workers that share a recovery start with different partitions
            at = int(monotonic_s() * 1_000) % len(partitions)
            partitions = partitions[at:] + partitions[:at]
        stored = {each: await self._start(check, each, starts[each]) for each in partitions}
        offsets = {each: offset_of(known, ends[each].topic_id) for each, known in stored.items()}
        reading = self._reader.read(offsets, {partition: end.offset for partition, end in ends.items()})
        missing, resume_at = 0, None
        try:
            while (fetched := await _in_thread(_next, reading, resume_at)) is not None:
                partition, contents = fetched.partition, self.contents(domain, fetched)
                following = Position(ends[partition].topic_id, fetched.following)
                spans = {name: (span, domain.partitions.get(name, 0)) for name, span in contents.spans.items()}
                read = contents.releases, contents.budget_days, contents.answered, [*contents.budgets.values()], spans
                batch = AdoptionBatch(partition, stored[partition], following, *read)
                try:
                    self.budgets |= contents.budgets
                    missing += await self._adopt_batch(check, batch)
                except AlreadyAdopted as other:  # another worker was faster: continue at its position
                    stored[partition] = other.stored
                    resume_at = offset_of(other.stored, following.topic_id)
                else:
                    stored[partition], resume_at = following, None
        finally:
            await asyncio.to_thread(reading.close)
            await asyncio.to_thread(self._reader.close)
        return missing

    async def _start(self, check: RecoveryCheck, partition: OutputPartition, start: Start) -> Position | None:
        """Store where reading starts; return the stored position, another worker's if that was faster."""
        if start.first != start.stored:
            try:
                await self._store.adopt(check, AdoptionBatch(partition, start.stored, start.first, []))
            except AlreadyAdopted as other:
                return other.stored
        return start.first

    def contents(self, domain: Domain, fetched: OutputBatch) -> Contents:
        """Decode a batch of an output topic."""
        topic, policy_id = fetched.partition.topic, self._policy.policy_id
        holds_budgets = topic in domain.budgets
        contents = decode_contents(topic, fetched.records, policy_id, self._fineness, holds_budgets=holds_budgets)
        for name, date, start, end in contents.slots:
            if not domain.is_sealed(name, date):
                self._calendar.check_published(date, start, end)
        return contents

    async def _adopt_batch(self, check: RecoveryCheck, batch: AdoptionBatch) -> int:
        """Adopt one batch; return how many of its records Redis lacked or had with other bytes.

        Raises RecoveryEnded, AlreadyAdopted.
        """
        try:
            await self._store.adopt(check, batch)
        except RecordsMissing as error:
            found = error
        else:
            return 0
        first = min(offset for offset, _ in batch.records)
        committed = await _in_thread(self._reader.committed, batch.partition, first, batch.following.offset)
        for _, sent in batch.records:
            if sent.release_id in found.different:
                await self._supersede(check, sent, in_kafka=sent.release_id in committed)
        try:
            await self._store.adopt(check, batch, found.missing, committed)
        except RecordsMissing:  # Redis has just lost records that it had
            raise RecoveryEnded from None
        return len(found.missing | found.different)

    async def _supersede(self, check: RecoveryCheck, sent: Published, *, in_kafka: bool) -> None:
        """Replace the record in Redis by the one that was sent.    [decisions/0004]

        The stored record was committed and not sent, then lost; another worker drew the release again and sent it; and
        now the old record is back, from a copy of Redis. The sent record counts.
        """
        record = await self._store.record_of(sent)
        if record is None or record == sent.record:
            return
        log.warning("a record that was never sent is replaced", release_id=sent.release_id)
        unsent = published_of(record, self._policy.policy_id, self._fineness)
        await self._store.supersede(check, unsent, sent, in_kafka=in_kafka)


async def _in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a call in a thread. A cancellation waits for the call to end, because a reader in use cannot be closed."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _next(reading: Generator[OutputBatch, int | None, None], resume_at: int | None) -> OutputBatch | None:
    """Return the next batch; None at the end. `resume_at`: the offset at which the last batch's partition continues."""
    with suppress(StopIteration):
        return reading.send(resume_at)
    return None
