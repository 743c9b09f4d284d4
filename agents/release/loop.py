"""Release loop of a worker: hold the producers, recover the ledger, release each kind, seal days."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.kafka.producers import ProducerGone
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.continual import ContinualReleaser
from hatcast.agents.release.hats import HatPath, HatReleaser
from hatcast.agents.release.path import ReleaseContext, ReleasePath
from hatcast.agents.release.queries import QueryReleaser
from hatcast.agents.release.slots import SlotReleaser
from hatcast.agents.release.tracker import TrackerReleaser
from hatcast.stream.ledger.rejections import Behind, DaySealed, Replaced, Unclaimed, Unrecovered
from hatcast.stream.policy.policy import Relation

log = structlog.get_logger()

ROUND_S: Final = 0.5  # between rounds


class ReleaseLoop:
    """Release loop of one worker.

    owned     returns the release partitions that the worker owns now
    seal      seals finished days after a round; None: no day is sealed
    hats      releases HATs
    queries   answers queries over days; None: the policy has none
    kinds     the kinds of release of a round, in order
    """

    def __init__(
        self,
        context: ReleaseContext,
        retained: RetainedStore,
        owned: Callable[[], frozenset[int]],
        seal: Callable[["ReleaseLoop"], Awaitable[None]] | None = None,
    ) -> None:
        self.owned = owned
        self.seal = seal
        policy = context.settings.policy
        self.queries = QueryReleaser(context, retained) if policy.queries else None
        if policy.relation is Relation.ADD_REMOVE:
            self.hats: HatPath = SlotReleaser(context, self.queries)  # it answers queries too, slot by slot
            self.kinds: list[ReleasePath[Any, Any, Any]] = [self.hats]  # Any: each kind has types of its own
        else:
            self.hats = _releaser(context)
            self.kinds = [self.hats] if self.queries is None else [self.hats, self.queries]
        self._policy = policy
        self._recovery = context.recovery
        self._publishers = context.recovery.publishers
        self._failures = context.failures

    async def run(self, stopping: asyncio.Event) -> None:
        """Run rounds until `stopping` is set. A failed round is repeated from what Redis stores."""
        failures = self._failures
        going_on = not stopping.is_set()
        while going_on:
            try:
                await self.round(stopping)
            except (ProducerGone, Behind):  # in a rebalance or recovery: this worker may take it over again
                log.info("release partition taken over by another worker")
            except (RedisError, KafkaError, Unrecovered, DaySealed, Replaced, Unclaimed) as error:
                failures.failed(error)
            else:
                failures.clear()
            going_on = await pause(max(ROUND_S, failures.wait_s), stopping)

    async def round(self, stopping: asyncio.Event) -> int:
        """Release all due items of this worker's release partitions once. Return the number of HATs released."""
        owned = self.owned()
        await self._publishers.close_except(owned)
        if owned:
            with self._failures.attempt("take over release partitions"):
                await self._publishers.start_missing(owned)  # before any read: see TransactionalProducers.publish
        with self._failures.attempt("recover the ledger"):
            recovered = await self._recovery.ensure(owned)
        if not recovered:
            self._failures.skip_next_clear()
            return 0
        done = 0
        for kind in self.kinds:
            if not stopping.is_set():
                done += await kind.round(owned, stopping)
        if self.seal is not None:
            await self.seal(self)
        if done:
            log.info("released", hats=done)
        return done

    async def is_done(self, end_date: str) -> bool:
        """Return True if everything of this policy before a local date is published."""
        return all([await kind.is_done(end_date) for kind in self.kinds])


def _releaser(context: ReleaseContext) -> HatPath:
    """Return the path of HATs under `replace`."""
    policy = context.settings.policy
    if policy.tracker is not None:
        return TrackerReleaser(context)
    return HatReleaser(context) if policy.continual is None else ContinualReleaser(context)
