"""Keep a worker from committing to a Redis that lost something, and bring back what it lost.    [decisions/0027]

Two ways, by the same incremental reading. *Catching up* reads what was published since Redis last stored how far it is:
at every takeover of a release partition, after every reconnect, and where a stored offset of telemetry went back. It
disturbs nobody. *Recovering* fences all publishers of the domain first, and ends with a new token that commits compare:
where Redis is another server, another life or another history, where a commit sequence went back, or where catching up
found something missing. Several workers share a recovery: each stretch that is adopted is stored at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Final

import structlog

from agents.clock import monotonic_s
from agents.metrics.declared import RECOVERIES
from agents.metrics.meters import METERS
from agents.published import published_of
from agents.publisher import Publishers
from agents.recovery.contents import Contents, contents_of
from agents.recovery.domain import Domain
from agents.recovery.outputs import OutputReader, Stretch
from agents.settings import Settings
from agents.store.adoption import Chunk, OutputPartition, Position, Published
from agents.store.guard import CommitGuard
from agents.store.recovery import Attempt, Ended, Grounds, Look, Missing, Moved, RecoveryStore
from stream.spending import fineness_of

log = structlog.get_logger()

_FENCE_S: Final = 30.0  # a recovery that another worker began is given that long to fence the publishers
_TRIES: Final = 4  # looks of one call: a recovery is followed by a takeover
_BEHIND: Final = 5_000  # records that we sent since we last caught up: then what a takeover has to read stays short


class LedgerRecovery:
    """One worker's part in the recovery of the ledger.

    guard            what commits compare
    publishers       whose producers take part in the fence
    sealed_through   the local date through which our policy's days are sealed; "" for none
    """

    def __init__(
        self,
        settings: Settings,
        store: RecoveryStore,
        publishers: Publishers,
        domain: Callable[[], Awaitable[Domain]],
        topic_ids: Callable[[Iterable[str]], Awaitable[Mapping[str, str]]],
    ) -> None:
        """Args:
        domain: reads what there is to recover, at each time
        topic_ids: Kafka's id of each topic; "" where the broker has none
        """
        self.guard = CommitGuard()
        self.publishers = publishers
        self.sealed_through = ""
        self._settings = settings
        self._store = store
        self._domain = domain
        self._topic_ids = topic_ids
        self._reader = OutputReader(settings)
        self._fineness = fineness_of(settings.policy)
        self._doubt = False
        self._caught_up_at = 0
        self._own_attempt = ""
        self._waiting: tuple[str, float] = ("", 0.0)  # for another worker's fence: its attempt, and since when

    @property
    def is_recovered(self) -> bool:
        """Whether the ledger is recovered, as far as we know."""
        return self.guard.token != ""

    def doubt(self) -> None:
        """Catch up before the next commit: Redis may have gone back, or may be another one."""
        self._doubt = True

    async def ensure(self, owned: frozenset[int] = frozenset()) -> bool:
        """Return True if commits to these release partitions are safe now; their producers are held.

        False if another worker is recovering the ledger, or Redis changed meanwhile: try again.
        """
        try:
            return await self._ensure(owned)
        except BaseException:
            self.guard.reset()
            raise

    async def is_valid(self, token: str) -> bool:
        """Return True if the ledger is recovered under this token, in this life of the server."""
        return token != "" and (await self._store.look()).token == token

    async def _ensure(self, owned: frozenset[int]) -> bool:
        for _ in range(_TRIES):
            ready = await self._step(owned)
            if ready is not None:
                return ready
            await self.publishers.hold(owned)  # a fence ended ours too
        return False

    async def _step(self, owned: frozenset[int]) -> bool | None:
        """Look, and do what is to be done next; None: look again."""
        guard = self.guard
        guard.disown(self.publishers.renewed() | (guard.written.keys() - owned))
        look = await self._store.look(guard.written)
        self.sealed_through = look.sealed_through
        if not look.token:
            return await self._recover(look)
        if look.token != guard.token:
            guard.reset(look.token)  # another worker recovered it
        if went_back := [r for r, written in guard.written.items() if look.sequences.get(r, 0) < written]:
            log.warning("commit sequence went back", release_partitions=went_back)
            return await self._recover(look)
        guard.disown([r for r, written in guard.written.items() if look.sequences.get(r, 0) != written])
        wanted = owned - guard.written.keys()
        if wanted or self._doubt or self.publishers.sent - self._caught_up_at > _BEHIND:
            return await self._take_over(wanted)
        return True

    async def catch_up(self) -> bool:
        """Adopt what was published up to now; False where that cannot be said, as by `ensure`."""
        return self.is_recovered and await self._take_over(frozenset()) is True

    async def _take_over(self, wanted: frozenset[int]) -> bool | None:
        """Catch up, then own these release partitions, whose producers are ours. None: look again."""
        guard, sent = self.guard, self.publishers.sent
        self._doubt = False
        try:
            domain = await self._domain()
            missing = await self._adopt(domain, Grounds.finished(guard.token), await self._ends(domain))
            look = await self._store.look(wanted)
        except Ended:
            guard.reset()
            return None
        except BaseException:
            self._doubt = True
            raise
        if missing:
            log.warning("Redis has lost releases that were published", missing=missing)
            return await self._recover(look)
        if look.token != guard.token:
            guard.reset()
            return None
        guard.own(look.sequences)
        self._caught_up_at = sent
        return True

    async def _recover(self, look: Look) -> bool | None:
        """Recover the ledger, alone or with others. None: look again, it is over; False: another worker is at it.

        look   what showed that it has to be
        """
        self.guard.reset()
        attempt = await self._store.begin(look.attempt if self._has_waited_for(look.attempt) else "")
        if attempt.ours:
            self._own_attempt = attempt.token
            log.warning("recovering the ledger", attempt=attempt.token[:8])
        elif not attempt.is_fenced and attempt.token != self._own_attempt:
            self._wait_for(attempt.token)
            return False
        finished, adopted = False, 0
        try:
            domain = await self._domain()
            if not attempt.is_fenced and not await self._fence(attempt, domain):
                return False
            await self._store.seals.restore(domain.sealed, domain.days)
            adopted = await self._adopt(domain, Grounds.in_progress(attempt.token), await self._store.ends())
            finished = await self._store.finish(attempt)
        except Ended:
            pass
        finally:
            METERS.count(RECOVERIES, result="finished" if finished else "unfinished")
        if finished:
            log.info("ledger recovered", attempt=attempt.token[:8], adopted=adopted)
            return None
        if (await self._store.look()).token:
            log.info("ledger recovered by another worker", adopted_here=adopted)
            return None
        # Everything is read, and it does not count: Redis or a topic changed meanwhile. The next try begins anew.
        self._waiting = (attempt.token, monotonic_s() - _FENCE_S)
        return False

    def _has_waited_for(self, attempt: str) -> bool:
        known, since_s = self._waiting
        return attempt != "" and known == attempt and monotonic_s() - since_s >= _FENCE_S

    def _wait_for(self, attempt: str) -> None:
        if self._waiting[0] != attempt:
            self._waiting = (attempt, monotonic_s())

    async def _fence(self, attempt: Attempt, domain: Domain) -> bool:
        """Fence all publishers, then store where the output topics end; False if another recovery has begun."""
        await self.publishers.fence(domain.publishing)
        return await self._store.fenced(attempt, await self._ends(domain))

    async def _ends(self, domain: Domain) -> dict[OutputPartition, Position]:
        ids = await self._topic_ids(sorted(domain.outputs))
        return await asyncio.to_thread(self._reader.ends, ids)

    async def _adopt(self, domain: Domain, grounds: Grounds, ends: Mapping[OutputPartition, Position]) -> int:
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
            while (stretch := await asyncio.to_thread(_next, reading, elsewhere)) is not None:
                place, contents = stretch.place, self._contents(domain, stretch)
                following = Position(ends[place].topic_id, stretch.following)
                chunk = Chunk(place, stored.get(place), following, contents.releases)
                try:
                    missing += await self._adopt_chunk(domain, grounds, chunk, contents)
                except Moved as moved:  # another worker was faster: go on where it is
                    stored[place] = moved.stored
                    elsewhere = _offset(ends[place], moved.stored)
                else:
                    stored[place], elsewhere = following, None
        finally:
            await asyncio.to_thread(reading.close)
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
            policy_id=self._settings.policy.policy_id,
            fineness=self._fineness,
        )

    async def _adopt_chunk(self, domain: Domain, grounds: Grounds, chunk: Chunk, contents: Contents) -> int:
        """Adopt one stretch; returns how many of its records Redis lacked, or had otherwise. Raises Ended, Moved."""
        for answered in contents.answered:
            await self._store.reserve(answered)
        for budget in contents.budgets.values():
            if not domain.is_sealed(budget.policy, budget.date):
                await self._store.recall(budget)
        for name, span in contents.spans.items():
            await self._store.restore_progress(name, span, domain.partitions.get(name, 0))
        try:
            await self._store.adopt(grounds, chunk)
        except Missing as found:
            lacking = found
        else:
            return 0
        first = min(offset for offset, _ in chunk.records)
        committed = await asyncio.to_thread(self._reader.committed, chunk.place, first, chunk.following.offset)
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
        kept = published_of(record, self._settings.policy.policy_id, self._fineness)
        await self._store.supersede(kept, sent)
        if is_committed:
            await self._store.mark([sent])


def _offset(end: Position, known: Position | None) -> int:
    """The offset of a position; the beginning where nothing is known, or only of another topic of that name."""
    return known.offset if known is not None and known.topic_id == end.topic_id else 0


def _next(reading: Generator[Stretch, int | None, None], elsewhere: int | None) -> Stretch | None:
    """The next stretch; None at the end. `elsewhere`: where the partition of the last one goes on."""
    try:
        return reading.send(elsewhere)
    except StopIteration:
        return None
