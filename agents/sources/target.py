"""Where a feed sends to, and what it refuses before its first record.    [fold.md, Recordings]"""

from contextlib import closing
from dataclasses import dataclass

from redis.exceptions import RedisError

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import admin_client
from hatcast.agents.kafka.topic_rules import TopicState
from hatcast.agents.kafka.topics import check_replay_target, ensure_telemetry
from hatcast.agents.redis.connection import connect_redis, redis_refusal
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.readings.formats import jsonl
from hatcast.stream.readings.partitioner import PARTITIONERS
from hatcast.stream.replay.heartbeats import Addresses


@dataclass(frozen=True, slots=True)
class Target:
    """The telemetry topic as it is.

    addresses     key and partition of a vehicle there
    retention_ms  None: records are kept for ever
    newest_ms     the greatest arrival (ms UTC) that it holds, or that workers of the policy have folded; None: none
    """

    addresses: Addresses
    retention_ms: int | None
    newest_ms: int | None


def open_target(settings: Settings, first_ms: int | None) -> Target:
    """The telemetry topic for records that arrived at `first_ms` (ms UTC) and later, None: now; made if it is missing.

    Raises HatcastError: Kafka or Redis cannot be reached, the topic is of another format, or would delete the records or
    change their times.
    """
    _refuse_other_formats(settings)
    state = ensure_telemetry(settings) if first_ms is None else check_replay_target(settings, first_ms)
    addresses = _addresses(settings, state)
    found = _stored_clocks(settings, state.partitions) + _newest_arrivals(settings, state.partitions)
    return Target(addresses, state.retention_ms, max(found, default=None))


def live_addresses(settings: Settings) -> Addresses:
    """Keys and partitions for readings that arrive now; the topic is made if it is missing. Redis is not asked.

    Raises HatcastError: Kafka cannot be reached, or the topic is of another format.
    """
    _refuse_other_formats(settings)
    return _addresses(settings, ensure_telemetry(settings))


def _refuse_other_formats(settings: Settings) -> None:
    if settings.topics.telemetry_format != jsonl.NAME:
        raise SettingError(
            "topics.telemetry_format",
            f"is {settings.topics.telemetry_format!r}; feeds send canonical JSON, which workers would not read then",
            f"set it to {jsonl.NAME!r}; what a source sends is named by --format",
        )


def _addresses(settings: Settings, state: TopicState) -> Addresses:
    return Addresses(state.partitions, PARTITIONERS[settings.topics.telemetry_partitioner])


def refuse_if_late(settings: Settings, target: Target, calendar: Calendar, first_ms: int, mend: str) -> None:
    """Refuse records that would only be late: the slot of the first arrival (ms UTC) is closed already.

    Raises HatcastError, which ends in `mend`.
    """
    newest = target.newest_ms
    if newest is not None and newest >= closes_at(calendar.slot_at(first_ms), settings.policy):
        first, last = (f"{calendar.local(instant):%Y-%m-%d %H:%M:%S}" for instant in (first_ms, newest))
        raise HatcastError(
            f"this begins at {first}, but topic {settings.topics.telemetry} or policy {settings.policy.name!r} is at"
            f" {last} already, so its records would only be late; {mend}"
        )


def _stored_clocks(settings: Settings, partitions: int) -> list[int]:
    """How far the policy's workers have folded each partition that has a clock."""
    try:
        with closing(connect_redis(settings)) as redis:
            keys = [PartitionKeys(settings.policy.name, partition).state for partition in range(partitions)]
            clocks = [redis.hget(key, "clock") for key in keys]
    except (RedisError, OSError) as error:
        raise redis_refusal(settings, error) from None
    return [int(clock) for clock in clocks if isinstance(clock, bytes)]


def _newest_arrivals(settings: Settings, partitions: int) -> list[int]:
    """The greatest timestamp in each partition that holds records: no worker may have folded them yet."""
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    each = [TopicPartition(settings.topics.telemetry, partition) for partition in range(partitions)]
    with admin_client(settings) as admin:
        newest = admin.list_partition_offsets(dict.fromkeys(each, OffsetSpec.MAX_TIMESTAMP))
    return [found.timestamp for found in newest.values() if found.timestamp >= 0]
