"""Id of a server-sent event: a viewer's position in the topics.

`1f0c3a52-12.40.7.9-3`: the log id, the next offset of each partition of `hats.means`, and the same for `hats.budget`.
The offsets are Kafka's, so an id is valid at every server that reads the same topics, also after a restart.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

_FORM: Final = re.compile(r"([0-9a-f]{8})-(\d{1,18}(?:\.\d{1,18}){0,9999})-(\d{1,18}(?:\.\d{1,18}){0,9999})")
MAX_CHARACTERS: Final = 8_000  # fits into an HTTP header


def log_id(*parts: str) -> str:
    """Return eight hexadecimal digits for a cluster and its topics: an event id of another cluster is recognised."""
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class Position:
    """Next offset of each partition, for `hats.means` and `hats.budget`."""

    log: str
    means: list[int] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.log}-{_text(self.means)}-{_text(self.budget)}"

    def reaches(self, other: "Position") -> bool:
        """Return whether `other` is a position in the same log and not ahead of this one."""
        return (
            self.log == other.log
            and len(self.means) == len(other.means)
            and len(self.budget) == len(other.budget)
            and all(mine >= its for mine, its in zip(self.means, other.means, strict=True))
            and all(mine >= its for mine, its in zip(self.budget, other.budget, strict=True))
        )


def parse_position(text: str) -> Position | None:
    """Return the position that an event id stands for, or None if it is malformed: the viewer then gets a snapshot."""
    match = _FORM.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        return None
    log, means, budget = match.groups()
    return Position(log, _numbers(means), _numbers(budget))


def _text(offsets: Sequence[int]) -> str:
    return ".".join(map(str, offsets))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]
