"""Does Redis keep what it is given? A worker that cannot rely on that does not start, unless told to.

An eviction takes keys one by one and moves no offset back, so nobody would notice: contributions would be missing from
a mean, or a release from the ledger, whose HAT would then be drawn again. Redis without a file loses all at a restart.
That is noticed, and made good as far as the topics reach: the telemetry that they still have, and the releases.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.clients import primaries
from hatcast.agents.redis.connection import connect_redis, redis_name, redis_refusal
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

KEEPS_ALL: Final = "noeviction"
ACCEPT: Final = "--accept-volatile-state"


class Persistence(StrEnum):
    """What a restart of Redis leaves."""

    APPEND_ONLY = "append-only file"
    SNAPSHOTS = "snapshots only"
    NONE = "none"
    UNKNOWN = "no append-only file, and CONFIG GET, which would tell of snapshots, is not allowed"


@dataclass(frozen=True, slots=True)
class Durability:
    """What a Redis says of itself.

    eviction   its maxmemory-policy; None where it does not say
    """

    persistence: Persistence
    eviction: str | None

    def weaknesses(self) -> Iterator[str]:
        """What it would lose state by, each with what to set."""
        if self.persistence is Persistence.NONE:
            yield "it has no persistence: set `appendonly yes`"
        if self.eviction not in (KEEPS_ALL, None):
            yield f"its maxmemory-policy is {self.eviction}: set `maxmemory-policy {KEEPS_ALL}`"

    def unknown(self) -> Iterator[str]:
        """What cannot be checked."""
        if self.persistence is Persistence.UNKNOWN:
            yield f"persistence: {self.persistence}"
        if self.eviction is None:
            yield "maxmemory-policy: not told"


def read_durability(redis: Redis) -> Durability:
    """By INFO, which the scripts of hatcast need as well, and by CONFIG GET only where INFO does not tell.

    Errors of redis-py pass through.
    """
    return Durability(_persistence(redis), info(redis, "memory").get("maxmemory_policy"))


def info(redis: Redis, section: str) -> dict[str, Any]:
    """A section of INFO."""
    answer: dict[str, Any] = redis.info(section)
    return answer


def _persistence(redis: Redis) -> Persistence:
    if info(redis, "persistence").get("aof_enabled") == 1:
        return Persistence.APPEND_ONLY
    try:
        answer: Any = redis.config_get("save")
    except ResponseError:  # by an ACL, or by a provider that has no such command
        return Persistence.UNKNOWN
    return Persistence.SNAPSHOTS if answer.get("save") else Persistence.NONE


def ensure_durable(settings: Settings, *, accept_volatile_state: bool = False) -> None:
    """Raises HatcastError where Redis evicts keys or has no persistence, unless that is accepted. Logs what is left open."""
    try:
        with closing(connect_redis(settings)) as redis:
            found = {name: read_durability(node) for name, node in primaries(redis).items()}
    except RedisError as error:
        raise redis_refusal(settings, error) from None
    for name, durability in found.items():
        for unknown in durability.unknown():
            log.warning("a setting of Redis cannot be checked", setting=unknown, **({"node": name} if name else {}))
    # Of a cluster, mostly all nodes or none: said once.
    weaknesses = sorted({weakness for durability in found.values() for weakness in durability.weaknesses()})
    if weaknesses and accept_volatile_state:
        log.warning("Redis may lose state, as accepted", because=weaknesses)
    elif weaknesses:
        raise HatcastError(
            f"{redis_name(settings)} may lose state: {'; '.join(weaknesses)}; or start with {ACCEPT} if it may be lost"
        )
