"""Where a viewer stands: the id of a server-sent event.

`1f0c3a52-12.40.7.9-3`: which log, the offsets of `hats.means` that come next, and those of `hats.budget`. Offsets are
the topic's own, so an id holds at any server of the same topics, and at this one after it was restarted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

_FORM: Final = re.compile(r"([0-9a-f]{8})-(\d{1,18}(?:\.\d{1,18}){0,9999})-(\d{1,18}(?:\.\d{1,18}){0,9999})")
MOST_CHARACTERS: Final = 8_000  # what fits into a header


def log_name(*parts: str) -> str:
    """Eight letters for a log: of its cluster and its topics, so that an id of another one is not mistaken for ours."""
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class Position:
    """The next offset of each partition, of the topic of means and of that of budgets."""

    log: str
    means: list[int] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.log}-{_text(self.means)}-{_text(self.budget)}"

    def reaches(self, other: "Position") -> bool:
        """Whether `other` is of the same log and no further on than this."""
        return (
            self.log == other.log
            and len(self.means) == len(other.means)
            and len(self.budget) == len(other.budget)
            and all(mine >= its for mine, its in zip(self.means, other.means, strict=True))
            and all(mine >= its for mine, its in zip(self.budget, other.budget, strict=True))
        )


def read_position(text: str) -> Position | None:
    """A position; None where the text is none: then the viewer starts anew."""
    found = _FORM.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
    if found is None:
        return None
    log, means, budget = found.groups()
    return Position(log, _numbers(means), _numbers(budget))


def _text(offsets: Sequence[int]) -> str:
    return ".".join(map(str, offsets))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]
