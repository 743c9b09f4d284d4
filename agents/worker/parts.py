"""The parts of a worker process, made from its settings and connections, and of `hatcast republish`.

The latter sends the releases of a local date again: an output topic was lost.
[docs/runbook.md, A lost output topic]
The producers that own the release partitions send the stored bytes once the ledger is recovered: then no other process
has fenced them, and Redis lacks nothing that the topics still have. No noise is drawn and nothing is charged.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import cause_of
from hatcast.agents.kafka.client import aiokafka_options, broker_name
from hatcast.agents.kafka.groups import count_members
from hatcast.agents.kafka.producers import ProducerGone, TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topic_ids import TopicIdCheck, TopicIds
from hatcast.agents.monitoring.declarations import READINGS, REPORTS
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.recovery.outputs import Domain
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async, redis_error, watch_reconnects
from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore, SealStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.estimates import EstimatePublisher
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.worker.folds import fold_maker, report_check, report_fold_maker
from hatcast.agents.worker.policy_transition import PolicyTransition
from hatcast.agents.worker.registration import Registered, Registration
from hatcast.agents.worker.sealing import Change, Resender, Sealer
from hatcast.agents.worker.source import Connections, Drain, IngestOptions, Source
from hatcast.agents.worker.topic_fold import TopicFold
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.ledger.rejections import Unrecovered
from hatcast.stream.mechanisms.system import SystemNoise

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a worker whose policy is registered.

    folds   of telemetry, then of reports if the policy takes them
    """

    folds: tuple[TopicFold, ...]
    recovery: LedgerRecovery
    releases: ReleaseLoop
    estimates: EstimatePublisher
    transition: PolicyTransition


def make_recovery(
    settings: Settings, partitions: int, redis: AnyRedis, reader: TopicIds | None, publishers: TransactionalProducers
) -> LedgerRecovery:
    """Return the ledger recovery; it catches up after each reconnect to Redis. `reader`: None without topic ids."""
    registry = Registry(settings)

    async def domain() -> Domain:
        return Domain.of(await registry.read(), settings, partitions)

    async def topic_ids(topics: Iterable[str]) -> Mapping[str, str]:
        known = {} if reader is None else await reader.read(list(topics))
        return {topic: known.get(topic) or "" for topic in topics}

    store = RecoveryStore(redis, settings.topics.telemetry, settings.policy.name)
    recovery = LedgerRecovery(settings, store, publishers, domain, topic_ids)
    watch_reconnects(redis, recovery.require_catch_up)
    return recovery


def make_folds(connections: Connections, registered: Registered, options: IngestOptions) -> tuple[TopicFold, ...]:
    """Return a fold of telemetry, and of reports if the policy takes them.

    Each checks its topic's id if the broker has topic ids. `options`: without `confirm_topic`.
    """
    record = registered.record
    folds: list[TopicFold] = []
    for source, topic_id in zip(
        _sources(connections, registered), (record.telemetry_id, record.reports_id), strict=False
    ):
        confirm = None
        if connections.topic_ids is not None and topic_id is not None:
            confirm = TopicIdCheck(connections.topic_ids, record.policy, source.topic, topic_id).confirm
        # Only telemetry has limits: reports do not move when telemetry grows.
        drain = options.drain if options.drain is None or not folds else Drain()
        with_topic = replace(options, confirm_topic=confirm, drain=drain)
        folds.append(TopicFold(connections, source, with_topic))
    return tuple(folds)


def _sources(connections: Connections, registered: Registered) -> list[Source]:
    settings, policy, partitions = connections.settings, connections.settings.policy, connections.partitions
    calendar, users = Calendar(policy), FoldUsers(registered.pseudonyms)
    make_fold = fold_maker(policy, calendar, users, settings, partitions)
    group = f"hatcast-{policy.name}"
    sources = [Source(settings.topics.telemetry, group, connections.store.telemetry, make_fold, READINGS)]
    if (reports := connections.store.reports) is not None:
        if (keys := settings.report_keys) is not None:  # the same numbers in the log of every worker
            log.info("only signed reports count", authorities=len(keys.authorities), revoked=len(keys.revoked))
        make_report_fold = report_fold_maker(policy, calendar, users, partitions, report_check(settings))
        sources.append(Source(settings.topics.reports, f"{group}/reports", reports, make_report_fold, REPORTS))
    return sources


def make_estimates(connections: Connections, releases: ReleaseLoop) -> EstimatePublisher:
    """Return the publisher of estimates."""
    settings = connections.settings
    snapshots = SnapshotStore(connections.redis, settings.topics.telemetry, settings.policy.name)
    return EstimatePublisher(
        settings,
        connections.partitions,
        connections.producer,
        snapshots,
        releases.owned,
        releases.published_through,
    )


def make_releases(
    connections: Connections, recovery: LedgerRecovery, assigned: Callable[[], frozenset[int]]
) -> ReleaseLoop:
    """Return the release loop. `assigned`: the telemetry partitions of this worker."""
    settings, registry = connections.settings, Registry(connections.settings)
    store, ledger = connections.store, connections.ledger

    async def write(change: Change) -> None:
        await registry.write(lambda facts: change(facts.values))

    sealer = Sealer(settings, store, ledger, SealStore(connections.redis, settings.topics.telemetry), recovery, write)
    context = ReleaseContext(settings, store, ledger, recovery, registry, SystemNoise())
    retained = RetainedStore(connections.redis, settings.policy.name, connections.partitions)
    return ReleaseLoop(context, retained, assigned, sealer.round)


_PAUSE_S: Final = 1.0  # before the ledger is looked at again, while it cannot be recovered


async def republish(settings: Settings, partitions: int, date: str) -> tuple[int, str]:
    """Send the published releases of a date again; return their number, and the date through which all are sealed.

    Raises HatcastError: workers run, the date is sealed, nothing of it was published, or Kafka or Redis fails.
    """
    try:
        async with AsyncExitStack() as resources:
            return await _republish(settings, partitions, date, resources)
    except (ProducerGone, Unrecovered):
        raise HatcastError(
            "a worker has started, or Redis has changed, so not all was sent: stop all workers, and republish again"
        ) from None
    except KafkaError as error:
        raise HatcastError(
            f"{broker_name(settings)} was lost ({cause_of(error).text}), so not all was sent: republish again"
        ) from None
    except RedisError as error:
        raise redis_error(settings, error) from None


async def _republish(settings: Settings, partitions: int, date: str, resources: AsyncExitStack) -> tuple[int, str]:
    client: dict[str, Any] = aiokafka_options(settings)
    policy, domain, owned = settings.policy, settings.topics.telemetry, frozenset(range(partitions))
    group = f"hatcast-{policy.name}"
    if running := await count_members(group, client):
        raise HatcastError(
            f"workers run and own the producers of the releases ({running} in group {group}): stop all of them,"
            " republish, and start them again"
        )
    redis = await connect_redis_async(settings)
    resources.push_async_callback(redis.aclose)
    ids = TopicIds(settings)
    await Registration(settings, redis, partitions, await ids.read_at_start(settings.sources)).check()
    ledger = LedgerStore(redis, domain, policy)
    publishers = TransactionalProducers(domain, policy.name, client)
    resources.push_async_callback(publishers.stop)
    recovery = make_recovery(settings, partitions, redis, ids, publishers)
    await publishers.start_missing(owned)
    while not await recovery.ensure(owned):
        await asyncio.sleep(_PAUSE_S)
    sealed = await ledger.sealed_through()
    if date <= sealed:
        raise HatcastError(
            f"{date} is sealed: its releases are gone with the topic, as are all through {sealed}, since Redis has only"
            f" their summaries. {_stored([each for each in await ledger.unsealed_dates() if each > sealed])}"
        )
    sent = await Resender(settings, ledger, recovery, partitions).republish(date, owned)
    if not sent:
        raise HatcastError(f"nothing of {date} was published. {_stored(await ledger.unsealed_dates())}")
    return sent, sealed


def _stored(dates: list[str]) -> str:
    return f"Stored are the releases of {', '.join(dates)}" if dates else "No releases are stored"
