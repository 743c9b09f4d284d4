"""The recovery of the ledger as a worker has it, for tests that drive it themselves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agents.publisher import Publishers
from agents.recovery import Domain, LedgerRecovery
from agents.redis_clients import AnyRedis
from agents.registry import Registry
from agents.sealing import Change, Sealer
from agents.settings import Settings
from agents.store.adoption import Chunk, OutputPartition, Position, Published
from agents.store.attempts import Grounds, Missing
from agents.store.guard import CommitGuard
from agents.store.hats import HatStore
from agents.store.ledger import LedgerStore
from agents.store.recovery import RecoveryStore
from agents.store.seals import SealStore
from agents.topic_ids import TopicIds
from tests.integration.harness import Pipeline
from tests.integration.tables import PARTITIONS

OUTPUT: Final = OutputPartition("means", 0)  # of tests that need no topic


def recovery_of(
    pipeline: Pipeline, redis: AnyRedis, publishers: Publishers, kind: type[LedgerRecovery] = LedgerRecovery
) -> LedgerRecovery:
    """The recovery of a worker of the pipeline's policy."""
    return recovery_with(pipeline.settings, redis, publishers, kind)


def recovery_with(
    settings: Settings,
    redis: AnyRedis,
    publishers: Publishers,
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
    return kind(settings, store, publishers, domain, topic_ids)


async def guard_of_all(redis: AnyRedis, domain: str, name: str, partitions: int = PARTITIONS) -> CommitGuard:
    """What owns all release partitions of a domain in which nothing was ever published: its recovery reads nothing."""
    store = RecoveryStore(redis, domain, name)
    if not (await store.look()).token:
        attempt = await store.begin()
        assert await store.fenced(attempt, {OUTPUT: Position("", 0)})
        assert await store.finish(attempt)
    return await guard_of(store, partitions)


async def guard_of(store: RecoveryStore, partitions: int = PARTITIONS) -> CommitGuard:
    """What owns all release partitions of a ledger that is recovered."""
    look = await store.look(range(partitions))
    assert look.token
    guard = CommitGuard(look.token)
    guard.own(look.sequences)
    return guard


def sealer_of(pipeline: Pipeline, redis: AnyRedis, ledger: LedgerStore, recovery: LedgerRecovery) -> Sealer:
    """The sealer of a worker of the pipeline's policy."""
    settings, registry = pipeline.settings, Registry(pipeline.settings)

    async def write(change: Change) -> None:
        await registry.write(lambda facts: change(facts.values))

    store = HatStore.of(redis, settings.policy, PARTITIONS)
    return Sealer(settings, store, ledger, SealStore(redis, settings.topics.telemetry), recovery, write)


async def adopt(
    store: RecoveryStore, grounds: Grounds, records: Sequence[Published], committed: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Adopt the next records of `OUTPUT`, as `LedgerRecovery` does.

    Returns the ids of those that the ledger has with other bytes: then nothing was adopted.
    """
    known = (await store.adopted()).get(OUTPUT)
    start = 0 if known is None else known.offset
    following = Position("", start + len(records))
    chunk = Chunk(OUTPUT, known, following, list(enumerate(records, start)))
    try:
        await store.adopt(grounds, chunk)
    except Missing as lacking:
        if lacking.different:
            return lacking.different
        await store.adopt(grounds, chunk, lacking.missing, committed)
    return frozenset()
