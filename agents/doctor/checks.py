"""Checks of `hatcast doctor`: results, and a comparison of the configuration with what Redis and the registry store."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topic_rules import TopicFinding
from hatcast.agents.kafka.topics import TopicReport, topic_range
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.hat_store import HatStore, OpenDates
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import beyond_end_error, deleted_error
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.worker.policy_transition import check_takeover
from hatcast.agents.worker.registration import Registration
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.time_zones import TIME_ZONE_DATA


class CheckState(StrEnum):
    """Result of a check. A problem keeps a worker from starting, or breaks a guarantee."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """One check and its result."""

    name: str
    state: CheckState
    found: str
    fix: str = msgspec.field(default="", name="mend")  # what to change; empty if nothing. In JSON it is named `mend`


def ok(name: str, found: str) -> Check:
    """Return a check that found no fault."""
    return Check(name, CheckState.OK, found)


def warning(name: str, found: str, fix: str = "") -> Check:
    """Return a check whose finding does not stop a worker."""
    return Check(name, CheckState.WARNING, found, fix)


def problem(name: str, found: str, fix: str) -> Check:
    """Return a check whose finding keeps a worker from starting, or breaks a guarantee."""
    return Check(name, CheckState.PROBLEM, found, fix)


def of_finding(finding: TopicFinding) -> Check:
    """Return a check of a topic that differs from its specification."""
    state = CheckState.PROBLEM if finding.fatal else CheckState.WARNING
    found, fix = f"{finding.setting} is {finding.found}", f"wanted is {finding.expected}: {finding.fix}"
    return Check(f"topic {finding.topic}", state, found, fix)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Losses that the operator accepts, as options of `hatcast worker`."""

    gap: bool = False  # telemetry that was deleted unread
    volatile_state: bool = False  # a Redis that evicts keys or does not persist


NOTHING_ACCEPTED: Final = Accepted()


_PATIENCE_S: Final = 5.0
_NO_START: Final = "workers do not start"


async def check_stored(settings: Settings, topics: TopicReport | None, accepted: Accepted) -> list[Check]:
    """Return the checks. `topics`: None if Kafka does not answer.

    Raises HatcastError and RedisError if Redis does not answer.
    """
    redis = await connect_redis_async(settings, _PATIENCE_S)
    try:
        found = [check async for check in _shown(settings, redis)]
        if topics is None or settings.topics.telemetry not in topics.partitions:
            return found
        problems = [check async for check in _problems(settings, redis, topics, accepted)]
        named = {check.name for check in problems}
        return [check for check in found if check.name not in named] + problems
    finally:
        await redis.aclose()


async def _shown(settings: Settings, redis: AnyRedis) -> AsyncIterator[Check]:
    """Yield the values that the first start stored."""
    keys, name = DomainKeys(settings.topics.telemetry), settings.policy.name
    policy_id, count = (_text(value) for value in await redis.hmget(keys.policy(name), ["policy_id", "partitions"]))
    yield ok("stored policy", policy_id or f"none yet under {name!r}")
    if count is not None:
        yield ok("stored partitions", count)
    fingerprint = _text(await redis.hget(keys.user_key, "fingerprint"))
    made = "made by hatcast, " if settings.user_key is None else ""
    yield ok("user key", "none stored yet" if fingerprint is None else f"{made}fingerprint {fingerprint[:8]}")
    next_policy = await PolicyTransitionStore(redis, settings.topics.telemetry).next_policy(name)
    if next_policy is not None:
        yield ok(
            "successor", f"{next_policy.name!r} from {next_policy.from_date} on; then the workers of this policy end"
        )


async def _problems(
    settings: Settings, redis: AnyRedis, topics: TopicReport, accepted: Accepted
) -> AsyncIterator[Check]:
    """Yield each check that a worker would fail, and those of time zone data and the registry."""
    telemetry, registry = settings.topics.telemetry, settings.topics.registry
    partitions = topics.partitions[telemetry]
    yield await _time_zone_check(settings, redis, partitions)
    try:
        ids = await TopicIds(settings).read([name for name in settings.sources if name in topics.partitions])
        registration = Registration(settings, redis, partitions, ids)
        errors = await registration.redis_errors()
        if registry in topics.partitions:
            if wrong := await registration.registry_errors():
                errors += wrong
            else:
                yield ok("registry", "agrees with the configuration")
                if settings.policy.replaces is not None:
                    yield await _takeover_check(settings, redis, settings.policy.replaces)
    except KafkaError as failed:
        yield problem("registry", f"not read ({type(failed).__name__})", "check that all brokers run")
        return
    seen: set[str] = set()  # Redis has a copy of the registry's record, so one change may be found twice
    for name, error in errors:
        if str(error) in seen:
            continue
        seen.add(str(error))
        found = f"telemetry has {partitions} partitions now" if name == "stored partitions" else _NO_START
        yield problem(name, found, str(error))
    if not errors:
        for name, error in await _offset_errors(settings, redis, topics, accepted):
            yield problem(f"stored offsets of {name}", _NO_START, str(error))


async def _time_zone_check(settings: Settings, redis: AnyRedis, partitions: int) -> Check:
    """Compare the time zone data of this machine with the rules of the policy's open dates."""
    policy = settings.policy
    ledger = LedgerStore(redis, settings.topics.telemetry, policy)
    try:
        await OpenDates(HatStore.of(redis, policy, partitions), ledger, Calendar(policy)).check()
    except HatcastError as error:
        return problem("time zone data", f"{TIME_ZONE_DATA}: {_NO_START}", str(error))
    return ok("time zone data", f"{TIME_ZONE_DATA}, agrees with all open dates")


async def _takeover_check(settings: Settings, redis: AnyRedis, old: str) -> Check:
    """Check the transition from the policy that ours replaces."""
    name, facts = "replaced policy", await Registry(settings).read()
    if old in facts.policies and await PolicyTransitionStore(redis, settings.topics.telemetry).known(old) is None:
        return warning(name, f"Redis has lost {old!r}", "the first worker recovers it, and checks then")
    try:
        await check_takeover(settings, redis)
    except HatcastError as error:
        return problem(name, _NO_START, str(error))
    return ok(name, f"{old!r} until {settings.policy.from_date}")


async def _offset_errors(
    settings: Settings, redis: AnyRedis, topics: TopicReport, accepted: Accepted
) -> list[tuple[str, HatcastError]]:
    """Return, for each source topic, the error with which a worker would end when it loads a partition."""
    store = HatStore.of(redis, settings.policy, topics.partitions[settings.topics.telemetry])
    found = []
    for name, state in zip(settings.sources, (store.telemetry, store.reports), strict=False):
        if state is None or name not in topics.partitions:
            continue
        rows = zip(await state.offsets(), topic_range(settings, name), strict=False)
        for partition, (offset, (first, end)) in enumerate(rows):
            if offset is not None and offset < first and not accepted.gap:
                found.append((name, deleted_error(state.topic, partition, offset, first)))
            elif offset is not None and offset > end:
                found.append((name, beyond_end_error(state.topic, partition, offset, end)))
    return found


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
