"""Checks of configuration, Kafka and Redis for `hatcast doctor`. Nothing is changed or created."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError, ResponseError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.doctor.checks import (
    NOTHING_ACCEPTED,
    Accepted,
    Check,
    CheckState,
    check_stored,
    of_finding,
    ok,
    problem,
    warning,
)
from hatcast.agents.kafka import registry_checks
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.registry import PolicyRecord, Registry
from hatcast.agents.kafka.topics import TopicReport, check_topics
from hatcast.agents.redis.clients import primaries
from hatcast.agents.redis.connection import connect_redis, redis_error, redis_name
from hatcast.agents.redis.durability import ACCEPT_OPTION, NO_EVICTION, Durability, Persistence, info, read_durability
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.agents.worker.folds import report_check
from hatcast.agents.worker.registration import configured_key, own_record
from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid.reports import ReportKeys
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, MeansKeys, Policy, TrackerKeys
from hatcast.stream.units import NANO

if TYPE_CHECKING:
    from redis import Redis

PATIENCE_SECONDS: Final = 5.0
FULL_SHARE: Final = 0.9  # of Redis' memory limit
_LAST_WRITES: Final = {  # field of INFO with the state of its last write to disk, and what to say if that failed
    Persistence.APPEND_ONLY: ("aof_last_write_status", "the last write to the append-only file failed"),
    Persistence.SNAPSHOTS: ("rdb_last_bgsave_status", "the last snapshot failed"),
}
_DROP_NO_ZEROS: Final = (
    "which readings of this telemetry were exactly 0 is public by that policy, for this one too: set drop_zero = false"
    " in all policies of the telemetry to hide it"
)


def _summary(policy: Policy) -> str:
    match policy.method:
        case ContinualKeys() as keys:
            cost = keys.horizon_cost(policy.epsilon).amount / NANO
            return f"running sums by {keys.kind.value}, epsilon {cost:g} per {keys.horizon_days} days"
        case TrackerKeys():
            return f"{policy.estimator}, epsilon {policy.daily_limit:g} a day"
        case MeansKeys() | HybridKeys():
            return f"{policy.estimator}, epsilon {policy.epsilon:g}"


def examine(config: Path, accepted: Accepted = NOTHING_ACCEPTED) -> Iterator[Check]:
    """Run all checks in order. Checks that depend on a failed one are omitted.

    A worker that is started with the same options does not start if there is a problem: it runs the same code, or
    compares the same settings.
    """
    try:
        settings = load_settings(config)
    except HatcastError as error:
        yield problem("configuration", "not usable", str(error))
        return
    policy = settings.policy
    yield ok("configuration", f"policy {policy.name}: {policy.quantity}, {_summary(policy)}")
    if settings.report_keys is not None:
        yield _report_keys_check(settings, settings.report_keys)
    yield from _timetable_checks(policy)
    topics: TopicReport | None
    try:
        topics = check_topics(settings, PATIENCE_SECONDS)
    except HatcastError as error:
        topics = None
        yield problem("kafka", "not usable", str(error))
    else:
        yield ok("kafka", broker_name(settings).removeprefix("Kafka at "))
        yield from _topic_checks(topics)
        yield from _registry_checks(settings, topics)
    try:
        with closing(connect_redis(settings, PATIENCE_SECONDS)) as redis:
            nodes = primaries(redis)
            version = _version(next(iter(nodes.values())))
            yield ok("redis", f"{redis_name(settings).removeprefix('Redis at ')}, {version}")
            for name, node in nodes.items():
                yield from _redis_checks(node, f" {name}" if name else "", accepted)
            yield _clock_check(next(iter(nodes.values())), settings)
        yield from asyncio.run(check_stored(settings, topics, accepted))
    except HatcastError as error:
        yield problem("redis", "not usable", str(error))
    except RedisError as error:
        yield problem("redis", "failed", str(redis_error(settings, error)))


def _timetable_checks(policy: Policy) -> Iterator[Check]:
    try:
        timetable = timetable_of(policy)
    except HatcastError as error:
        yield problem("timetable", "not usable", str(error))
    else:
        if timetable is not None:
            yield ok("timetable", f"hexagons with a scheduled speed {len(timetable.speeds):,}")


def _report_keys_check(settings: Settings, keys: ReportKeys) -> Check:
    try:
        report_check(settings)
    except HatcastError as error:
        return problem("report keys", "not usable", str(error))
    return ok("report keys", f"authorities {len(keys.authorities)}, revoked {len(keys.revoked)}")


def _topic_checks(topics: TopicReport) -> Iterator[Check]:
    wrong = {finding.topic for finding in topics.findings}
    for name, count in topics.partitions.items():
        if name not in wrong:
            yield ok(f"topic {name}", f"{count} partition{'s' if count > 1 else ''}")
    yield from map(of_finding, topics.findings)
    for name in topics.missing:
        if (error := topics.denied.get(name)) is not None:
            yield problem(f"topic {name}", "missing", str(error))
        else:
            yield warning(f"topic {name}", "missing: the first worker makes it")


def _registry_checks(settings: Settings, topics: TopicReport) -> Iterator[Check]:
    """Show the registered policies of this telemetry, and warn of those that share a tracker's days."""
    if settings.topics.registry in topics.missing:
        return
    registry = Registry(settings)
    try:
        facts = asyncio.run(registry.read())
        for name, record in facts.policies.items():
            yield ok(f"registered policy {name}", _registered(record))
        partitions = topics.partitions.get(settings.topics.telemetry)
        if partitions is None:
            return
        own = own_record(settings, partitions, {}, configured_key(settings))
        if beside := registry_checks.policies_beside_a_tracker(facts, own):
            yield warning("shared days", f"with {', '.join(beside)}, beside a tracker", registry_checks.END_THE_OTHERS)
        if beside := registry_checks.policies_without_room(facts, own):
            yield warning(
                "shared days", f"with {', '.join(beside)}, beside running sums", registry_checks.RAISE_THE_LIMIT
            )
        if showing := registry_checks.policies_that_show_zeros(facts, own):
            yield warning("standing buses", f"{', '.join(showing)} has drop_zero = true", _DROP_NO_ZEROS)
    except (HatcastError, KafkaError):
        return  # `check_stored` reads it too, and reports the error


def _registered(record: PolicyRecord) -> str:
    whose = "made by hatcast" if record.user_key.made else "given"
    return (
        f"{record.policy_id}, {record.partitions} partitions by {record.partitioner},"
        f" {record.telemetry_format} by rules {record.reading_rules}, {record.timezone}, topic id"
        f" {record.telemetry_id or 'unknown'}, user key {record.user_key.fingerprint[:8]} {whose}"
    )


def _version(redis: "Redis") -> str:
    """Return the name and version of a Redis server, or of a Valkey."""
    server = info(redis, "server")
    if (valkey := server.get("valkey_version")) is not None:
        return f"Valkey {valkey}"
    return f"version {server.get('redis_version', 'unknown')}"


def _redis_checks(redis: "Redis", node: str, accepted: Accepted) -> Iterator[Check]:
    """Check what could make Redis lose data, by INFO if CONFIG is not allowed. `node`: of a cluster."""
    memory, kept = info(redis, "memory"), info(redis, "persistence")
    durability = read_durability(redis)
    state, unless = CheckState.PROBLEM, f"; workers do not start without {ACCEPT_OPTION}"
    if accepted.volatile_state:
        state, unless = CheckState.WARNING, ""
    yield _persistence_check(f"redis persistence{node}", durability, kept, state, unless)
    yield _eviction_check(f"redis eviction{node}", durability, state, unless)
    if limit := int(memory.get("maxmemory", 0)):
        used = int(memory.get("used_memory", 0)) / limit
        level = CheckState.OK if used <= FULL_SHARE else CheckState.WARNING if used < 1 else CheckState.PROBLEM
        fix = "" if level is CheckState.OK else "raise `maxmemory`: when it is full, workers stop, and none starts"
        yield Check(f"redis memory{node}", level, f"{used:.0%} of {limit >> 20} MiB", fix)
    if info(redis, "replication").get("role") != "master":
        yield problem(f"redis role{node}", "a replica", "set redis.url to the master: a replica rejects writes")


def _eviction_check(name: str, durability: Durability, state: CheckState, unless: str) -> Check:
    if durability.eviction is None:
        return warning(name, "unknown", f"make sure of `maxmemory-policy {NO_EVICTION}`")
    if durability.keeps_keys:
        return ok(name, durability.eviction)
    fix = f"set `maxmemory-policy {NO_EVICTION}`: it may delete contributions and the ledger{unless}"
    return Check(name, state, durability.eviction, fix)


def _persistence_check(
    name: str, durability: Durability, kept: dict[str, Any], state: CheckState, unless: str
) -> Check:
    found = durability.persistence
    field, failed = _LAST_WRITES.get(found, ("", ""))
    if kept.get(field, "ok") != "ok":
        return problem(name, failed, "free space on its disk: until then it rejects writes")
    match found:
        case Persistence.APPEND_ONLY:
            return ok(name, found)
        case Persistence.SNAPSHOTS:
            fix = "set `appendonly yes`: after a restart, what came after the last snapshot is folded again"
        case Persistence.NONE:
            fix = "set `appendonly yes`: a restart loses Redis' copy of the ledger and all state"
            return Check(name, state, found, fix + unless)
        case _:
            fix = "set `appendonly yes`, or allow `CONFIG GET`"
    return warning(name, found, fix)


def _clock_check(redis: "Redis", settings: Settings) -> Check:
    """Compare this machine's clock with that of Redis: records ahead of a worker's clock delay their partitions."""
    before = now_ms()
    try:
        seconds, microseconds = redis.time()
    except ResponseError:  # denied by an ACL: only an operator's user has it
        return warning("clock", "not compared with Redis' clock", "allow `TIME` to this user")
    after = now_ms()
    redis_ms = seconds * 1000 + microseconds // 1000
    difference = max(redis_ms - after, before - redis_ms, 0)  # beyond the round trip
    limit = settings.policy.max_ahead_ms
    found = f"{difference / 1000:g} s from Redis' clock"
    if difference > limit:
        fix = f"set both by NTP: they may differ by policy.max_ahead, {limit / 1000:g} s"
        return problem("clock", found, fix)
    if difference > limit / 2:
        return warning("clock", found, f"set both by NTP: above {limit / 1000:g} s workers wait")
    return ok("clock", found)
