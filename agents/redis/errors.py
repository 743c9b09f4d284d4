"""Errors that the Redis scripts return."""

from collections.abc import Mapping
from typing import Final

from redis.exceptions import ClusterError, RedisError, ResponseError

from hatcast.agents.errors.causes import ClearError


class Damaged(ClearError, ResponseError):
    """A Redis key holds a value that hatcast did not write: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Redis key {key!r} holds a value that hatcast did not write, so nothing was written: restore all of Redis"
            " from a copy, or empty it; what is missing then is read again from Kafka"
        )


class Overflow(ClearError, ResponseError):
    """A sum in Redis would exceed the largest exact number of the scripts: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a number in the Redis key {key!r} would exceed what can be counted exactly, so nothing was written: start"
            " under a new policy.name with a lower epsilon"
        )


class Reopened(ClearError, RedisError):
    """A partition's state is not the one that this worker opened: another worker has opened it, or Redis went back."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} changed hands, or went back in time, while it was loaded: it is opened again")


class SlotMoving(ClearError, ClusterError):
    """A Redis Cluster moves a slot, and each of two nodes has some of a command's keys: it did not run the command."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.slot = slot

    def __str__(self) -> str:  # not from `args`: redis-py writes a pipeline's command there
        return (
            f"the Redis Cluster moves slot {self.slot} between nodes (TRYAGAIN): nothing is lost, and all is retried"
            " until the move ends; `redis-cli --cluster fix` ends one that was left half done"
        )


SCRIPT_ERRORS: Final[Mapping[bytes, type[Damaged | Overflow]]] = {b"damaged": Damaged, b"overflow": Overflow}
"""Replies of any script, with a key, that wrote nothing because of a stored value: see staging.lua."""
