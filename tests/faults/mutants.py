"""The product with one promise broken on purpose: the checker has to see each of them, or it sees nothing.

Each mutant patches one process from outside, before its worker starts, and works as well as the product does while
nothing fails. `spoiled` adds the one fault that it cannot bear.
"""

import json
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.recovery.outputs import OutputBatch, OutputReader
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.agents.redis.retained import Retained
from hatcast.agents.release.hats import DueHat
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.release.queries import AnswerReleases, DueAnswer
from hatcast.agents.release.tracker import TrackedHats
from hatcast.stream.fold.checkpoint import FoldChanges
from hatcast.stream.ledger import commits, rows
from hatcast.stream.ledger.adoption import OutputPartition
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.proposals import Committed, Proposal
from hatcast.stream.ledger.recovery import Attempt, Nonces, RecoveryCheck
from hatcast.stream.ledger.sealed_days import Sealed
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.release.tracker_records import StoredDraw
from tests.faults.faulty_worker import meet
from tests.integration.recovering import adopt


def offset_before_state() -> None:
    """A checkpoint writes the offset, then the state: what was folded between them is lost by a kill."""
    product = PartitionStore.checkpoint

    async def checkpoint(self: PartitionStore, partition: int, base: int, following: int, changes: FoldChanges) -> bool:
        del base
        await self._redis.hset(self._keys[partition].state, "offset", str(following))
        return await product(self, partition, following, following, changes)

    PartitionStore.checkpoint = checkpoint  # type: ignore[method-assign]  # as below: this is what a mutant is


def noise_drawn_again() -> None:
    """What has to be sent again is drawn again."""
    product = ReleasePath.send

    async def send(
        self: ReleasePath[Any, Any], pending: Mapping[int, Sequence[tuple[DueHat, Committed]]]
    ) -> dict[int, BaseException]:
        if self.kind.name != "hat":
            return await product(self, pending)
        again = [due for part in pending.values() for due, record in part if not record.new]
        loaded = await self.load(again) if again else None
        drawn = {each.release_id: each.record for each in (await self.draw(again, loaded)).values()} if loaded else {}
        sent: dict[int, list[tuple[DueHat, Committed]]] = {r: [] for r in pending}
        for r, part in pending.items():
            for due, record in part:
                head, tail = drawn.get(due.release_id, (record.record, b""))
                number = b"%d" % json.loads(record.record)["seq"] if due.release_id in drawn else b""
                sent[r].append((due, replace(record, record=head + number + tail)))
        return await product(self, sent)

    ReleasePath.send = send  # type: ignore[method-assign,assignment]


def charged_after() -> None:
    """A release is sent, and only then written down and charged."""
    product, product_commit = ReleasePath.mark, ReleasePath.commit
    drawn: dict[str, bytes] = {}

    async def commit(self: ReleasePath[Any, Any], proposals: Sequence[Proposal]) -> list[Committed]:
        if self.kind.name != "hat":
            return await product_commit(self, proposals)
        drawn.update((each.release_id, (b"%d" % (len(drawn) + 1)).join(each.record)) for each in proposals)
        return [Committed(drawn[each.release_id], published=False, new=True) for each in proposals]

    async def mark(self: ReleasePath[Any, Any], batch: Sequence[DueHat]) -> None:
        if self.kind.name != "hat":
            await product(self, batch)
            return
        recovery, policy = self._recovery, self._context.policy
        sent = [drawn[due.release_id] for due in batch if due.release_id in drawn]
        records = [published_of(each, policy.policy_id, fineness_of(policy)) for each in sent]
        assert not await adopt(recovery._store, RecoveryCheck.finished(recovery.guard.token), records)
        await product(self, batch)

    ReleasePath.commit, ReleasePath.mark = commit, mark  # type: ignore[method-assign,assignment]


def no_recovery() -> None:
    """The ledger counts as recovered without a look at what was published."""
    product = RecoveryStore.finish

    def read(
        self: OutputReader, starts: Mapping[OutputPartition, int], ends: Mapping[OutputPartition, int]
    ) -> Generator[OutputBatch, int | None, None]:
        del self, starts, ends
        yield from ()

    async def finish(
        self: RecoveryStore,
        attempt: Attempt,
        sealed: Mapping[str, Sealed],
        nonces: Nonces,
    ) -> bool:
        for place, end in (await self.ends()).items():
            await self._redis.hset(self._keys.row(rows.ADOPTED), place.field, end.stored)
        return await product(self, attempt, sealed, nonces)

    OutputReader.read = read  # type: ignore[method-assign]
    RecoveryStore.finish = finish  # type: ignore[method-assign]


def no_fencing() -> None:
    """Every worker has transactional ids of its own, so that none fences another's, and confirms nothing before a send.

    Each of the two alone keeps a worker that was stopped from sending what Redis has lost since.
    """
    product = TransactionalProducers.__init__

    def init(self: TransactionalProducers, domain: str, name: str, client: dict[str, Any]) -> None:
        product(self, f"{domain}/{uuid.uuid4()}", name, client)

    async def confirm(self: LedgerRecovery, sending: Iterable[int] = ()) -> None:
        del self, sending

    TransactionalProducers.__init__ = init  # type: ignore[method-assign]
    LedgerRecovery.confirm = confirm  # type: ignore[method-assign]


def reserved_at_the_answer() -> None:
    """A day's first release reserves nothing for the queries that will read it."""

    def wanted(policy: Policy, date: str) -> dict[str, Reserved]:
        del policy, date
        return {}

    commits.reservations = wanted  # type: ignore[attr-defined] # imported there


def forgotten_once_read() -> None:
    """What is kept for a query is deleted once it is read, not once its answer is published."""
    product = AnswerReleases.load

    async def load(self: AnswerReleases, batch: Sequence[DueAnswer]) -> Retained | None:
        kept = await product(self, batch)
        if kept is not None:
            await self._retained.delete([(slot.key, due.cell) for slot in batch[0].query_period.slots for due in batch])
        return kept

    AnswerReleases.load = load  # type: ignore[method-assign]


def state_not_read() -> None:
    """A tracker begins every date without the state that is stored after the one before."""

    async def begin(self: TrackedHats) -> None:
        self.tracker = PolicyTracker(self._policy, None, self._timetable)
        self.closed.clear()

    TrackedHats.open = begin  # type: ignore[method-assign]


def other_number_learned() -> None:
    """A query that has a record is learned with a number that was never released."""
    product = StoredDraw.of

    def of(record: bytes) -> StoredDraw:
        stored = product(record)
        if stored.query is None:
            return stored
        return msgspec.structs.replace(stored, query=msgspec.structs.replace(stored.query, sum=0))

    StoredDraw.of = of  # type: ignore[method-assign]


def product() -> None:
    """Nothing is broken."""


MUTANTS: Final = MappingProxyType(
    {
        each.__name__: each
        for each in (
            product,
            offset_before_state,
            noise_drawn_again,
            charged_after,
            no_recovery,
            no_fencing,
            reserved_at_the_answer,
            forgotten_once_read,
            state_not_read,
            other_number_learned,
        )
    }
)


def spoiled(mutant: str, step: str = "", action: str = "", times: int = 0) -> None:
    """For `Pipeline.worker`: a mutant to which something happens at an end of a named step, after so many others."""
    if step:
        meet(step, action, times)  # first, so that it is inside: a mutant's own steps are around those of the product
    MUTANTS[mutant]()
