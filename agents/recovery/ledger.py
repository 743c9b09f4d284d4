"""Keep a worker from committing to a Redis that lost something, and bring back what it lost.    [decisions/0027]

Two ways, by the same incremental reading. *Catching up* reads what was published since Redis last stored how far it is:
at every takeover of a release partition, after every reconnect, and where a stored offset of telemetry went back. It
disturbs nobody. *Recovering* fences all publishers of the domain first, and ends with a new token that commits compare:
where Redis is another server, another life or another history, where it lacks commits that we know of, or where
catching up found something missing. Several workers share a recovery: each stretch that is adopted is stored at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog
from aiokafka.errors import UnknownTopicOrPartitionError

from agents.clock import monotonic_s
from agents.metrics.declared import RECOVERIES
from agents.metrics.meters import METERS
from agents.publisher import Publishers
from agents.recovery.adopter import Adopter
from agents.recovery.domain import Domain
from agents.recovery.outputs import OutputReader
from agents.recovery.unsent import Unsent
from agents.settings import Settings
from agents.store.adoption import OutputPartition, Position
from agents.store.attempts import Attempt, Ended, Grounds, Look
from agents.store.errors import Behind, Unrecovered
from agents.store.guard import CommitGuard
from agents.store.recovery import RecoveryStore

log = structlog.get_logger()

_FENCE_S: Final = 30.0  # a recovery that another worker began is given that long to fence the publishers
_TRIES: Final = 4  # looks of one call: a recovery is followed by a takeover
_BEHIND: Final = 5_000  # records that we sent since we last caught up: then what a takeover has to read stays short


class LedgerRecovery:
    """One worker's part in the recovery of the ledger.

    guard            what commits compare
    publishers       whose producers take part in the fence
    sealed_through   the local date through which our policy's days are sealed; "" for none
    caught_up_to     where the output topics ended when we last caught up
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
        self.caught_up_to: Mapping[OutputPartition, Position] = {}
        self._store = store
        self._domain = domain
        self._topic_ids = topic_ids
        self._reader = OutputReader(settings)
        self._adopter = Adopter(settings.policy, store, self._reader)
        self._unsent = Unsent(settings.policy, store.unsent)
        self._doubt = False
        self._caught_up_at = 0
        self._own_attempt = ""
        self._has_warned = False
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
        if self._went_back(look):
            return await self._recover(look)
        guard.seen = look.commits
        guard.disown([r for r, written in guard.written.items() if look.sequences.get(r, 0) != written])
        wanted = owned - guard.written.keys()
        if wanted or self._doubt or self.publishers.sent - self._caught_up_at > _BEHIND:
            return await self._take_over(wanted)
        return True

    async def confirm(self) -> None:
        """Look whether Redis still is where we know it: before a commit, before a send, and after it.

        What we send must be in the ledger, and so must what others sent. Raises Behind where Redis went back, once a
        recovery has begun, or where another worker owns one of our release partitions by now; Unrecovered as a commit.
        """
        guard = self.guard
        if not guard.token:
            raise Unrecovered
        look = await self._store.look(guard.written)
        if look.token == guard.token and self._went_back(look):
            await self._recover(look)
            raise Behind
        if look.token != guard.token or any(look.sequences.get(r, 0) != n for r, n in guard.written.items()):
            raise Behind
        guard.seen = look.commits

    def _went_back(self, look: Look) -> bool:
        """Whether this Redis, under the same token, lacks commits that we know of: ours, or those of anybody."""
        guard = self.guard
        lost = [r for r, written in guard.written.items() if look.sequences.get(r, 0) < written]
        if lost or look.commits < guard.seen:
            log.warning("Redis lacks commits: it went back", release_partitions=lost, commits=guard.seen - look.commits)
            return True
        return False

    async def catch_up(self) -> bool:
        """Adopt what was published up to now; False where that cannot be said, as by `ensure`."""
        return self.is_recovered and await self._take_over(frozenset()) is True

    async def _take_over(self, wanted: frozenset[int]) -> bool | None:
        """Catch up, then own these release partitions, whose producers are ours. None: look again."""
        guard, sent = self.guard, self.publishers.sent
        self._doubt = False
        try:
            # Before anything is read: if Redis goes back from here on, these sequences are not its own any more.
            sequences = (await self._store.look(wanted)).sequences
            domain = await self._domain()
            ends = await self._ends(domain)
            missing = await self._adopter.adopt(domain, Grounds.finished(guard.token), ends)
            is_sealed = not await self._store.seals.lacking(domain.sealed)
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
        if not is_sealed:  # Redis has each seal before the registry does
            log.warning("Redis has lost days that were sealed")
            return await self._recover(look)
        if look.token != guard.token:
            guard.reset()
            return None
        guard.own(sequences)
        self.caught_up_to = ends
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
            await self._store.restore_successors(domain.successors)
            await self._store.seals.restore(domain.sealed, domain.days)
            adopted = await self._adopter.adopt(domain, Grounds.in_progress(attempt.token), await self._store.ends())
            if discarded := await self._unsent.discard(domain, attempt):
                log.warning("releases that were never sent are discarded", releases=discarded)
            finished = await self._store.finish(attempt, domain.sealed)
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
        try:
            ids = await self._topic_ids(sorted(domain.outputs))
        except UnknownTopicOrPartitionError:
            if not self._has_warned:  # it may also be new, and not known to every broker yet
                log.warning(
                    "output topic gone: what was published there cannot be read back, so nothing is released; restore"
                    " it with its records, or start with another telemetry topic",
                    one_of=sorted(domain.outputs),
                )
            self._has_warned = True
            raise
        return await asyncio.to_thread(self._reader.ends, ids)
