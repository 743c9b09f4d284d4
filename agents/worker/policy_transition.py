"""Policy transition: at a local date one policy ends and the next one takes over.    [decisions/0008]

Every commit checks the transition in its own atomic step, so no day has HATs of both policies. This module claims the
next policy's days in time, rejects impossible transitions, and ends the old policy's workers when they are done.
[docs/specification/release.md, Policy transitions]
"""

import asyncio
from functools import partial
from typing import Final

import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import AIOKafkaProducer
from hatcast.agents.kafka.producers import send_all
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.policy_state import PolicyTransitionStore, SpentStore
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.messages import announce_days, budget_message
from hatcast.agents.worker.source import repeat
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.users import limit_of
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy
from hatcast.stream.policy.policy import Policy

log = structlog.get_logger()


class SpentCells:
    """Charges the cost of a private list of cells before anything is released, and announces it. [decisions/0015]

    Selecting the list has read its days whether or not they have releases, so each day is charged when the policy is
    first used. `hats.budget` then has a record of each day, from which a Redis that lost the charges is restored. Does
    nothing without such a list.
    """

    def __init__(self, settings: Settings, store: SpentStore, ledger: LedgerStore, producer: AIOKafkaProducer) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._producer = producer
        self._lock = asyncio.Lock()  # loading partitions call concurrently

    async def charge(self) -> None:
        """Charge all days that are not charged yet, and announce all days unless that is done.

        Errors of redis-py and aiokafka pass through; call it again after one.
        """
        dates = self._store.dates
        if not dates:
            return
        async with self._lock:
            charged = await self._store.book()
            if charged:
                log.info("charged the cost of the private list of cells", days=len(charged))
            announced = not charged and await self._store.is_announced()
            while not announced:
                await announce_days(self._settings, self._ledger, self._producer, dates)
                announced = await self._store.confirm()


ROUND_S: Final = 0.5
_RECOVERY_S: Final = 120.0  # a start's wait for a ledger that another worker recovers


class PolicyTransition:
    """Policy transitions of one worker's policy: from the policy that it replaces, and to the next policy.

    ended   set once the next policy has taken over and everything of this policy is published
    """

    def __init__(
        self,
        settings: Settings,
        redis: AnyRedis,
        ledger: LedgerStore,
        recovery: LedgerRecovery,
        producer: AIOKafkaProducer,
    ) -> None:
        self.ended = asyncio.Event()
        self._settings = settings
        self._policy = settings.policy
        self._redis = redis
        self._store = PolicyTransitionStore(redis, settings.topics.telemetry)
        self._ledger = ledger
        self._recovery = recovery
        self._producer = producer

    async def take_over(self) -> None:
        """Take over from the replaced policy, at a start, before anything of this policy is stored.

        Whatever Redis has lost of the transition is in `hats.budget`, so the ledger is recovered first.
        Raises HatcastError if the replaced policy is unknown, begins later, or has another next policy, or if the date
        has begun.
        """
        if self._policy.replaces is None:
            return
        try:
            async with asyncio.timeout(_RECOVERY_S):
                while not (await self._recovery.ensure() and await self._claim_if_recovered()):
                    await asyncio.sleep(ROUND_S)
        except TimeoutError:
            raise HatcastError(
                f"policy {self._policy.name!r} replaces another, and the ledger was not recovered within"
                f" {_RECOVERY_S:g} s: see the log of the worker that recovers it, and start again"
            ) from None
        await self._announce()

    async def run(self, releases: ReleaseLoop, stopping: asyncio.Event) -> None:
        """Check regularly until `stopping` or `ended` is set. Raises HatcastError as `take_over` does."""
        check = partial(self.check, releases)
        await repeat("succession", "check for a policy transition", check, ROUND_S, stopping)

    async def check(self, releases: ReleaseLoop) -> bool:
        """Restore the claim if a rolled-back Redis lacks it; set `ended`, and return it, if its days are finished."""
        policy = self._policy
        lost = policy.replaces is not None and await self._store.next_policy(policy.replaces) is None
        if lost and await self._claim_if_recovered():
            await self._announce()
        next_policy = await self._ledger.next_policy()
        if next_policy is not None and await self._is_finished(next_policy.from_date, releases):
            log.info("replaced", by=next_policy.name, from_date=next_policy.from_date)
            self.ended.set()
        return self.ended.is_set()

    async def _is_finished(self, from_date: str, releases: ReleaseLoop) -> bool:
        """Return True if all days before a date are published and sealed: only this policy's workers seal them."""
        if not await releases.is_done(from_date):
            return False
        return releases.sealer is None or not any(date < from_date for date in await self._ledger.unsealed_dates())

    async def sweep(self, store: HatStore) -> None:
        """Delete contributions to days of the next policy, and states of running sums. Does nothing before `ended`."""
        if not self.ended.is_set():
            return
        try:
            next_policy = await self._ledger.next_policy()
            if next_policy is not None:
                # A horizon that the transition cuts short is over: nothing of it is released any more.
                users_from = limit_of(self._policy, Calendar(self._policy)).period_of(next_policy.from_date)
                await store.sweep(next_policy.from_date, users_from)
                for horizon in await self._ledger.horizons.known():
                    await self._ledger.horizons.drop(horizon)
        except RedisError as error:  # this policy's next start repeats it
            log.warning("contributions to days of the next policy not deleted", error=type(error).__name__)

    async def _claim_if_recovered(self) -> bool:
        """Claim the days from policy.from on; False if the ledger is not recovered: Redis may then lack facts."""
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
        await check_takeover(self._settings, self._redis)
        stored = await self._store.claim(old, ours)
        if isinstance(stored, AlreadyBegun):
            raise _begun(self._policy, f"has already released {stored.last}")
        if stored != ours:
            raise _replaced(old, stored)

    async def _announce(self) -> None:
        """Send a budget record with the transition, from which a recovery restores it in Redis."""
        date = str(self._policy.from_date)
        message = budget_message(self._settings.topics, self._policy, date, await self._ledger.summary(date))
        await send_all(self._producer, [message])


async def check_takeover(settings: Settings, redis: AnyRedis) -> None:
    """Check that the policy can take over from the one that it replaces, without a write.

    Raises HatcastError as `PolicyTransition.take_over` does. Redis must have everything that a recovery restores.
    """
    policy, store = settings.policy, PolicyTransitionStore(redis, settings.topics.telemetry)
    old, first = policy.replaces, str(policy.from_date)
    if old is None:
        return
    stored = await store.next_policy(old)
    if stored is None:
        await _check_first_start(settings, redis, old, first)
    elif stored != NextPolicy(first, policy.name):
        raise _replaced(old, stored)


async def _check_first_start(settings: Settings, redis: AnyRedis, old: str, first: str) -> None:
    policy, domain = settings.policy, settings.topics.telemetry
    store = PolicyTransitionStore(redis, domain)
    known = await store.known(old)
    if known is None:
        other = await store.domain_of(old)
        if other not in (None, domain):
            raise HatcastError(
                f"policy.replaces: {old!r} is a policy of telemetry {other!r}, not of {domain!r}: name a policy of"
                f" {domain!r}"
            )
        raise HatcastError(
            f"policy.replaces: no policy {old!r} was ever started on telemetry {domain!r}: correct the name, or"
            " remove replaces and from"
        )
    if known.from_date is not None and first <= known.from_date:
        raise HatcastError(
            f"policy.from {first}: {old!r} itself begins on {known.from_date}: use a later date, or set"
            " policy.replaces to the policy before it"
        )
    calendar = Calendar(policy)
    try:
        starts = calendar.day_start(first)
    except ValueError:
        raise HatcastError(f"policy.from: {policy.timezone} has no day {first}: use another date") from None
    watermarks = await PartitionStore(redis, old, known.partitions).watermarks()
    reached = max((watermark for watermark in watermarks if watermark is not None), default=now_ms())
    if reached >= starts:
        raise _begun(policy, f"has reached {calendar.local(reached).isoformat(timespec='seconds')}")
    last = await store.last_date(old)
    if last is not None and last >= first:
        raise _begun(policy, f"has already released {last}")


def _begun(policy: Policy, reason: str) -> HatcastError:
    return HatcastError(
        f"policy.from {policy.from_date} has begun: {policy.replaces!r} {reason}; set policy.from to a date that has"
        " not begun"
    )


def _replaced(old: str, stored: NextPolicy) -> HatcastError:
    return HatcastError(
        f"policy {old!r} is replaced by {stored.name!r} from {stored.from_date} on: set policy.replaces to"
        f" {stored.name!r}, with a later policy.from"
    )
