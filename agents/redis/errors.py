"""What a store refuses."""

from collections.abc import Mapping
from typing import Final

from redis.exceptions import ResponseError

from hatcast.agents.errors.causes import ClearError


class Unrecovered(Exception):
    """This Redis may have lost releases: nothing is committed before the ledger is recovered."""


class Behind(Unrecovered):
    """A commit sequence is not what its owner wrote last: Redis went back in time, or somebody else owns it."""


class DaySealed(Exception):
    """The day is over for good: its records are a summary, and nothing of it is committed any more."""


class Replaced(Exception):
    """The day belongs to the policy that follows ours."""


class Unclaimed(Exception):
    """Our policy follows another, and Redis does not know it: claim it again, if that is still possible."""


class Damaged(ClearError, ResponseError):
    """A key in Redis holds something that hatcast did not write there: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Redis key {key!r} holds something that hatcast did not write there, so nothing was written: restore all"
            " of Redis from a copy, or empty it; what is missing then is read again from Kafka"
        )


class Overflow(ClearError, ResponseError):
    """A sum in Redis would be more than the scripts count exactly: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a number in the Redis key {key!r} would be larger than is counted exactly, so nothing was written: start"
            " under a new policy.name with a lower epsilon"
        )


# What commit.lua answers where it has written nothing.
REFUSED: Final[Mapping[bytes, type[Exception]]] = {
    b"unrecovered": Unrecovered,
    b"behind": Behind,
    b"sealed": DaySealed,
    b"replaced": Replaced,
    b"unclaimed": Unclaimed,
}

NOT_WRITTEN: Final[Mapping[bytes, type[Damaged | Overflow]]] = {b"damaged": Damaged, b"overflow": Overflow}
"""What any script answers, with a key, if it has written nothing because of what it found: staging.lua."""
