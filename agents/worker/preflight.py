"""Checks of configuration, Kafka and Redis for `hatcast doctor`. Nothing is changed or created."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.registry import PolicyRecord, Registry
from hatcast.agents.kafka.registry.checks import check_facts, check_policy_name, policies_beside_a_tracker
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
_END_THE_OTHERS: Final = (
    "a tracker books a whole day, so whichever policy of this telemetry is first on a day leaves the others nothing:"
    " stop all but one, or let one replace the other"
)


class State(StrEnum):
    """Result of a check. A problem keeps a worker from starting, or breaks a guarantee."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """One check and its result.

    fix   what to change; empty if nothing. In JSON it is named `mend`
    """

    name: str
    state: State
    found: str
    fix: str = msgspec.field(default="", name="mend")


def examine(config: Path) -> Iterator[Check]:
    """Run all checks in order. Checks that depend on a failed one are omitted."""
    try:
        settings = load_settings(config)
    except HatcastError as error:
        yield Check("configuration", State.PROBLEM, "not usable", str(error))
        return
    policy = settings.policy
    costs = f"epsilon {policy.epsilon:g}" if policy.tracker is None else f"epsilon {policy.daily_limit:g} a day"
    yield Check("configuration", State.OK, f"policy {policy.name}: {policy.estimator}, {costs}")
    try:
        topics = check_topics(settings, PATIENCE_SECONDS)
    except HatcastError as error:
        partitions = None
        yield Check("kafka", State.PROBLEM, "not usable", str(error))
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
    except HatcastError as error:
        yield Check("redis", State.PROBLEM, "not usable", str(error))
    except RedisError as error:
        yield Check("redis", State.PROBLEM, "failed", str(redis_error(settings, error)))


def _topic_checks(topics: TopicReport) -> Iterator[Check]:
    wrong = {finding.topic for finding in topics.findings}
    for name, count in topics.partitions.items():
        if name not in wrong:
            yield Check(f"topic {name}", State.OK, f"{count} partition{'s' if count > 1 else ''}")
    for finding in topics.findings:
        state = State.PROBLEM if finding.fatal else State.WARNING
        fix = f"wanted is {finding.expected}: {finding.fix}"
        yield Check(f"topic {finding.topic}", state, f"{finding.setting} is {finding.found}", fix)
    for name in topics.missing:
        yield Check(f"topic {name}", State.WARNING, "missing: the first worker makes it")


def _registry_checks(settings: Settings, topics: TopicReport) -> Iterator[Check]:
    """Show the registered policies of this telemetry, and compare the settings with them."""
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
        own = own_record(settings, partitions, ids, configured_key(settings))
        check_facts(facts, own)
        if beside := policies_beside_a_tracker(facts, own):
            yield Check("shared days", State.WARNING, f"with {', '.join(beside)}, beside a tracker", _END_THE_OTHERS)
        if settings.policy.name not in facts.policies:
            check_policy_name(settings.policy.name, settings.topics.telemetry, asyncio.run(registry.read_others()))
    except HatcastError as error:
        yield Check("registry", State.PROBLEM, "workers do not start", str(error))
    except KafkaError as error:
        yield Check("registry", State.PROBLEM, f"not read ({type(error).__name__})", "check that all brokers run")
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
    """Check what could make Redis lose data, by INFO if CONFIG is not allowed. `node`: of a cluster."""
    memory, kept = info(redis, "memory"), info(redis, "persistence")
    durability = read_durability(redis)
    last_write = str(kept.get("aof_last_write_status", "ok"))
    yield _persistence_check(f"redis persistence{node}", durability.persistence, last_write)
    limit = int(memory.get("maxmemory", 0))
    if durability.eviction == NO_EVICTION:
        yield Check(f"redis eviction{node}", State.OK, durability.eviction)
    elif durability.eviction is None:
        yield Check(f"redis eviction{node}", State.WARNING, "unknown", f"make sure of `maxmemory-policy {NO_EVICTION}`")
    else:
        fix = f"set `maxmemory-policy {NO_EVICTION}`: it may delete contributions and the ledger; workers do not start"
        yield Check(f"redis eviction{node}", State.WARNING, durability.eviction, fix)
    if limit:
        used = int(memory.get("used_memory", 0)) / limit
        full = used > FULL_SHARE
        fix = "raise `maxmemory`: when it is full, workers stop" if full else ""
        yield Check(f"redis memory{node}", State.WARNING if full else State.OK, f"{used:.0%} of {limit >> 20} MiB", fix)
    if info(redis, "replication").get("role") != "master":
        yield Check(
            f"redis role{node}", State.PROBLEM, "a replica", "set redis.url to the master: a replica rejects writes"
        )


def _persistence_check(name: str, found: Persistence, last_write: str) -> Check:
    match found:
        case Persistence.APPEND_ONLY if last_write != "ok":
            fix = "free space on its disk: until then it rejects writes"
            return Check(name, State.PROBLEM, "the last write to the append-only file failed", fix)
        case Persistence.APPEND_ONLY:
            return Check(name, State.OK, found)
        case Persistence.SNAPSHOTS:
            fix = "set `appendonly yes`: after a restart, what came after the last snapshot is folded again"
        case Persistence.NONE:
            fix = "set `appendonly yes`: a restart loses Redis' copy of the ledger and all state; workers do not start"
        case _:
            fix = "set `appendonly yes`, or allow `CONFIG GET`"
    return Check(name, State.WARNING, found, fix)


def _clock_check(redis: "Redis", settings: Settings) -> Check:
    """Compare this machine's clock with that of Redis: records ahead of a worker's clock delay their partitions."""
    before = now_ms()
    seconds, microseconds = redis.time()
    after = now_ms()
    redis_ms = seconds * 1000 + microseconds // 1000
    difference = max(redis_ms - after, before - redis_ms, 0)  # beyond the round trip
    limit = settings.policy.max_ahead_ms
    found = f"{difference / 1000:g} s from Redis' clock"
    if difference > limit:
        fix = f"set both by NTP: they may differ by policy.max_ahead, {limit / 1000:g} s"
        return Check("clock", State.PROBLEM, found, fix)
    if difference > limit / 2:
        return Check("clock", State.WARNING, found, f"set both by NTP: above {limit / 1000:g} s workers wait")
    return Check("clock", State.OK, found)


def _stored_checks(redis: SyncRedis, settings: Settings, partitions: int | None) -> Iterator[Check]:
    """Compare with the policy, the partition count and the user key that the first start stored."""
    keys = DomainKeys(settings.topics.telemetry)
    name = settings.policy.name
    policy_id, count = (_text(value) for value in redis.hmget(keys.policy(name), "policy_id", "partitions"))
    if policy_id is None or count is None:
        yield Check("stored policy", State.OK, f"none yet under {name!r}")
    elif policy_id != settings.policy.policy_id:
        fix = "restore [policy] as it was, or start the new one under a new policy.name"
        yield Check("stored policy", State.PROBLEM, f"{name!r} was started as another policy", fix)
    else:
        yield Check("stored policy", State.OK, policy_id)
    yield from _next_policy_check(_text(redis.hget(keys.next_policies, name)))
    if count is not None and partitions is not None:
        if int(count) == partitions:
            yield Check("stored partitions", State.OK, count)
        else:
            fix = "stop the feeds, let all slots close, then start under a new policy.name"
            found = f"{count} at the first start, telemetry now has {partitions}"
            yield Check("stored partitions", State.PROBLEM, found, fix)
    fingerprint = _text(redis.hget(keys.user_key, "fingerprint"))
    if fingerprint is None:
        yield Check("user key", State.OK, "none stored yet")
    elif (given := settings.user_key) is None:
        if redis.hexists(keys.user_key, "key"):  # made by hatcast, and stored
            yield Check("user key", State.OK, f"made by hatcast, fingerprint {fingerprint[:8]}")
        else:
            fix = "set it again: worker.user_key_file or HATCAST_USER_KEY"
            yield Check("user key", State.PROBLEM, "the first start was given one", fix)
    elif Pseudonyms(given).fingerprint == fingerprint:
        yield Check("user key", State.OK, f"fingerprint {fingerprint[:8]}")
    else:
        fix = "restore worker.user_key_file or HATCAST_USER_KEY, or start on an empty Redis under a new policy.name"
        yield Check("user key", State.PROBLEM, "not the one of the first start", fix)


def _next_policy_check(stored: str | None) -> Iterator[Check]:
    if stored is not None:
        first, _, name = stored.partition(" ")
        yield Check("successor", State.OK, f"{name!r} from {first} on; then the workers of this policy end")


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
