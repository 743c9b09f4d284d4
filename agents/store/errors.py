"""What a store refuses."""

from collections.abc import Mapping
from typing import Final


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


# What commit.lua answers where it has written nothing.
REFUSED: Final[Mapping[bytes, type[Exception]]] = {
    b"unrecovered": Unrecovered,
    b"behind": Behind,
    b"sealed": DaySealed,
    b"replaced": Replaced,
    b"unclaimed": Unclaimed,
}
