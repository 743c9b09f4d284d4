"""Worker process: the Faust app with its agent and the loops beside it, from first connection to graceful stop."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import cause_of
from hatcast.agents.errors.unexpected import brief
from hatcast.agents.kafka.backoff import back_off_reconnects
from hatcast.agents.kafka.client import aiokafka_options, broker_name
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.registry import PolicyRecord, Registry
from hatcast.agents.kafka.topic_ids import TopicIdCheck, TopicIds
from hatcast.agents.monitoring.declarations import READINGS, REPORTS
from hatcast.agents.monitoring.kinds import Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import OperatorServer
from hatcast.agents.recovery import Domain, LedgerRecovery
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async, redis_error, watch_reconnects, with_retries
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.sealing import SealStore
from hatcast.agents.redis.spent_cells import SpentStore
from hatcast.agents.release.hats import Releaser, ReleaserOptions
from hatcast.agents.release.queries import QueryReleaser
from hatcast.agents.release.slots import SlotReleaser
from hatcast.agents.worker.folds import fold_maker, report_fold_maker
from hatcast.agents.worker.gauges import Gauges, register_readiness
from hatcast.agents.worker.policy_transition import PolicyTransition
from hatcast.agents.worker.readiness import Readiness
from hatcast.agents.worker.registration import Registration
from hatcast.agents.worker.sealing import Change, Sealer
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.agents.worker.spent_cells import SpentCells
from hatcast.agents.worker.topic_fold import Loop, TopicFold
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import Relation
from hatcast.stream.readings.pseudonyms import Pseudonyms

log = structlog.get_logger()

_FINISH_S: Final = 10.0  # for checkpoints and releases in progress when the worker stops


class Worker:
    """All parts of one worker process. They are attributes, so that a test can wrap a step of one of them."""

    def __init__(
        self, settings: Settings, partitions: int, *, accept_gap: bool = False, topic_ids: bool = True
    ) -> None:
        """Args:
        partitions:  number of telemetry partitions
        accept_gap:  continue after records were deleted unread; unreleased HATs of their days are incomplete
        topic_ids:   compare topic ids; the mock cluster has none
        """
        self.settings = settings
        self.accept_gap = accept_gap
        self.partitions = partitions
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transition: PolicyTransition | None = None
        self._topic_ids = TopicIds(settings) if topic_ids else None
        self._ready: dict[str, Readiness] = {}
        self._resources = AsyncExitStack()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, check the stored state, and join the groups unless the policy has ended. Raises HatcastError."""
        settings, policy = self.settings, self.settings.policy
        await self._serve_health()
        client = aiokafka_options(settings)
        redis = await connect_redis_async(settings)
        self._resources.push_async_callback(redis.aclose)
        store = HatStore.of(redis, policy, self.partitions)
        self._resources.push_async_callback(self._sweep, store)  # after the last checkpoint
        ledger = LedgerStore(redis, settings.topics.telemetry, policy)
        known = await self._topic_ids.read_at_start(settings.sources) if self._topic_ids is not None else {}
        registration = Registration(settings, redis, self.partitions, known)
        await registration.check()
        producer = AIOKafkaProducer(acks="all", enable_idempotence=True, **client)
        back_off_reconnects(producer.client)
        await producer.start()
        self._resources.push_async_callback(producer.stop)
        recovery = self._recovery(redis, client)
        self.transition = PolicyTransition(settings, redis, ledger, recovery, producer)
        await self.transition.take_over()
        await registration.register()
        spent = SpentCells(settings, SpentStore(redis, settings.topics.telemetry, policy), ledger, producer)
        await with_retries(settings, spent.charge)

        async def restore() -> None:
            await registration.restore()
            await spent.charge()

        options = IngestOptions(
            fail=self._fail,
            accept_gap=self.accept_gap,
            user_key=registration.stored_key,
            restore=restore,
            on_rollback=recovery.require_catch_up,
        )
        sources = self._sources(store, Calendar(policy), registration.pseudonyms)
        self.folds = self._topic_folds(sources, store, producer, client, options, registration.record)
        for fold in self.folds:
            self._resources.push_async_callback(fold.dead_letters.flush)
        self.ingest = self.folds[0].ingest
        self.releaser = self._releaser(redis, store, ledger, recovery)
        await self.transition.check(self.releaser)
        if not self.transition.ended.is_set():
            await self._join(self.transition, Gauges(policy, store, ledger, self.folds, self.releaser))
            limits = settings.checkpoint_interval_s, settings.session_timeout_s
            prefixes = ("", "reports ")[: len(self.folds)]
            for prefix, fold in zip(prefixes, self.folds, strict=True):
                self._ready[prefix] = Readiness(fold.ingest, recovery, *limits)

    def _recovery(self, redis: AnyRedis, client: dict[str, Any]) -> LedgerRecovery:
        settings, registry = self.settings, Registry(self.settings)
        publishers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, client)
        self._resources.push_async_callback(publishers.stop)

        async def domain() -> Domain:
            return Domain.of(await registry.read(), settings, self.partitions)

        async def topic_ids(topics: Iterable[str]) -> Mapping[str, str]:
            known = {} if self._topic_ids is None else await self._topic_ids.read(list(topics))
            return {topic: known.get(topic) or "" for topic in topics}

        store = RecoveryStore(redis, settings.topics.telemetry, settings.policy.name)
        recovery = LedgerRecovery(settings, store, publishers, domain, topic_ids)
        watch_reconnects(redis, recovery.require_catch_up)
        return recovery

    def _releaser(self, redis: AnyRedis, store: HatStore, ledger: LedgerStore, recovery: LedgerRecovery) -> Releaser:
        settings, policy, registry = self.settings, self.settings.policy, Registry(self.settings)
        kind = SlotReleaser if policy.relation is Relation.ADD_REMOVE else Releaser
        retained = RetainedStore(redis, policy.name, self.partitions)
        queries = QueryReleaser(settings, retained, ledger, recovery, SystemNoise()) if policy.queries else None

        async def write(change: Change) -> None:
            await registry.write(lambda facts: change(facts.values))

        seals = SealStore(redis, settings.topics.telemetry)
        sealer = Sealer(settings, store, ledger, seals, recovery, write)
        options = ReleaserOptions(self.folds[0].app.batch_consumer.assigned, queries, sealer.round)
        return kind(settings, store, ledger, recovery, SystemNoise(), options)

    def _sources(self, store: HatStore, calendar: Calendar, pseudonyms: Pseudonyms) -> list[Source]:
        """Return telemetry, then reports if the policy takes them."""
        settings, policy = self.settings, self.settings.policy
        sources = [
            Source(
                settings.topics.telemetry,
                f"hatcast-{policy.name}",
                store.telemetry,
                fold_maker(policy, calendar, pseudonyms, settings, self.partitions),
                READINGS,
            )
        ]
        if store.reports is not None:
            make_fold = report_fold_maker(policy, calendar, pseudonyms, self.partitions)
            group = f"hatcast-{policy.name}/reports"
            sources.append(Source(settings.topics.reports, group, store.reports, make_fold, REPORTS))
        return sources

    def _topic_folds(
        self,
        sources: Sequence[Source],
        store: HatStore,
        producer: AIOKafkaProducer,
        client: Mapping[str, Any],
        options: IngestOptions,
        record: PolicyRecord,
    ) -> list[TopicFold]:
        """Return a fold of each source; it checks its topic's id if the broker has topic ids."""
        folds = []
        for source, registered in zip(sources, (record.telemetry_id, record.reports_id), strict=False):
            confirm = None
            if self._topic_ids is not None and registered is not None:
                confirm = TopicIdCheck(self._topic_ids, record.policy, source.topic, registered).confirm
            with_topic = replace(options, confirm_topic=confirm)
            folds.append(TopicFold(self.settings, source, store, producer, client, with_topic))
        return folds

    async def _join(self, transition: PolicyTransition, gauges: Gauges) -> None:
        """Join the groups and start the loops."""
        await self.releaser.prepare()
        gc.collect()
        gc.freeze()  # loaded modules stay: scanning them again and again costs a tenth of the fold's time
        for fold in self.folds:
            await fold.start()
            self._resources.push_async_callback(fold.stop)
        loops: list[Loop] = [self.releaser.run, partial(transition.run, self.releaser)]
        for loop in [loop for fold in self.folds for loop in fold.loops] + loops:
            self._run(loop)
        if self.settings.listen is not None:
            gauges.register()
            self._run(gauges.run)
        policy = self.settings.policy
        log.info("worker started", policy=policy.name, policy_id=policy.policy_id, partitions=self.partitions)

    async def _sweep(self, store: HatStore) -> None:
        if self.transition is not None:
            await self.transition.sweep(store)

    async def _serve_health(self) -> None:
        if self.settings.listen is not None:
            health = OperatorServer(self.settings.listen, Process.WORKER, self._readiness)
            await health.start()
            self._resources.push_async_callback(health.stop)
            register_readiness(self._readiness)
            self._resources.callback(METERS.unregister_all)

    def _readiness(self) -> dict[str, str]:
        if self._stopping.is_set():
            return {"worker": "stopping"}
        if not self._ready:
            return {"worker": "starting"}
        return {prefix + part: state for prefix, ready in self._ready.items() for part, state in ready.parts().items()}

    def _run(self, loop: Loop) -> None:
        task = asyncio.create_task(loop(self._stopping))
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def stop(self) -> None:
        """Finish rounds in progress, write the last checkpoints, leave the groups, close all connections."""
        self._stopping.set()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=_FINISH_S)
            for task in unfinished:  # another worker can finish its releases
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._resources.aclose()
        if self._tasks:  # a rejected start has its own message
            log.info("worker stopped")

    async def _start_or_raise(self) -> None:
        """Start. Raises HatcastError, also if a server is lost meanwhile."""
        try:
            await self.start()
        except KafkaError as error:
            where, why = broker_name(self.settings), cause_of(error).text
            raise HatcastError(f"{where} was lost during the start ({why}): start again once it answers") from None
        except RedisError as error:
            raise redis_error(self.settings, error) from None

    async def run(self, stopping: Awaitable[Any]) -> None:
        """Start, run until `stopping` is done or the policy has ended, and stop. Raises the worker's error."""
        stop = asyncio.ensure_future(stopping)  # before the start, which may raise
        try:
            await self._start_or_raise()
            if self.transition is None or self.transition.ended.is_set():
                return
            ended = asyncio.ensure_future(self.transition.ended.wait())
            stopped = [asyncio.ensure_future(fold.app.wait_until_stopped()) for fold in self.folds]
            await asyncio.wait([stop, self.failed, ended, *stopped], return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                self.failed.result()
            for fold, app in zip(self.folds, stopped, strict=True):
                if app.done() and (crash := fold.crash) is not None:
                    raise crash
        finally:
            stop.cancel()
            await self.stop()


async def run_worker(settings: Settings, partitions: int, *, accept_gap: bool = False) -> None:
    """Run a worker until SIGINT or SIGTERM. Raises HatcastError."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    worker = Worker(settings, partitions, accept_gap=accept_gap)
    try:
        await worker.run(stopping.wait())
    except HatcastError:
        raise
    except RedisError as error:  # only of the start: a running worker waits for Redis
        raise redis_error(settings, error) from error
    except Exception as error:
        log.exception("worker failed")
        raise HatcastError(f"the worker failed ({brief(error)}); its log has the details") from error
