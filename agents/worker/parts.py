"""The parts of a worker process, made from its settings and connections."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topic_ids import TopicIdCheck, TopicIds
from hatcast.agents.monitoring.declarations import READINGS, REPORTS
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import watch_reconnects
from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.recovery import RecoveryStore, SealStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.estimates import EstimatePublisher
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.sealing import Sealer
from hatcast.agents.worker.folds import fold_maker, report_check, report_fold_maker
from hatcast.agents.worker.policy_transition import PolicyTransition
from hatcast.agents.worker.registration import Registered
from hatcast.agents.worker.source import Connections, Drain, IngestOptions, Source
from hatcast.agents.worker.topic_fold import TopicFold
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.mechanisms.system import SystemNoise

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a worker whose policy is registered."""

    folds: tuple[TopicFold, ...]  # of telemetry, then of reports if the policy takes them
    recovery: LedgerRecovery
    releases: ReleaseLoop
    estimates: EstimatePublisher
    transition: PolicyTransition


def make_recovery(
    settings: Settings, partitions: int, redis: AnyRedis, reader: TopicIds | None, producers: TransactionalProducers
) -> LedgerRecovery:
    """Return the ledger recovery; it catches up after each reconnect to Redis. `reader`: None without topic ids."""
    registry = Registry(settings)

    async def domain() -> Domain:
        return Domain.of(await registry.read(), settings, partitions)

    async def topic_ids(topics: Iterable[str]) -> Mapping[str, str]:
        known = {} if reader is None else await reader.read(list(topics))
        return {topic: known.get(topic) or "" for topic in topics}

    store = RecoveryStore(redis, settings.topics.telemetry, settings.policy.name)
    recovery = LedgerRecovery(settings, store, producers, domain, topic_ids)
    watch_reconnects(redis, recovery.require_catch_up)
    return recovery


def make_folds(connections: Connections, registered: Registered, options: IngestOptions) -> tuple[TopicFold, ...]:
    """Return a fold of telemetry, and of reports if the policy takes them.

    Each checks its topic's id if the broker has topic ids. `options`: without `confirm_topic`.
    """
    record = registered.record
    folds: list[TopicFold] = []
    topic_ids = record.telemetry_id, record.reports_id
    for source, topic_id in zip(_sources(connections, registered), topic_ids, strict=False):
        confirm = None
        if connections.topic_ids is not None and topic_id is not None:
            confirm = TopicIdCheck(connections.topic_ids, record.policy, source.topic, topic_id).confirm
        # Only telemetry has limits: reports do not move when telemetry grows.
        drain = options.drain if options.drain is None or not folds else Drain()
        folds.append(TopicFold(connections, source, replace(options, confirm_topic=confirm, drain=drain)))
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
    settings, partitions, producer = connections.settings, connections.partitions, connections.producer
    snapshots = SnapshotStore(connections.redis, settings.topics.telemetry, settings.policy.name)
    published = releases.published_through
    return EstimatePublisher(settings, partitions, producer, snapshots, releases.owned, published)


def make_releases(
    connections: Connections,
    recovery: LedgerRecovery,
    producers: TransactionalProducers,
    assigned: Callable[[], frozenset[int]],
) -> ReleaseLoop:
    """Return the release loop. `assigned`: the telemetry partitions of this worker."""
    settings, registry = connections.settings, Registry(connections.settings)
    store, ledger = connections.store, connections.ledger
    context = ReleaseContext(settings, store, ledger, recovery, producers, registry, SystemNoise())
    sealer = Sealer(context, SealStore(connections.redis, settings.topics.telemetry))
    retained = RetainedStore(connections.redis, settings.policy.name, connections.partitions)
    return ReleaseLoop(context, retained, assigned, sealer)
