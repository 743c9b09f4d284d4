"""Release loop of a worker: hold the producers, recover the ledger, release each kind, seal days."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import pause
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.producers import ProducerGone
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.continual import ContinualHats
from hatcast.agents.release.hats import Hats
from hatcast.agents.release.in_step import HatsInStep
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.release.queries import AnswerReleases
from hatcast.agents.release.sealing import Sealer
from hatcast.agents.release.tracker import TrackedHats
from hatcast.stream.ledger.rejections import Behind, DaySealed, Replaced, Unclaimed, Unrecovered
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, MeansKeys, Relation, TrackerKeys

log = structlog.get_logger()

ROUND_S: Final = 0.5  # between rounds


@dataclass(frozen=True, slots=True)
class PublicationProgress:
    """Progress of the publication of a policy's releases."""

    through_ms: int  # ms UTC: all HATs of the slots that end by then are
    settled: str = ""  # local date: the settlements up to it are; "" if there is none


class ReleaseLoop:
    """Release loop of one worker."""

    def __init__(
        self,
        context: ReleaseContext,
        retained: RetainedStore,
        owned: Callable[[], frozenset[int]],
        sealer: Sealer | None = None,
    ) -> None:
        self.owned = owned  # returns the release partitions that the worker owns now
        self.sealer = sealer  # of finished days, after each round; None: no day is sealed
        policy, self._hats = context.policy, Hats(context)
        self.answers = AnswerReleases(context, retained) if policy.queries else None
        self._source = _source_of_hats(context, self._hats, self.answers)
        self.hats_path = ReleasePath(context, self._source.kind)  # path of HATs
        self.delays = self._hats.delays  # until final slots are published
        # of a round, in order: of HATs, then under `replace` of answers to queries over days
        self.paths: list[ReleasePath[Any, Any]] = [self.hats_path]  # Any: each kind has types of its own
        if self.answers is not None and policy.relation is Relation.REPLACE:
            self.paths.append(self.answers.path)
        self._context = context
        self._recovery = context.recovery
        self._producers = context.producers
        self._failures = context.failures

    async def run(self, stopping: asyncio.Event) -> None:
        """Run rounds until `stopping` is set. A failed round is repeated from what Redis stores."""
        failures = self._failures
        going_on = not stopping.is_set()
        while going_on:
            try:
                await self.round(stopping)
            except (ProducerGone, Behind) as error:  # in a rebalance or recovery: it may take them over again
                log.info("release partitions have to be taken over again", reason=type(error).__name__)
            except (RedisError, KafkaError, Unrecovered, DaySealed, Replaced, Unclaimed) as error:
                failures.failed(error)
            else:
                failures.clear()
            going_on = await pause(max(ROUND_S, failures.wait_s), stopping)

    async def round(self, stopping: asyncio.Event) -> int:
        """Release all due items of this worker's release partitions once. Return the number of HATs released."""
        owned = self.owned()
        await self._producers.close_except(owned)
        if owned:
            with self._failures.attempt("take over release partitions"):
                await self._producers.start_missing(owned)  # before any read: see TransactionalProducers.publish
        with self._failures.attempt("recover the ledger"):
            recovered = await self._recovery.ensure(owned)
        if not recovered:
            self._failures.skip_next_clear()
            return 0
        done = await self.hats_path.round(owned, stopping)
        for path in self.paths[1:]:
            if not stopping.is_set():
                await path.round(owned, stopping)
        if self.sealer is not None:
            await self.sealer.round(self.owned(), self.is_done)
        if done:
            log.info("released", hats=done)
        return done

    async def is_done(self, end_date: str) -> bool:
        """Return True if everything of this policy before a local date is published."""
        return all([await path.kind.is_done(end_date) for path in self.paths])

    async def final_slots(self) -> Mapping[str, int]:
        """Return the slots that are final and not yet published as a whole, of all owners, with their ends (ms UTC)."""
        watermark = await self._hats.watermark()
        return {} if watermark is None else await self._source.final_slots(watermark) or {}

    async def published_through(self) -> PublicationProgress | None:
        """Return how far releases are published: up to the end of the first final slot that is not; None: not known."""
        watermark = await self._hats.watermark()
        unpublished = None if watermark is None else await self._source.final_slots(watermark)
        if watermark is None or unpublished is None or await self._hats.went_back(watermark):
            return None
        lateness_ms = self._context.policy.lateness_ms
        through_ms = min(watermark - lateness_ms, min(unpublished.values(), default=watermark) - 1)
        if not self._context.policy.method.settles_days:
            return PublicationProgress(through_ms)
        settled = max(await self._context.ledger.tracker.settled(), self._recovery.sealed_through)
        return PublicationProgress(through_ms, settled)


def _source_of_hats(
    context: ReleaseContext, hats: Hats, answers: AnswerReleases | None
) -> Hats | HatsInStep | TrackedHats | ContinualHats:
    """Return the HATs of a policy, by its kind of release."""
    if context.policy.relation is Relation.ADD_REMOVE:
        return HatsInStep(context, hats, answers)
    match context.policy.method:
        case TrackerKeys():
            return TrackedHats(context, hats)
        case ContinualKeys():
            return ContinualHats(context, hats)
        case MeansKeys() | HybridKeys():
            return hats
