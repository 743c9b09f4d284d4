"""What a store refuses."""

from collections.abc import Mapping
from typing import Final


class Unproven(Exception):
    """This Redis may have lost releases: nothing is committed before it is proven."""


class Replaced(Exception):
    """The day belongs to the policy that follows ours."""


class Unclaimed(Exception):
    """Our policy follows another, and Redis does not know it: claim it again, if that is still possible."""


# What commit.lua answers where it has written nothing.
REFUSED: Final[Mapping[bytes, type[Exception]]] = {
    b"unproven": Unproven,
    b"replaced": Replaced,
    b"unclaimed": Unclaimed,
}
