"""Durability check: a worker does not start on a Redis that may lose data, unless the operator accepts it.

Eviction deletes single keys and moves no offset back, so it is undetected: contributions would be missing from a mean,
or a release from the ledger, and its HAT would be drawn again. Redis without persistence loses everything at a
restart. hatcast detects that, and restores what the topics still have: the retained telemetry, and the releases.
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
from hatcast.agents.redis.connection import connect_redis, redis_error, redis_name
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

NO_EVICTION: Final = "noeviction"
ACCEPT_OPTION: Final = "--accept-volatile-state"


class Persistence(StrEnum):
    """Persistence of a Redis server."""

    APPEND_ONLY = "append-only file"
    SNAPSHOTS = "snapshots only"
    NONE = "none"
    UNKNOWN = "no append-only file, and CONFIG GET, which would show snapshots, is not allowed"


@dataclass(frozen=True, slots=True)
class Durability:
    """Durability settings of a Redis server."""

    persistence: Persistence
    eviction: str | None  # its maxmemory-policy; None if it does not report one

    @property
    def keeps_keys(self) -> bool:
        """Return False if it certainly deletes keys when its memory is full."""
        return self.eviction in (NO_EVICTION, None)  # nor volatile-*: it finds no key of hatcast to evict today

    def weaknesses(self) -> Iterator[str]:
        """Yield each setting for which a worker does not start, with its fix."""
        if self.persistence is Persistence.NONE:
            yield "it has no persistence: set `appendonly yes`"
        if not self.keeps_keys:
            yield f"its maxmemory-policy is {self.eviction}: set `maxmemory-policy {NO_EVICTION}`"

    def unknown(self) -> Iterator[str]:
        """Yield each setting that cannot be checked."""
        if self.persistence is Persistence.UNKNOWN:
            yield f"persistence: {self.persistence}"
        if self.eviction is None:
            yield "maxmemory-policy: not reported"


def read_durability(redis: Redis) -> Durability:
    """Read the durability settings from INFO, which the scripts need too, and from CONFIG GET only if necessary."""
    persistence = Persistence.APPEND_ONLY
    if info(redis, "persistence").get("aof_enabled") != 1:
        try:
            saves: Any = redis.config_get("save")
        except ResponseError:  # denied by an ACL, or the provider does not have the command
            persistence = Persistence.UNKNOWN
        else:
            persistence = Persistence.SNAPSHOTS if saves.get("save") else Persistence.NONE
    return Durability(persistence, info(redis, "memory").get("maxmemory_policy"))


def info(redis: Redis, section: str) -> dict[str, Any]:
    """Return a section of INFO."""
    answer: dict[str, Any] = redis.info(section)
    return answer


def ensure_durable(settings: Settings, *, accept_volatile_state: bool = False) -> None:
    """Raise HatcastError if Redis evicts keys or lacks persistence, unless accepted. Log settings it cannot check."""
    try:
        with closing(connect_redis(settings)) as redis:
            found = {name: read_durability(node) for name, node in primaries(redis).items()}
    except RedisError as error:
        raise redis_error(settings, error) from None
    for name, durability in found.items():
        for unknown in durability.unknown():
            log.warning("a Redis setting cannot be checked", setting=unknown, **({"node": name} if name else {}))
    # In a cluster mostly all nodes have a weakness or none: each is reported once.
    weaknesses = sorted({weakness for durability in found.values() for weakness in durability.weaknesses()})
    if weaknesses and accept_volatile_state:
        log.warning("Redis may lose state, as accepted", because=weaknesses)
    elif weaknesses:
        raise HatcastError(
            f"{redis_name(settings)} may lose state: {'; '.join(weaknesses)}; or start with {ACCEPT_OPTION} if it may"
            " be lost"
        )
