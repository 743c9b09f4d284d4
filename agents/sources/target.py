"""Target of a feed: the telemetry topic, checked before the first record.

docs/specification/fold.md, Recordings
"""

from contextlib import closing
from dataclasses import dataclass

from confluent_kafka.admin import OffsetSpec
from redis.exceptions import RedisError

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import admin_client
from hatcast.agents.kafka.grants import Role, check_permissions
from hatcast.agents.kafka.topic_rules import TopicState
from hatcast.agents.kafka.topics import check_replay_target, ensure_telemetry, list_offsets
from hatcast.agents.redis.connection import connect_redis, redis_error
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.readings.formats import jsonl
from hatcast.stream.readings.vehicles import PARTITIONERS
from hatcast.stream.replay.heartbeats import Router


@dataclass(frozen=True, slots=True)
class FeedTarget:
    """State of the telemetry topic."""

    router: Router  # key and partition of each vehicle
    retention_ms: int | None  # None: unlimited
    newest_ms: int | None  # greatest arrival (ms UTC) in the topic, or folded by workers of the policy; None: no record


def open_target(settings: Settings, first_ms: int | None) -> FeedTarget:
    """Check, or create, the telemetry topic for records that arrived at `first_ms` (ms UTC; None: now) and later.

    Raises HatcastError: Kafka or Redis cannot be reached, the topic has another format, or its settings would delete
    the records or change their times.
    """
    _reject_other_formats(settings)
    check_permissions(settings, Role.FEED)
    state = ensure_telemetry(settings) if first_ms is None else check_replay_target(settings, first_ms)
    try:
        with closing(connect_redis(settings)) as redis:  # the policy's watermark of each partition that has one
            keys = [PartitionKeys(settings.policy.name, partition).state for partition in range(state.partitions)]
            clocks = [redis.hget(key, "clock") for key in keys]
    except (RedisError, OSError) as error:
        raise redis_error(settings, error) from None
    latest = [int(clock) for clock in clocks if isinstance(clock, bytes)]
    with admin_client(settings) as admin:  # the greatest timestamp of each partition with records, folded or not
        newest = list_offsets(admin, settings.topics.telemetry, state.partitions, OffsetSpec.max_timestamp())
    latest += [each.timestamp for each in newest if each.timestamp >= 0]
    return FeedTarget(_router(settings, state), state.retention_ms, max(latest, default=None))


def live_router(settings: Settings) -> Router:
    """Check, or create, the telemetry topic for readings that arrive now, and return its router. Does not use Redis.

    Raises HatcastError: Kafka cannot be reached, or the topic has another format.
    """
    _reject_other_formats(settings)
    check_permissions(settings, Role.FEED)
    return _router(settings, ensure_telemetry(settings))


def _reject_other_formats(settings: Settings) -> None:
    if settings.topics.telemetry_format != jsonl.NAME:
        raise SettingError(
            "topics.telemetry_format",
            f"is {settings.topics.telemetry_format!r}; feeds send canonical JSON, which workers could not decode then",
            f"set it to {jsonl.NAME!r}; --format names the format of the source",
        )


def _router(settings: Settings, state: TopicState) -> Router:
    return Router(state.partitions, PARTITIONERS[settings.topics.telemetry_partitioner])


def reject_if_late(settings: Settings, target: FeedTarget, calendar: Calendar, first_ms: int, advice: str) -> None:
    """Reject records that would all be late, because the slot of the first arrival (ms UTC) is final already.

    Raises HatcastError, whose text ends in `advice`.
    """
    newest = target.newest_ms
    if newest is not None and newest >= closes_at(calendar.slot_at(first_ms), settings.policy):
        first, last = (f"{calendar.local(instant):%Y-%m-%d %H:%M:%S}" for instant in (first_ms, newest))
        raise HatcastError(
            f"the first record arrived at {first}, but topic {settings.topics.telemetry} or policy"
            f" {settings.policy.name!r} is at {last} already, so the records would all be late; {advice}"
        )
