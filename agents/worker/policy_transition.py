"""A policy follows another: it takes over at a local date, and the other one ends.    [design 4; decisions/0008]

That no day has HATs of both is settled by every commit, which looks at the succession in the same step. What is here
makes it known in time, says clearly what cannot be, and lets the workers of the old policy go when they are done.
"""

import asyncio
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.agents.redis.policy_transition import AlreadyBegun, NextPolicy, PolicyTransitionStore
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.hats import Releaser
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar

log = structlog.get_logger()

ROUND_S: Final = 0.5
_RECOVERY_S: Final = 120.0  # how long a start waits for a ledger that another worker recovers


class PolicyTransition:
    """One worker's part in it: it claims the days of its policy, and finds when there are none left.

    over   set once another policy follows ours and all that is ours is published
    """

    def __init__(
        self,
        settings: Settings,
        redis: AnyRedis,
        ledger: LedgerStore,
        recovery: LedgerRecovery,
        producer: AIOKafkaProducer,
    ) -> None:
        self.over = asyncio.Event()
        self._settings = settings
        self._policy = settings.policy
        self._redis = redis
        self._store = PolicyTransitionStore(redis, settings.topics.telemetry)
        self._ledger = ledger
        self._recovery = recovery
        self._producer = producer

    async def settle(self) -> None:
        """At a start: follow the policy that ours replaces, before anything is kept of ours.

        What Redis has lost of it is on `hats.budget`, so the ledger is recovered first.
        Raises HatcastError: the other policy is unknown, begins later itself, has a successor already, or the date has
        begun.
        """
        if self._policy.replaces is None:
            return
        try:
            async with asyncio.timeout(_RECOVERY_S):
                while not (await self._recovery.ensure() and await self._follow()):
                    await asyncio.sleep(ROUND_S)
        except TimeoutError:
            raise HatcastError(
                f"policy {self._policy.name!r} follows another, and the ledger could not be recovered in"
                f" {_RECOVERY_S:g} s: see the log of the worker that recovers it, and start again"
            ) from None
        await self._announce()

    async def run(self, releaser: Releaser, stopping: asyncio.Event) -> None:
        """Look now and then, until `stopping` or `over` is set. Raises HatcastError as `settle` does."""
        failures = FailureLog("succession")
        while not self.over.is_set() and await pause(max(ROUND_S, failures.wait_s), stopping):
            try:
                with failures.attempt("look whether another policy follows"):
                    await self.look(releaser)
            except (RedisError, KafkaError) as error:
                failures.failed(error)
            else:
                failures.clear()

    async def look(self, releaser: Releaser) -> None:
        """Follow again what a Redis that went back does not know, and see whether our days are over."""
        policy = self._policy
        unknown = policy.replaces is not None and await self._store.next_policy(policy.replaces) is None
        if unknown and await self._follow():
            await self._announce()
        successor = await self._ledger.next_policy()
        if successor is not None and await self._is_over(successor.from_date, releaser):
            log.info("replaced", by=successor.name, from_date=successor.from_date)
            self.over.set()

    async def _is_over(self, from_date: str, releaser: Releaser) -> bool:
        """Whether all days before a date are published, and sealed: nobody else seals days of ours."""
        if not await releaser.is_done(from_date):
            return False
        return releaser.seal is None or not any(date < from_date for date in await self._ledger.unsealed_dates())

    async def sweep(self, store: HatStore) -> None:
        """What was folded of days that are not ours goes. Without effect before `over`."""
        if not self.over.is_set():
            return
        try:
            successor = await self._ledger.next_policy()
            if successor is not None:
                await store.sweep(successor.from_date)
        except RedisError as error:  # the next start of this policy will
            log.warning("days of the successor not swept", error=type(error).__name__)

    async def _follow(self) -> bool:
        """Claim the days from `from` on; False where the ledger is not recovered: then Redis may lack what is true."""
        token = self._recovery.guard.token
        try:
            await self._claim()
        except HatcastError:
            if not await self._recovery.is_valid(token):
                return False
            raise
        return await self._recovery.is_valid(token)

    async def _claim(self) -> None:
        old, ours = self._policy.replaces, NextPolicy(str(self._policy.from_date), self._policy.name)
        if old is None:
            return
        if await self._store.next_policy(old) is None:
            await self._check(old, ours.from_date)
        kept = await self._store.claim(old, ours)
        if isinstance(kept, AlreadyBegun):
            raise self._begun(f"has released {kept.last} already")
        if kept != ours:
            raise HatcastError(
                f"policy {old!r} is replaced by {kept.name!r} from {kept.from_date} on: let policy.replaces be"
                f" {kept.name!r}, with a later policy.from"
            )

    async def _check(self, old: str, first: str) -> None:
        """What a first start needs."""
        domain = self._settings.topics.telemetry
        known = await self._store.known(old)
        if known is None:
            other = await self._store.domain_of(old)
            if other not in (None, domain):
                raise HatcastError(
                    f"policy.replaces: {old!r} is a policy of telemetry {other!r}, not of {domain!r}: a policy follows"
                    " one of its own telemetry"
                )
            raise HatcastError(
                f"policy.replaces: no policy {old!r} was ever started on telemetry {domain!r}: correct the name, or"
                " remove replaces and from"
            )
        if known.from_date is not None and first <= known.from_date:
            raise HatcastError(
                f"policy.from {first}: {old!r} itself begins on {known.from_date}: use a later date, or let"
                " policy.replaces name the policy before it"
            )
        calendar = Calendar(self._policy)
        try:
            starts = calendar.day_start(first)
        except ValueError:
            raise HatcastError(f"policy.from: {self._policy.timezone} has no day {first}: use another date") from None
        clocks = await PartitionStore(self._redis, old, known.partitions).watermarks()
        reached = max((clock for clock in clocks if clock is not None), default=now_ms())
        if reached >= starts:
            raise self._begun(f"has come to {calendar.local(reached).isoformat(timespec='seconds')}")

    def _begun(self, how: str) -> HatcastError:
        policy = self._policy
        return HatcastError(
            f"policy.from {policy.from_date} has begun: {policy.replaces!r} {how}; let policy.from be a date that has"
            " not begun"
        )

    async def _announce(self) -> None:
        """Tell `hats.budget` whom we follow and from when: where Redis finds it again."""
        date = str(self._policy.from_date)
        message = budget_message(self._settings.topics, self._policy, date, await self._ledger.summary(date))
        await self._producer.send_and_wait(
            message.topic, message.value, key=message.key, partition=message.partition, headers=message.headers
        )
