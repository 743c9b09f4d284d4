"""Prevent commits to a Redis that lost data, and restore the lost data from the output topics.    [decisions/0004]

There are two ways, which both read incrementally. *Catching up* reads the records after the adopted positions in Redis:
at every takeover of a release partition, after every reconnect, and when a stored telemetry offset went back. It does
not interrupt other workers. *Recovering* first fences all publishers of the domain, and ends with a new token, which
commits compare: when Redis is another server process or has another replication history, when it lacks commits that
this worker knows, when catching up found missing records, or when a topic of releases has lost records. Several workers
can share a recovery: each adopted batch is stored at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import UnknownTopicOrPartitionError
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.monitoring.declarations import RECOVERIES
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery.adopter import Adopter
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.losses import LostReleases, Unsent
from hatcast.agents.recovery.outputs import LogRange, OutputReader
from hatcast.agents.recovery.starts import is_other_topic, lost_topic, starts_of
from hatcast.agents.redis.ledger_store import CommitGuard
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.recovery import Attempt, Nonces, RecoveryCheck, RecoveryState
from hatcast.stream.ledger.rejections import Behind, RecoveryEnded, Unrecovered
from hatcast.stream.ledger.sealed_days import check_lost

log = structlog.get_logger()

# For another worker's recovery to fence the publishers. Twice as long each time that it was in vain: the start of a
# producer may take a minute, and workers that replace each other's recoveries too soon would never finish one.
_FENCE_TIMEOUT_S: Final = 30.0
_FENCE_TIMEOUT_MAX_S: Final = 240.0
_MAX_STEPS: Final = 4  # of one call of `ensure`: a recovery is followed by a takeover
_MAX_LAG: Final = 5_000  # records sent since the last catch-up; bounds how much a takeover has to read


class LedgerRecovery:
    """One worker's part in ledger recovery."""

    def __init__(
        self,
        settings: Settings,
        store: RecoveryStore,
        producers: TransactionalProducers,
        domain: Callable[[], Awaitable[Domain]],
        topic_ids: Callable[[Iterable[str]], Awaitable[Mapping[str, str]]],
    ) -> None:
        """Args:
        domain: reads the current domain
        topic_ids: returns Kafka's id of each topic; "" if the broker has none
        """
        self.guard = CommitGuard()  # commits compare it with Redis
        self.producers = producers  # this worker's producers, which fence the others
        self.sealed_through = ""  # last sealed local date of our policy; "" for none
        self.caught_up_to: Mapping[OutputPartition, Position] = {}  # ends of the output topics at the last catch-up
        self._store = store
        self._domain = domain
        self._topic_ids = topic_ids
        self._calendar = Calendar(settings.policy)
        self._reader = OutputReader(settings)
        self._adopter = Adopter(settings.policy, store, self._reader)
        self._losses = LostReleases(store, self._reader, self._adopter.contents)
        self._unsent = Unsent(settings.policy, store.unsent)
        self._must_catch_up = False
        self._caught_up_at = 0
        self._own_attempt = ""
        self._has_warned = False
        self._waiting: tuple[str, float] = ("", 0.0)  # attempt of another worker that we wait for, and since when
        self._patience_s = _FENCE_TIMEOUT_S  # for that attempt

    @property
    def is_recovered(self) -> bool:
        """Whether the ledger is recovered, as far as this worker knows."""
        return self.guard.token != ""

    def require_catch_up(self) -> None:
        """Catch up before the next commit: Redis may have gone back in time, or may be another server."""
        self._must_catch_up = True

    async def ensure(self, owned: frozenset[int] = frozenset()) -> bool:
        """Recover if necessary; return True if commits to these release partitions are safe now.

        The caller holds their producers. False if another worker is recovering the ledger, or Redis changed meanwhile:
        try again.
        """
        try:
            return await self._ensure(owned)
        except BaseException:
            self.guard.reset()
            raise

    async def is_valid(self, token: str) -> bool:
        """Return True if the ledger is recovered under this token, on this server process."""
        return token != "" and (await self._store.read_state()).token == token

    async def _ensure(self, owned: frozenset[int]) -> bool:
        for _ in range(_MAX_STEPS):
            ready = await self._step(owned)
            if ready is not None:
                return ready
            await self.producers.start_missing(owned)  # a fence invalidates our own producers too
        return False

    async def _step(self, owned: frozenset[int]) -> bool | None:
        """Read the recovery state and act on it; None if it must be read again."""
        guard = self.guard
        guard.disown(self.producers.renewed() | (guard.written.keys() - owned))
        state = await self._store.read_state(guard.written)
        self.sealed_through = state.sealed_through
        if not state.token or self._went_back(state):
            return await self._recover(state)
        self._stop_waiting()
        if state.token != guard.token:
            guard.reset(state.token)  # another worker recovered the ledger
        guard.newest = state.generation, state.token
        guard.commits = state.commits
        guard.disown([r for r, written in guard.written.items() if state.sequences.get(r, 0) != written])
        wanted = owned - guard.written.keys()
        if wanted or self._must_catch_up or self.producers.sent - self._caught_up_at > _MAX_LAG:
            return await self._take_over(wanted)
        return True

    async def confirm(self, sending: Iterable[int] = ()) -> None:
        """Check before a commit, before a send and after its mark that Redis has not gone back.

        A record that is sent must be in the ledger, together with all records that others have sent. Raises Behind if
        Redis went back, after a recovery has begun, or if another worker owns one of our release partitions;
        Unrecovered if the ledger is not recovered.

        sending   release partitions of the records to send. Raises Behind if one was not taken over, or has to be
                  taken over again after a failed commit: then its sequence shows nothing
        """
        guard = self.guard
        if not guard.token:
            raise Unrecovered
        state = await self._store.read_state(guard.written)
        if state.token and self._went_back(state):
            await self._recover(state)
            raise Behind
        if state.token != guard.token or any(state.sequences.get(r, 0) != n for r, n in guard.written.items()):
            raise Behind
        if not guard.written.keys() >= set(sending):
            raise Behind
        guard.commits = state.commits

    def _went_back(self, state: RecoveryState) -> bool:
        """Return True if Redis lacks a recovery or commits that this worker knows, its own or others'."""
        guard = self.guard
        generation, token = guard.newest
        if state.generation < generation or (state.generation == generation and state.token != token):
            log.warning("Redis went back to an older recovery")
            return True
        if state.token != guard.token:
            return False
        lost = [r for r, written in guard.written.items() if state.sequences.get(r, 0) < written]
        if lost or state.commits < guard.commits:
            log.warning(
                "Redis lacks commits: it went back", release_partitions=lost, commits=guard.commits - state.commits
            )
            return True
        return False

    async def catch_up(self) -> bool:
        """Adopt all records published up to now; False if that failed, for the reasons of `ensure`."""
        return self.is_recovered and await self._take_over(frozenset()) is True

    async def _take_over(self, wanted: frozenset[int]) -> bool | None:
        """Catch up, then own these release partitions, whose producers are ours. None: read the state again."""
        guard, sent = self.guard, self.producers.sent
        self._must_catch_up = False
        try:
            # Read before the topics: if Redis goes back after this, its sequences differ from these.
            before = await self._store.read_state(wanted)
            domain = await self._domain()
            if await self._store.seals.missing(domain.sealed):  # a seal is written to Redis first, then to the registry
                log.warning("Redis has lost sealed days")
                return await self._recover(before)
            adopted = await self._store.adopted()
            logs = await self._logs(domain)
            starts, ends = starts_of(domain, adopted, logs), {each: log.end for each, log in logs.items()}
            if lost := lost_topic(domain, starts):  # only a recovery may replace the position that shows it
                log.warning("an output topic has lost records", topic=lost[0], found=lost[1])
                state = await self._store.read_state(wanted)
                return await self._recover(state) if state.token in ("", guard.token) else None  # others were faster
            missing = await self._adopter.adopt(domain, RecoveryCheck.finished(guard.token), starts, ends)
            state = await self._store.read_state(wanted)
        except RecoveryEnded:
            guard.reset()
            return None
        except BaseException:
            self._must_catch_up = True
            raise
        if missing:
            log.warning("Redis has lost published releases", missing=missing)
            return await self._recover(state)
        if state.token != guard.token:
            guard.reset()
            return None
        guard.own(before.sequences)
        self.caught_up_to = ends
        self._caught_up_at = sent
        return True

    async def _recover(self, state: RecoveryState) -> bool | None:
        """Recover the ledger, alone or with others. None if it is recovered; False if another worker is fencing.

        state   which showed that a recovery is necessary
        """
        self.guard.reset()
        replaced = state.attempt if self._has_waited_for(state.attempt) else ""
        attempt = await self._store.begin(replaced, self.guard.newest[0])
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
            attempt, adopted, nonces = await self._restore(attempt, domain)
            finished = await self._store.finish(attempt, domain.sealed, nonces)
        except RecoveryEnded:
            pass
        finally:
            METERS.count(RECOVERIES, result="finished" if finished else "unfinished")
        if finished:
            log.info("ledger recovered", attempt=attempt.token[:8], adopted=adopted)
            return None
        if (await self._store.read_state()).token:
            log.info("ledger recovered by another worker", adopted_here=adopted)
            return None
        # Redis or a topic changed during the recovery, so it does not count. The next call begins a new one.
        self._waiting = (attempt.token, monotonic_s() - self._patience_s)
        return False

    async def _restore(self, attempt: Attempt, domain: Domain) -> tuple[Attempt, int, Nonces]:
        """Adopt all published records up to an attempt's ends, and discard the unsent ones.

        Return the attempt as it is then, how many records Redis lacked, and what `finish` compares. Raises
        RecoveryEnded.
        """
        check = RecoveryCheck.in_progress(attempt.token)
        await self._store.restore_next_policies(check, domain.next_policies)
        check_lost((await self._store.seals.missing(domain.sealed)).values(), self._calendar)
        await self._store.seals.restore(check, domain.sealed, domain.days)
        ends = await self._store.ends()
        positions, is_kept = await self._store.positions_and_kept(attempt)
        attempt = replace(attempt, is_kept=is_kept)
        starts = starts_of(domain, positions, await self._logs_of(ends, domain))
        if lost := lost_topic(domain, starts):
            await self._losses.check(domain, lost, starts)
            attempt = await self._unsent.keep(domain, attempt)
        adopted = await self._adopter.adopt(domain, attempt.check, starts, ends)
        await self._logs_of(ends, domain)  # what was read was of these topics, too
        discarded = await self._unsent.discard(domain, attempt)
        if discarded.number:
            log.warning("discarded releases that were never sent", releases=discarded.number)
        await self._losses.warn(domain, {day: each.releases for day, each in self._adopter.budgets.items()})
        return attempt, adopted, discarded.nonces

    def _has_waited_for(self, attempt: str) -> bool:
        known, since_s = self._waiting
        return attempt != "" and known == attempt and monotonic_s() - since_s >= self._patience_s

    def _wait_for(self, attempt: str) -> None:
        if self._waiting[0] != attempt:
            if self._waiting[0]:
                self._patience_s = min(2 * self._patience_s, _FENCE_TIMEOUT_MAX_S)
            self._waiting = (attempt, monotonic_s())

    def _stop_waiting(self) -> None:
        self._waiting = ("", 0.0)
        self._patience_s = _FENCE_TIMEOUT_S

    async def _fence(self, attempt: Attempt, domain: Domain) -> bool:
        """Fence all publishers, then store where the output topics end; False if another recovery has begun."""
        await self.producers.fence(domain.publishing)
        ends = {each: log.end for each, log in (await self._logs(domain)).items()}
        return await self._store.store_ends(attempt, ends)

    async def _logs_of(
        self, ends: Mapping[OutputPartition, Position], domain: Domain
    ) -> dict[OutputPartition, LogRange]:
        """Return the present range of each partition. Raises RecoveryEnded if one is not that of the fence."""
        logs, found = await self._logs(domain), {}
        for each, end in ends.items():
            now = logs.get(each)
            if now is None or now.end.offset < end.offset or is_other_topic(now.end, end):
                log.warning("an output topic was made again or cut off since the fence", topic=each.topic)
                raise RecoveryEnded
            found[each] = LogRange(now.start, Position(end.topic_id, now.end.offset))
        return found

    async def _logs(self, domain: Domain) -> dict[OutputPartition, LogRange]:
        try:
            ids = await self._topic_ids(sorted(domain.outputs))
        except UnknownTopicOrPartitionError:
            if not self._has_warned:  # the topic may also be new, and not known to every broker yet
                log.warning(
                    "output topic missing: its records cannot be recovered, so nothing is released; restore the topic"
                    " with its records, or start with another telemetry topic",
                    one_of=sorted(domain.outputs),
                )
            self._has_warned = True
            raise
        return await asyncio.to_thread(self._reader.ranges, ids)
