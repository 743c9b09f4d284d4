"""What a partition remembers while its slots are open: contributions by HAT, and users by day.

Users are kept in order of entering and stored in chunks of `CHUNK_USERS`, so that a change of one user rewrites a
few hundred bytes, and a HAT of a million users is read in thousands of steps, not in millions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hatcast.stream.fold.hats import Slot

CHUNK_USERS: Final = 64


class Contribution(msgspec.Struct, gc=False):
    """What a HAT knows of one user. Kept from the garbage collector: there are millions, and numbers form no cycle.

    count     readings
    total     milli-units: the sum of their values, each cut to [0, U]
    maximum   milli-units
    seen      bit i: a reading of step i of `min_interval` was counted
    ordinal   the user's place in the HAT, in order of entering: its chunk is ordinal // CHUNK_USERS
    """

    count: int
    total: int
    maximum: int
    seen: int
    ordinal: int


@dataclass(slots=True)
class OpenHat:
    """The contributions of one HAT from one partition, and which chunks of them changed."""

    users: dict[bytes, Contribution] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class UserOfDay:
    """How many HATs a user entered on a local day. Kept after these HATs are released: K binds the whole day."""

    pseudonym: bytes
    entered: int
    ordinal: int
    day: "Day" = field(repr=False)


@dataclass(slots=True)
class Day:
    """The users of a local date, and which chunks of them changed.

    over    the store was told to delete it: no record can count on it any more
    """

    date: str
    users: dict[bytes, UserOfDay] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    over: bool = False


@dataclass(slots=True)
class OpenSlot:
    """A slot and its HATs by H3 cell.

    closes_ms   the clock from which a reading is late
    released    the users of each HAT that had its record before this fold began, by H3 cell: nobody else enters it
    """

    slot: Slot
    closes_ms: int
    day: Day
    hats: dict[int, OpenHat] = field(default_factory=dict)
    released: Mapping[int, frozenset[bytes]] = field(default_factory=dict)
