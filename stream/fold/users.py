"""Users of a fold: their pseudonyms, and the HATs that earlier runs entered for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hatcast.stream.readings.pseudonyms import Pseudonyms


class EarlierRuns(Protocol):
    """HATs that earlier runs entered and released. They count against a user's limit, once."""

    def entered(self, date: str) -> Mapping[bytes, int]:
        """Return the number of HATs that each user (pseudonym) has entered on a local date."""
        ...

    def members(self, dates: Sequence[str]) -> Mapping[tuple[str, int], frozenset[bytes]]:
        """Return the users of each released HAT of these local dates, by `date/slot` and H3 cell."""
        ...

    def released(self, slot: str) -> Mapping[int, frozenset[bytes]]:
        """Return the users of each released HAT of a slot (`date/slot`), by H3 cell."""
        ...


@dataclass(frozen=True, slots=True)
class FoldUsers:
    """Users of a fold, the same for all partitions.

    earlier   HATs of earlier runs; None: none
    """

    pseudonyms: Pseudonyms
    earlier: EarlierRuns | None = None
