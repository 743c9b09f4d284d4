"""Answer queries over days.    [decisions/0014]

Contributions of queried HATs are retained when the HATs are deleted (agents/redis/retained.py). Once the last slot of a
period is final and none of its HATs is open, each cell gets its one answer. The retained contributions are deleted when
the last query that reads them is answered for all cells.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import msgspec

from hatcast.agents.clock import now_ms
from hatcast.agents.kafka.registry import Facts, LimitRequest, Registry, read_request, request_key
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.retained import Gap, Retained, RetainedStore
from hatcast.agents.release.kind import Due, DuePart, ReleaseContext, ReleaseKind
from hatcast.agents.release.path import ReleasePath
from hatcast.stream.fold.calendar import Calendar, Slot, closes_at, min_watermark
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.placed import utc_text
from hatcast.stream.release.queries import QueryPeriod, RetainedPeriod, answers_of, query_periods
from hatcast.stream.release.schedule import listed_cells


@dataclass(frozen=True, slots=True)
class DueAnswer(Due):
    """A query about a cell whose period is over, and the number of users, of all days, retained for it."""

    max_users: ClassVar[int] = 400_000

    query_period: QueryPeriod = field(compare=False)
    first_ms: int  # slots that began earlier (ms UTC) are not the policy's

    @property
    def dates(self) -> Sequence[str]:
        """The dates of the period: the answer's reservation is on each."""
        return self.query_period.period.dates

    @property
    def loaded_with(self) -> Hashable:
        """Query and period."""
        return self.query_period.key


class RequestedLimits:
    """Decides the speed limit of a period before its first answer is drawn, for good."""

    def __init__(self, policy: str, registry: Registry) -> None:
        """Args: `policy`, its name."""
        self._policy = policy
        self._registry = registry
        self._decided: dict[str, LimitRequest] = {}

    async def decide(self, period: QueryPeriod) -> QueryPeriod:
        """Return the period with its requested limit; without a request, close it to requests and return it unchanged.

        Raises KafkaError if the registry cannot be read or written, and HatcastError if its record cannot be decoded.
        """
        query = period.query
        if not query.on_request:
            return period
        key = request_key(self._policy, query.name, period.period.first.isoformat())
        limit = (self._decided.get(key) or await self._read_or_close(key)).speed_limit
        return period if limit is None else period.with_limit(limit)

    async def _read_or_close(self, key: str) -> LimitRequest:
        closed = LimitRequest(speed_limit=None, decided_at=utc_text(now_ms()))

        def decide(facts: Facts) -> Mapping[str, bytes]:
            return {} if key in facts.values else {key: msgspec.json.encode(closed)}

        decided = read_request((await self._registry.write(decide)).values, key)
        if decided is None:
            raise RuntimeError(f"the registry has not stored {key}")
        self._decided[key] = decided
        return decided


class AnswerReleases:
    """The answers to queries over days, their kind and its path, in one worker."""

    def __init__(self, context: ReleaseContext, retained: RetainedStore) -> None:
        self._context = context
        self._policy = context.policy
        self._calendar = Calendar(context.policy)
        self._store = context.store
        self._ledger = context.ledger
        self._retained = retained
        self._limits = RequestedLimits(self._policy.name, context.registry)
        self._answered_state: object = None  # everything was answered when it was read
        kind = ReleaseKind(
            name="query",
            noun="answers",
            order="groups",
            due=self.due,
            load=self.load,
            draw=self.draw,
            delete=self.delete,
            is_done=self.is_done,
        )
        self.path = ReleasePath(context, kind)

    async def due(self, owned: frozenset[int]) -> AsyncGenerator[DuePart[DueAnswer]]:
        """Yield the due answers of release partitions, under `replace`.

        After all are answered, look again once a slot becomes final or more is retained.
        """
        with self._context.failures.attempt("find due answers"):
            watermark = min_watermark(await self._store.watermarks())
            if watermark is None or not owned:
                return
            end_date = await self._ledger.end_date()
            newest = self._calendar.slot_at(watermark - self._policy.lateness_ms).key
            state = (newest, end_date, owned, self._context.recovery.guard.token)
            # A cluster may lose a node with HATs, which are retained again, while the node with the ledger stays.
            if self._answered_state == (state, await self._retained.slot_counts()):
                return
            open_slots = await self._store.open_slots()
            periods = [
                period
                for period in await retained_periods(self._retained, self._policy, self._calendar, end_date)
                if watermark >= closes_at(period.closing, self._policy)
                and not any(slot.key in open_slots for slot in period.slots)
            ]
            # Final slots are still to be released, by any worker, and then retained: the next round finds more.
            has_final = any(watermark >= end + self._policy.lateness_ms for end in open_slots.values())
            due = await self.due_of(periods, owned)
        yield DuePart(due)
        if not has_final:
            self._answered_state = (state, await self._retained.slot_counts())

    async def is_done(self, end_date: str) -> bool:
        """Return True if nothing is retained for a query whose period ends before a local date.

        Otherwise not all of its answers are published.
        """
        return not await retained_periods(self._retained, self._policy, self._calendar, end_date)

    async def answer(
        self, periods: Sequence[QueryPeriod], owned: frozenset[int], cells: Sequence[str], first_ms: int
    ) -> bool:
        """Answer queries, under `add_remove`, about those of these cells whose release partitions are owned.

        first_ms   slots that began earlier (ms UTC) are not the policy's
        Returns False if something is left: a partition's watermark has gone back, a HAT is open again, or other workers
        have not committed all of their answers. Groups would depend on user counts, which are private: everything is
        sent at once, together with the cost of the days after the answers of all workers.
        """
        due = await self.due_of(periods, owned, cells, first_ms)
        return await self.path.release_together(due, partial(self._all_committed, periods))

    async def due_of(
        self,
        periods: Sequence[QueryPeriod],
        owned: frozenset[int],
        cells: Sequence[str] | None = None,
        first_ms: int = 0,
    ) -> list[DueAnswer]:
        """Return the answers in release partitions about cells; None: about all with retained contributions."""
        due = []
        for open_period in periods:
            # Before the first draw, and of the same value in every worker: see RequestedLimits.
            period = await self._limits.decide(open_period)
            users = await self._retained.cells([slot.key for slot in period.slots])
            for cell in sorted(users if cells is None else cells):
                name, date = period.release_id(cell), period.closing.date
                answer = DueAnswer(name, cell, date, users.get(cell, 0), period, first_ms)
                if self._context.release_partition(answer) in owned:
                    due.append(answer)
        return due

    async def _all_committed(self, periods: Sequence[QueryPeriod]) -> bool:
        """Return True if all workers have committed their answers about the listed cells."""
        cells = listed_cells(self._policy)
        by_period = [(period.closing.date, [period.release_id(cell) for cell in cells]) for period in periods]
        return not any([await self._ledger.count_missing(date, names) for date, names in by_period])

    async def load(self, batch: Sequence[DueAnswer]) -> Retained | None:
        """Load the retained contributions of a period; None if a watermark is low or a HAT is open."""
        period = batch[0].query_period
        slots, closes_ms = [slot.key for slot in period.slots], closes_at(period.closing, self._policy)
        return await self._retained.load(slots, closes_ms, [due.cell for due in batch])

    async def draw(self, batch: Sequence[DueAnswer], loaded: Retained) -> Mapping[DueAnswer, AnyProposal]:
        """Draw each answer with its noise, in a thread."""
        return await asyncio.to_thread(self._draw, batch, loaded)

    def _draw(self, batch: Sequence[DueAnswer], loaded: Retained) -> Mapping[DueAnswer, AnyProposal]:
        period, cells = batch[0].query_period, [due.cell for due in batch]
        retained = RetainedPeriod(loaded.data, loaded.parts, batch[0].first_ms, partial(self._has_lost, loaded.gaps))
        answers = answers_of(period, self._calendar, cells, retained, self._context.noise)
        return self._context.proposals(batch, answers)

    def _has_lost(self, gaps: Sequence[Gap], slot: Slot) -> bool:
        """Return True if a partition may have lost readings of a slot.

        The slot's day begins before the gap ends, and the slot was open when the gap began.
        """
        starts_ms, closes_ms = self._calendar.day_start(slot.date), closes_at(slot, self._policy)
        return any(starts_ms < gap.until_ms and (gap.from_ms is None or gap.from_ms < closes_ms) for gap in gaps)

    async def delete(self, released: Sequence[DueAnswer]) -> None:
        """Delete retained contributions that only answered queries read.

        A slot is deleted as a whole, once every query that reads it is answered for every cell: whether a slot is
        missing depends on all its cells. The worker that publishes the last answer finds all others published, and
        deletes.
        """
        periods = {due.loaded_with: due.query_period for due in released}.values()
        slots = {slot.key for period in periods for slot in period.slots}
        end_date = await self._ledger.end_date()
        for reader in query_periods(self._policy, self._calendar, slots):
            if reader.closing.date < end_date and not await self._is_answered(reader):
                slots.difference_update(slot.key for slot in reader.slots)
        hats = [(slot, cell) for slot in sorted(slots) for cell in await self._retained.cells([slot])]
        if hats:
            await self._retained.delete(hats)

    async def _is_answered(self, period: QueryPeriod) -> bool:
        """Return True if Kafka has the answers about all cells with retained contributions."""
        if period.closing.date <= self._context.recovery.sealed_through:
            return True
        cells = await self._retained.cells([slot.key for slot in period.slots])
        return all(await self._ledger.are_published(period.closing.date, [*map(period.release_id, cells)]))


async def retained_periods(
    retained: RetainedStore, policy: Policy, calendar: Calendar, end_date: str
) -> list[QueryPeriod]:
    """Return the periods with retained contributions that end before a local date, by closing slot."""
    periods = query_periods(policy, calendar, await retained.slots())
    return [period for period in periods if period.closing.date < end_date]


async def count_unanswered(store: HatStore, retained: RetainedStore, ledger: LedgerStore, policy: Policy) -> int:
    """Count the answers that are due and not published, of cells with retained contributions."""
    watermark, calendar = min_watermark(await store.watermarks()), Calendar(policy)
    missing = 0
    sealed_through = await ledger.sealed_through()
    for period in await retained_periods(retained, policy, calendar, await ledger.end_date()):
        if period.closing.date <= sealed_through:
            continue  # retained again since its partition went back: all answers are published
        if watermark is not None and watermark >= closes_at(period.closing, policy):
            cells = await retained.cells([slot.key for slot in period.slots])
            records = await ledger.find(period.closing.date, [period.release_id(cell) for cell in cells])
            missing += sum(record is None or not record.published for record in records)
    return missing
