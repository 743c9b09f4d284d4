"""Worker process: the Faust app with its agent and the loops beside it, from first connection to graceful stop."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import cancel_all
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import cause_of
from hatcast.agents.errors.unexpected import brief
from hatcast.agents.kafka.aio import KafkaError, idempotent_producer
from hatcast.agents.kafka.client import aiokafka_options, broker_name
from hatcast.agents.kafka.producers import TransactionalProducers, stop_producer
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.monitoring.declarations import Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import OperatorServer
from hatcast.agents.redis.connection import connect_redis_async, redis_error, with_retries
from hatcast.agents.redis.hat_store import HatStore, OpenDates
from hatcast.agents.redis.identity import StoredKey
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.policy_state import SpentStore
from hatcast.agents.worker.drain import Drainer
from hatcast.agents.worker.parts import Parts, make_estimates, make_folds, make_recovery, make_releases
from hatcast.agents.worker.policy_transition import PolicyTransition, SpentCells
from hatcast.agents.worker.readiness import Gauges, Readiness, TopicWatch, register_readiness
from hatcast.agents.worker.registration import Registration
from hatcast.agents.worker.source import Connections, Drain, IngestOptions
from hatcast.agents.worker.stopping import UNDRAINED, stop_at_signals
from hatcast.agents.worker.topic_fold import Loop, TopicFold
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.time_zones import TIME_ZONE_DATA

log = structlog.get_logger()

_FINISH_S: Final = 10.0  # for checkpoints and releases in progress when the worker stops
# New objects until a garbage collection. A batch of records is more than Python's 700, and has no cycles: collections
# at each batch took an eighth of the worker's CPU.
_COLLECT_AFTER: Final = 50_000


class Worker:
    """One worker process: connects, makes its parts, runs their loops, and stops in order."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        *,
        accept_gap: bool = False,
        topic_ids: bool = True,
        drain: Drain | None = None,
        on_join: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        partitions:  number of telemetry partitions
        accept_gap:  continue after records were deleted unread; unreleased HATs of their days are incomplete
        topic_ids:   compare topic ids; the mock cluster has none
        drain:       end once everything is closed; None: run until stopped
        on_join:     called before it joins its groups: from then on a stop has something to finish
        """
        self._settings = settings
        self._accept_gap = accept_gap
        self._drain = drain
        self._on_join = on_join
        self._drained = asyncio.Event()
        self._partitions = partitions
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic_ids = TopicIds(settings) if topic_ids else None
        self._topics = None if self._topic_ids is None else TopicWatch(settings, partitions, self._topic_ids)
        self._ready: dict[str, Readiness] = {}
        self._resources = AsyncExitStack()
        self._asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()  # to stop
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._joined: list[TopicFold] = []

    async def _start(self) -> Parts:
        """Connect, check the stored state, and join the groups unless the policy has ended. Raises HatcastError."""
        settings = self._settings
        await self._serve_health()
        client = aiokafka_options(settings)
        redis = await connect_redis_async(settings)
        self._resources.push_async_callback(redis.aclose)
        known = await self._topic_ids.read_at_start(settings.sources) if self._topic_ids is not None else {}
        registration = Registration(settings, redis, self._partitions, known)
        await registration.check()
        producer = idempotent_producer(client)
        await producer.start()
        self._resources.push_async_callback(stop_producer, producer)
        connections = Connections(
            settings=settings,
            partitions=self._partitions,
            client=client,
            redis=redis,
            producer=producer,
            topic_ids=self._topic_ids,
            store=HatStore.of(redis, settings.policy, self._partitions),
            ledger=LedgerStore(redis, settings.topics.telemetry, settings.policy),
        )
        parts = await self._make_parts(connections, registration)
        await parts.transition.check(parts.releases)
        if not parts.transition.ended.is_set():
            store, ledger = connections.store, connections.ledger
            await self._join(parts, Gauges(settings.policy, store, ledger, parts.folds, parts.releases))
            if self._drain is not None:
                self._run(Drainer(self._drain, connections, parts.releases, self._drained).run)
        return parts

    async def _make_parts(self, connections: Connections, registration: Registration) -> Parts:
        """Take over from the replaced policy, register the policy, and return the parts."""
        settings, redis, ledger = self._settings, connections.redis, connections.ledger
        producers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, connections.client)
        self._resources.push_async_callback(producers.stop)
        recovery = make_recovery(settings, self._partitions, redis, self._topic_ids, producers)
        transition = PolicyTransition(settings, redis, ledger, recovery, connections.producer)
        self._resources.push_async_callback(transition.sweep, connections.store)  # after the last checkpoint
        await transition.take_over()
        registered = await registration.register()
        spent_store = SpentStore(redis, settings.topics.telemetry, settings.policy)
        spent = SpentCells(settings, spent_store, ledger, connections.producer)
        await with_retries(settings, spent.charge)

        dates = OpenDates(connections.store, ledger, Calendar(settings.policy))
        await with_retries(settings, dates.check)

        async def restore() -> None:
            await registered.restore()
            await spent.charge()
            await dates.check()

        options = IngestOptions(
            fail=self._fail,
            accept_gap=self._accept_gap,
            drain=self._drain,
            user_key=StoredKey.of(registered.pseudonyms, made=settings.user_key is None),
            restore=restore,
            open_dates=dates.open,
            on_rollback=recovery.require_catch_up,
        )
        folds = make_folds(connections, registered, options)
        releases = make_releases(connections, recovery, producers, folds[0].app.batch_consumer.assigned)
        return Parts(folds, recovery, releases, make_estimates(connections, releases), transition)

    async def _join(self, parts: Parts, gauges: Gauges) -> None:
        """Join the groups and start the loops, unless the worker is to end meanwhile."""
        gc.collect()
        gc.freeze()  # loaded modules stay: scanning them again and again costs a tenth of the fold's time
        gc.set_threshold(_COLLECT_AFTER)
        self._on_join()
        self._resources.push_async_callback(self._leave)
        for fold in parts.folds:
            # As long as another member hangs, the group lets nobody in.
            starting = asyncio.ensure_future(fold.start())
            await asyncio.wait([starting, self._asked, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                return
            starting.result()
            self._joined.append(fold)
        loops: list[Loop] = [loop for fold in parts.folds for loop in fold.loops]
        loops += [parts.releases.run, partial(parts.transition.run, parts.releases), parts.estimates.run]
        if self._topics is not None:
            loops.append(self._topics.run)
        settings, policy = self._settings, self._settings.policy
        if settings.listen is not None:
            gauges.register()
            loops.append(gauges.run)
        for loop in loops:
            self._run(loop)
        named = {"policy": policy.name, "policy_id": policy.policy_id}
        log.info("worker started", **named, partitions=self._partitions, time_zone_data=TIME_ZONE_DATA)
        limits = settings.checkpoint_interval_s, settings.session_timeout_s
        for prefix, fold in zip(("", "reports "), parts.folds, strict=False):
            self._ready[prefix] = Readiness(fold.ingest, parts.recovery, *limits)

    async def _serve_health(self) -> None:
        if self._settings.listen is not None:
            METERS.set_policy(self._settings.policy.name)
            self._resources.callback(METERS.set_policy, "")
            health = OperatorServer(self._settings.listen, Process.WORKER, self._readiness)
            await health.start()
            self._resources.push_async_callback(health.stop)
            register_readiness(self._readiness)
            self._resources.callback(METERS.unregister_all)

    def _readiness(self) -> dict[str, str]:
        if self._stopping.is_set():
            return {"worker": "stopping"}
        if not self._ready:
            return {"worker": "starting"}
        topics = {} if self._topics is None else {"topics": self._topics.state()}
        folds = ((prefix, ready.parts().items()) for prefix, ready in self._ready.items())
        return {prefix + part: state for prefix, parts in folds for part, state in parts} | topics

    def _run(self, loop: Loop) -> None:
        task = asyncio.create_task(loop(self._stopping), name=getattr(loop, "func", loop).__qualname__)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _leave(self) -> None:
        """Leave the groups, side by side: while Redis is away the last checkpoints of each take half a minute."""
        for left in await asyncio.gather(*(fold.stop() for fold in self._joined), return_exceptions=True):
            if left is not None:
                raise left

    async def _stop(self) -> None:
        """Finish rounds in progress, write the last checkpoints, leave the groups, close all connections."""
        self._stopping.set()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=_FINISH_S)
            if unfinished:
                loops = sorted(task.get_name() for task in unfinished)
                log.warning("loops did not finish, and are cancelled", loops=loops, after_s=_FINISH_S)
            await cancel_all(unfinished)  # another worker can finish its releases
        await self._resources.aclose()
        if self._joined:  # a rejected start has its own message
            log.info("worker stopped")

    async def _start_or_raise(self) -> Parts:
        """Start. Raises HatcastError, also if a server is lost meanwhile."""
        try:
            return await self._start()
        except KafkaError as error:
            where, why = broker_name(self._settings), cause_of(error).text
            raise HatcastError(f"{where} was lost during the start ({why}): start again once it answers") from None
        except RedisError as error:
            raise redis_error(self._settings, error) from None

    async def run(self, stopping: Awaitable[Any]) -> None:
        """Start, run until `stopping` is done or the policy has ended, and stop. Raises the worker's error."""
        stop = self._asked = asyncio.ensure_future(stopping)  # before the start, which may raise
        try:
            parts = await self._start_or_raise()
            if parts.transition.ended.is_set():
                return
            ended = asyncio.ensure_future(parts.transition.ended.wait())
            drained = asyncio.ensure_future(self._drained.wait())
            stopped = [asyncio.ensure_future(fold.app.wait_until_stopped()) for fold in parts.folds]
            await asyncio.wait([stop, self._failed, ended, drained, *stopped], return_when=asyncio.FIRST_COMPLETED)
            for fold, app in zip(parts.folds, stopped, strict=True):
                if not self._failed.done() and app.done() and (crash := fold.crash) is not None:
                    raise crash
        finally:
            stop.cancel()
            await self._stop()
        if self._failed.done():  # before, or by the last checkpoints
            self._failed.result()
        if self._drain is not None and not (self._drained.is_set() or parts.transition.ended.is_set()):
            raise HatcastError(UNDRAINED)


async def run_worker(
    settings: Settings, partitions: int, *, accept_gap: bool = False, drain: Drain | None = None
) -> None:
    """Run a worker until SIGINT or SIGTERM, as `stop_at_signals` says from its join on. Raises HatcastError."""
    stopping = asyncio.Event()
    on_join = partial(stop_at_signals, stopping, is_drain=drain is not None)
    worker = Worker(settings, partitions, accept_gap=accept_gap, drain=drain, on_join=on_join)
    try:
        await worker.run(stopping.wait())
    except HatcastError:
        raise
    except RedisError as error:  # only of the start: a running worker waits for Redis
        raise redis_error(settings, error) from error
    except Exception as error:
        log.exception("worker failed")
        raise HatcastError(f"the worker failed ({brief(error)}); its log has the details") from error
