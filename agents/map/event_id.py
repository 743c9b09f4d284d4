"""Id of a server-sent event: a viewer's position in the topics.

`1f0c3a52-12.40.7.9-3-88.90.71.80-r5.6.8.7`: the log id, the next offset of each partition of `hats.means`, and the same
for `hats.budget`, `hats.estimates` and, after an `r`, `hats.running`. Each of the last two parts is absent if its topic
does not exist. The offsets are Kafka's, so an id is valid at every server that reads the same topics, also after a
restart.
"""

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

_OFFSETS: Final = r"(\d{1,18}(?:\.\d{1,18}){0,9999})"
_FORM: Final = re.compile(f"([0-9a-f]{{8}})-{_OFFSETS}-{_OFFSETS}(?:-{_OFFSETS})?(?:-r{_OFFSETS})?")
MAX_CHARACTERS: Final = 8_000  # fits into an HTTP header


def log_id(*parts: str) -> str:
    """Return eight hexadecimal digits for a cluster and its topics: an event id of another cluster is recognised."""
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class Position:
    """Next offset of each partition of `hats.means`, `hats.budget`, `hats.estimates` and `hats.running`."""

    log: str
    means: list[int] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)
    estimates: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        named = (("", self.means), ("", self.budget), ("", self.estimates), ("r", self.running))
        parts = (letter + ".".join(map(str, offsets)) for letter, offsets in named if offsets)
        return "-".join([self.log, *parts])

    def reaches(self, other: "Position") -> bool:
        """Return whether `other` is a position in the same log and not ahead of this one."""
        pairs = [
            (self.means, other.means),
            (self.budget, other.budget),
            (self.estimates, other.estimates),
            (self.running, other.running),
        ]
        return self.log == other.log and all(
            len(mine) == len(its) and all(one >= seen for one, seen in zip(mine, its, strict=True))
            for mine, its in pairs
        )


def parse_position(text: str) -> Position | None:
    """Return the position that an event id stands for, or None if it is malformed: the viewer then gets a snapshot."""
    match = _FORM.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        return None
    log, *topics = match.groups()
    return Position(log, *map(_numbers, topics))


def _numbers(text: str | None) -> list[int]:
    return [int(part) for part in text.split(".")] if text else []
