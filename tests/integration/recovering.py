"""The recovery of the ledger as a worker has it, for tests that drive it themselves."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.ledger_store import CommitGuard
from hatcast.agents.redis.recovery import RecoveryStore, SealStore
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.sealing import Sealer
from hatcast.stream.ledger.adoption import AdoptionBatch, Answered, OutputPartition, Position, Published
from hatcast.stream.ledger.recovery import Attempt, RecoveryCheck
from hatcast.stream.ledger.rejections import RecordsMissing
from hatcast.stream.records import BudgetRecord, EpsilonDelta
from tests.integration.harness import Pipeline
from tests.services.kafka_server import PARTITIONS

OUTPUT: Final = OutputPartition("means", 0)  # of tests that need no topic


def recovery_of(
    pipeline: Pipeline, redis: AnyRedis, producers: TransactionalProducers, kind: type[LedgerRecovery] = LedgerRecovery
) -> LedgerRecovery:
    """The recovery of a worker of the pipeline's policy."""
    return recovery_with(pipeline.settings, redis, producers, kind)


def recovery_with(
    settings: Settings,
    redis: AnyRedis,
    producers: TransactionalProducers,
    kind: type[LedgerRecovery] = LedgerRecovery,
    partitions: int = PARTITIONS,
) -> LedgerRecovery:
    """The same, of any settings."""
    registry, ids = Registry(settings), TopicIds(settings)

    async def domain() -> Domain:
        return Domain.of(await registry.read(), settings, partitions)

    async def topic_ids(topics: Iterable[str]) -> Mapping[str, str]:
        return {topic: found or "" for topic, found in (await ids.read(list(topics))).items()}

    store = RecoveryStore(redis, settings.topics.telemetry, settings.policy.name)
    return kind(settings, store, producers, domain, topic_ids)


async def guard_of_all(redis: AnyRedis, domain: str, name: str, partitions: int = PARTITIONS) -> CommitGuard:
    """What owns all release partitions of a domain in which nothing was ever published: its recovery reads nothing."""
    store = RecoveryStore(redis, domain, name)
    if not (await store.read_state()).token:
        await finish(store, await store.begin())
    return await guard_of(store, partitions)


async def finish(store: RecoveryStore, attempt: Attempt) -> None:
    """Finish a recovery for which nothing was published."""
    assert await store.store_ends(attempt, {OUTPUT: Position("", 0)})
    await adopt(store, RecoveryCheck.in_progress(attempt.token), [])
    assert await store.finish(attempt, {}, {})


async def guard_of(store: RecoveryStore, partitions: int = PARTITIONS) -> CommitGuard:
    """What owns all release partitions of a ledger that is recovered."""
    look = await store.read_state(range(partitions))
    assert look.token
    guard = CommitGuard(look.token)
    guard.own(look.sequences)
    return guard


class EagerSealer(Sealer):
    """It seals in each round."""

    round = Sealer.seal


def sealer_of(context: ReleaseContext, redis: AnyRedis) -> Sealer:
    """The sealer of a worker."""
    return EagerSealer(context, SealStore(redis, context.settings.topics.telemetry))


async def adopt(
    store: RecoveryStore, check: RecoveryCheck, records: Sequence[Published], committed: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Adopt the next records of `OUTPUT`, as `LedgerRecovery` does.

    Returns the ids of those that the ledger has with other bytes: then nothing was adopted.
    """
    known = (await store.adopted()).get(OUTPUT)
    start = 0 if known is None else known.offset
    following = Position("", start + len(records))
    batch = AdoptionBatch(OUTPUT, known, following, list(enumerate(records, start)))
    try:
        await store.adopt(check, batch)
    except RecordsMissing as lacking:
        if lacking.different:
            return lacking.different
        await store.adopt(check, batch, lacking.missing, committed)
    return frozenset()


async def restore(
    store: RecoveryStore,
    check: RecoveryCheck,
    budgets: Collection[BudgetRecord] = (),
    answered: Collection[Answered] = (),
) -> None:
    """Adopt budget records, and reservations of answers, as those of the next record of a partition beside `OUTPUT`."""
    place = OutputPartition("budget", 0)
    known = (await store.adopted()).get(place)
    following = Position("", 1 if known is None else known.offset + 1)
    await store.adopt(check, AdoptionBatch(place, known, following, [], answered=answered, budgets=budgets))


def budget_record(policy: str, date: str, seq: int, **more: Any) -> BudgetRecord:
    """A record of `hats.budget` with one release at 1.0."""
    loss = EpsilonDelta(epsilon=1.0, delta=1e-6)
    fields: dict[str, Any] = {
        "releases": 1,
        "epsilon_sum": 1.0,
        "epsilon_user_day": 1.0,
        "limit": 2.0,
        "day_bound": 1.0,
    }
    return BudgetRecord(policy=policy, policy_id="b2:", date=date, seq=seq, epsilon_delta=loss, **(fields | more))
