"""Is everything there, and set so that the promises can be kept? Nothing is changed and nothing is made."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.registry import PolicyRecord, Registry
from hatcast.agents.kafka.registry.checks import check_facts, check_policy_name
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topics import TopicReport, check_topics
from hatcast.agents.redis.clients import SyncRedis, primaries
from hatcast.agents.redis.connection import connect_redis, redis_error, redis_name
from hatcast.agents.redis.durability import NO_EVICTION, Persistence, info, read_durability
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.worker.registration import configured_key, own_record
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from redis import Redis

PATIENCE_SECONDS: Final = 5.0
FULL_SHARE: Final = 0.9  # of Redis' memory limit


class State(StrEnum):
    """How a check ended. A problem keeps a worker from starting or from keeping a promise."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    mend   what to change; empty if nothing
    """

    name: str
    state: State
    found: str
    mend: str = ""


def examine(config: Path) -> Iterator[Check]:
    """All checks in order, as they are done. What depends on something that failed is left out."""
    try:
        settings = load_settings(config)
    except HatcastError as refusal:
        yield Check("configuration", State.PROBLEM, "not usable", str(refusal))
        return
    policy = settings.policy
    yield Check("configuration", State.OK, f"policy {policy.name}: {policy.estimator}, epsilon {policy.epsilon:g}")
    try:
        topics = check_topics(settings, PATIENCE_SECONDS)
    except HatcastError as refusal:
        partitions = None
        yield Check("kafka", State.PROBLEM, "not usable", str(refusal))
    else:
        yield Check("kafka", State.OK, broker_name(settings).removeprefix("Kafka at "))
        yield from _topic_checks(topics)
        partitions = topics.partitions.get(settings.topics.telemetry)
        yield from _registry_checks(settings, topics)
    try:
        with closing(connect_redis(settings, PATIENCE_SECONDS)) as redis:
            yield Check("redis", State.OK, redis_name(settings).removeprefix("Redis at "))
            nodes = primaries(redis)
            for name, node in nodes.items():
                yield from _redis_checks(node, f" {name}" if name else "")
            yield _clock_check(next(iter(nodes.values())), settings)
            yield from _stored_checks(redis, settings, partitions)
    except HatcastError as refusal:
        yield Check("redis", State.PROBLEM, "not usable", str(refusal))
    except RedisError as error:
        yield Check("redis", State.PROBLEM, "failed", str(redis_error(settings, error)))


def _topic_checks(topics: TopicReport) -> Iterator[Check]:
    wrong = {finding.topic for finding in topics.findings}
    for name, count in topics.partitions.items():
        if name not in wrong:
            yield Check(f"topic {name}", State.OK, f"{count} partition{'s' if count > 1 else ''}")
    for finding in topics.findings:
        state = State.PROBLEM if finding.fatal else State.WARNING
        mend = f"wanted is {finding.expected}: {finding.fix}"
        yield Check(f"topic {finding.topic}", state, f"{finding.setting} is {finding.found}", mend)
    for name in topics.missing:
        yield Check(f"topic {name}", State.WARNING, "missing: the first worker makes it")


def _registry_checks(settings: Settings, topics: TopicReport) -> Iterator[Check]:
    """What is registered for this telemetry, and whether the settings agree with it."""
    if settings.topics.registry in topics.missing:
        return
    registry = Registry(settings)
    try:
        facts = asyncio.run(registry.read())
        for name, record in facts.policies.items():
            yield Check(f"registered policy {name}", State.OK, _registered(record))
        partitions = topics.partitions.get(settings.topics.telemetry)
        if partitions is None:
            return
        ids = asyncio.run(_topic_ids(settings, [name for name in settings.sources if name in topics.partitions]))
        check_facts(facts, own_record(settings, partitions, ids, configured_key(settings)))
        if settings.policy.name not in facts.policies:
            check_policy_name(settings.policy.name, settings.topics.telemetry, asyncio.run(registry.read_others()))
    except HatcastError as refusal:
        yield Check("registry", State.PROBLEM, "workers do not start", str(refusal))
    except KafkaError as error:
        yield Check("registry", State.PROBLEM, f"not read ({type(error).__name__})", "see that all brokers run")
    else:
        yield Check("registry", State.OK, "agrees with the configuration")


async def _topic_ids(settings: Settings, names: list[str]) -> dict[str, str | None]:
    return await TopicIds(settings).read(names)


def _registered(record: PolicyRecord) -> str:
    whose = "made by hatcast" if record.user_key.made else "given"
    return (
        f"{record.policy_id}, {record.partitions} partitions by {record.partitioner}, {record.timezone}, topic id"
        f" {record.telemetry_id or 'unknown'}, user key {record.user_key.fingerprint[:8]} {whose}"
    )


def _redis_checks(redis: "Redis", node: str) -> Iterator[Check]:
    """What could make Redis forget. INFO says it where CONFIG is not allowed. `node`: of a cluster."""
    memory, kept = info(redis, "memory"), info(redis, "persistence")
    durability = read_durability(redis)
    last_write = str(kept.get("aof_last_write_status", "ok"))
    yield _persistence_check(f"redis persistence{node}", durability.persistence, last_write)
    limit = int(memory.get("maxmemory", 0))
    if durability.eviction == NO_EVICTION:
        yield Check(f"redis eviction{node}", State.OK, durability.eviction)
    elif durability.eviction is None:
        yield Check(
            f"redis eviction{node}", State.WARNING, "not told", f"make sure of `maxmemory-policy {NO_EVICTION}`"
        )
    else:
        mend = f"set `maxmemory-policy {NO_EVICTION}`: it may delete contributions and the ledger; workers do not start"
        yield Check(f"redis eviction{node}", State.WARNING, durability.eviction, mend)
    if limit:
        used = int(memory.get("used_memory", 0)) / limit
        full = used > FULL_SHARE
        mend = "raise `maxmemory`: when it is full, workers stop" if full else ""
        yield Check(
            f"redis memory{node}", State.WARNING if full else State.OK, f"{used:.0%} of {limit >> 20} MiB", mend
        )
    if info(redis, "replication").get("role") != "master":
        yield Check(
            f"redis role{node}", State.PROBLEM, "a replica", "let redis.url name the master: a replica takes no writes"
        )


def _persistence_check(name: str, found: Persistence, last_write: str) -> Check:
    match found:
        case Persistence.APPEND_ONLY if last_write != "ok":
            mend = "make room on its disk: until then it refuses writes"
            return Check(name, State.PROBLEM, "the last write to the append-only file failed", mend)
        case Persistence.APPEND_ONLY:
            return Check(name, State.OK, found)
        case Persistence.SNAPSHOTS:
            mend = "set `appendonly yes`: after a restart, what came after the last snapshot is folded again"
        case Persistence.NONE:
            mend = "set `appendonly yes`: a restart costs the ledger's first home and all state; workers do not start"
        case _:
            mend = "set `appendonly yes`, or allow `CONFIG GET`"
    return Check(name, State.WARNING, found, mend)


def _clock_check(redis: "Redis", settings: Settings) -> Check:
    """This machine's clock beside that of Redis: records ahead of a worker's clock hold their partitions up."""
    before = now_ms()
    seconds, microseconds = redis.time()
    after = now_ms()
    there = seconds * 1000 + microseconds // 1000
    apart = max(there - after, before - there, 0)  # what the way there and back cannot explain
    limit = settings.policy.max_ahead_ms
    found = f"{apart / 1000:g} s from Redis' clock"
    if apart > limit:
        mend = f"set both by NTP: they may differ by policy.max_ahead, {limit / 1000:g} s"
        return Check("clock", State.PROBLEM, found, mend)
    if apart > limit / 2:
        return Check("clock", State.WARNING, found, f"set both by NTP: above {limit / 1000:g} s workers wait")
    return Check("clock", State.OK, found)


def _stored_checks(redis: SyncRedis, settings: Settings, partitions: int | None) -> Iterator[Check]:
    """What the first start fixed: the policy, the partition count, the user key."""
    keys = DomainKeys(settings.topics.telemetry)
    name = settings.policy.name
    policy_id, count = (_text(value) for value in redis.hmget(keys.policy(name), "policy_id", "partitions"))
    if policy_id is None or count is None:
        yield Check("stored policy", State.OK, f"none yet under {name!r}")
    elif policy_id != settings.policy.policy_id:
        mend = "restore [policy] as it was, or start the new one under a new policy.name"
        yield Check("stored policy", State.PROBLEM, f"{name!r} was started as another policy", mend)
    else:
        yield Check("stored policy", State.OK, policy_id)
    yield from _successor_check(_text(redis.hget(keys.next_policies, name)))
    if count is not None and partitions is not None:
        if int(count) == partitions:
            yield Check("stored partitions", State.OK, count)
        else:
            mend = "stop the feeds, let all slots close, then start under a new policy.name"
            found = f"{count} at the first start, telemetry now has {partitions}"
            yield Check("stored partitions", State.PROBLEM, found, mend)
    fingerprint = _text(redis.hget(keys.user_key, "fingerprint"))
    if fingerprint is None:
        yield Check("user key", State.OK, "none stored yet")
    elif (given := settings.user_key) is None:
        if redis.hexists(keys.user_key, "key"):  # made here; nobody else need see it
            yield Check("user key", State.OK, f"made by hatcast, fingerprint {fingerprint[:8]}")
        else:
            mend = "give it again: worker.user_key_file or HATCAST_USER_KEY"
            yield Check("user key", State.PROBLEM, "the first start had one of its own", mend)
    elif Pseudonyms(given).fingerprint == fingerprint:
        yield Check("user key", State.OK, f"fingerprint {fingerprint[:8]}")
    else:
        mend = "restore worker.user_key_file or HATCAST_USER_KEY, or start on an empty Redis under a new policy.name"
        yield Check("user key", State.PROBLEM, "another than at the first start", mend)


def _successor_check(stored: str | None) -> Iterator[Check]:
    if stored is not None:
        first, _, name = stored.partition(" ")
        yield Check("successor", State.OK, f"{name!r} from {first} on; then the workers of this policy end")


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
