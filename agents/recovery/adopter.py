"""Adopt into the ledger what the output topics hold: from where Redis stands to given ends, stretch by stretch."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

import structlog

from agents.clock import monotonic_s
from agents.published import published_of
from agents.recovery.contents import Contents, contents_of
from agents.recovery.domain import Domain
from agents.recovery.outputs import OutputReader, Stretch
from agents.store.adoption import Chunk, OutputPartition, Position, Published
from agents.store.attempts import Ended, Grounds, Missing, Moved
from agents.store.recovery import RecoveryStore
from stream.policy import Policy
from stream.spending import fineness_of

log = structlog.get_logger()

T = TypeVar("T")


class Adopter:
    """Adopts for one worker. Any number of workers may adopt at once: each stretch is stored, and nobody repeats it."""

    def __init__(self, policy: Policy, store: RecoveryStore, reader: OutputReader) -> None:
        self._policy = policy
        self._store = store
        self._reader = reader
        self._fineness = fineness_of(policy)

    async def adopt(self, domain: Domain, grounds: Grounds, ends: Mapping[OutputPartition, Position]) -> int:
        """Adopt everything up to the ends; returns how many records Redis lacked, or had otherwise.

        Raises Ended if the grounds are gone.
        """
        places = list(ends)
        if places:  # workers that share a recovery begin at different places
            at = int(monotonic_s() * 1_000) % len(places)
            places = places[at:] + places[:at]
        stored: dict[OutputPartition, Position | None] = dict(await self._store.adopted())
        starts = {}
        for place in places:
            starts[place], stored[place] = await self._start(domain, grounds, place, ends[place], stored.get(place))
        reading = self._reader.read(starts, {place: end.offset for place, end in ends.items()})
        missing, elsewhere = 0, None
        try:
            while (stretch := await _in_thread(_next, reading, elsewhere)) is not None:
                place, contents = stretch.place, self._contents(domain, stretch)
                following = Position(ends[place].topic_id, stretch.following)
                chunk = Chunk(place, stored.get(place), following, contents.releases, contents.budget_days)
                try:
                    missing += await self._adopt_chunk(domain, grounds, chunk, contents)
                except Moved as moved:  # another worker was faster: go on where it is
                    stored[place] = moved.stored
                    elsewhere = _offset(ends[place], moved.stored)
                else:
                    stored[place], elsewhere = following, None
        finally:
            await asyncio.to_thread(reading.close)
            await asyncio.to_thread(self._reader.close)
        return missing

    async def _start(
        self, domain: Domain, grounds: Grounds, place: OutputPartition, end: Position, stored: Position | None
    ) -> tuple[int, Position | None]:
        """Where reading a partition goes on, and what is stored of it: what is sealed is skipped, which is stored."""
        start, sealed = _offset(end, stored), _offset(end, domain.read_from(place))
        if sealed <= start:
            return start, stored
        following = Position(end.topic_id, sealed)
        try:
            await self._store.adopt(grounds, Chunk(place, stored, following, []))
        except Moved as moved:
            return _offset(end, moved.stored), moved.stored
        return sealed, following

    def _contents(self, domain: Domain, stretch: Stretch) -> Contents:
        topic = stretch.place.topic
        return contents_of(
            topic,
            stretch.records,
            holds_budgets=topic in domain.budgets,
            policy_id=self._policy.policy_id,
            fineness=self._fineness,
        )

    async def _adopt_chunk(self, domain: Domain, grounds: Grounds, chunk: Chunk, contents: Contents) -> int:
        """Adopt one stretch; returns how many of its records Redis lacked, or had otherwise. Raises Ended, Moved."""
        await self._restore(domain, contents)
        missing = await self._adopt_records(grounds, chunk)
        # Again: Redis may have gone back between the two, to a copy with the same offset.
        await self._restore(domain, contents)
        return missing

    async def _restore(self, domain: Domain, contents: Contents) -> None:
        """Take back what a stretch holds beside its records; what is there already stays."""
        for answered in contents.answered:
            await self._store.reserve(answered)
        for budget in contents.budgets.values():
            if not domain.is_sealed(budget.policy, budget.date):
                await self._store.recall(budget)
        for name, span in contents.spans.items():
            await self._store.restore_progress(name, span, domain.partitions.get(name, 0))

    async def _adopt_records(self, grounds: Grounds, chunk: Chunk) -> int:
        try:
            await self._store.adopt(grounds, chunk)
        except Missing as found:
            lacking = found
        else:
            return 0
        first = min(offset for offset, _ in chunk.records)
        committed = await _in_thread(self._reader.committed, chunk.place, first, chunk.following.offset)
        for _, sent in chunk.records:
            if sent.release_id in lacking.different:
                await self._supersede(sent, is_committed=sent.release_id in committed)
        try:
            await self._store.adopt(grounds, chunk, lacking.missing, committed)
        except Missing:  # it was there a moment ago
            raise Ended from None
        return len(lacking.missing | lacking.different)

    async def _supersede(self, sent: Published, *, is_committed: bool) -> None:
        """Let what was sent replace what Redis has: committed and not sent, then lost, drawn anew by somebody and sent;
        and now it is back, from a copy. What was sent counts.    [decisions/0010]
        """
        record = await self._store.kept(sent)
        if record is None or record == sent.record:
            return
        log.warning("a record that was never sent is replaced", release_id=sent.release_id)
        kept = published_of(record, self._policy.policy_id, self._fineness)
        await self._store.supersede(kept, sent)
        if is_committed:
            await self._store.mark([sent])


def _offset(end: Position, known: Position | None) -> int:
    """The offset of a position; the beginning where nothing is known, or only of another topic of that name."""
    return known.offset if known is not None and known.topic_id == end.topic_id else 0


async def _in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a call in a thread; cancelled only once it is done: a reader that reads cannot be closed."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _next(reading: Generator[Stretch, int | None, None], elsewhere: int | None) -> Stretch | None:
    """The next stretch; None at the end. `elsewhere`: where the partition of the last one goes on."""
    try:
        return reading.send(elsewhere)
    except StopIteration:
        return None
