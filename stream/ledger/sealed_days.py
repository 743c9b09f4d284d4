"""Sealed days: one seal per policy, and one summary of at most 1 kB per day.    [decisions/0013]

Both are also records of the registry topic, from which a Redis that lost them is restored.
"""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.ledger.adoption import OutputPartition, Position

SEALED_KEY: Final = "sealed/"
DAY_KEY: Final = "day/"


class TopicStart(msgspec.Struct, frozen=True, array_like=True):
    """The offset in each partition of an output topic at which reading starts. `topic_id`: see `Position`."""

    topic_id: str
    offsets: dict[int, int]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's seal. Registry key `sealed/POLICY`."""

    policy: str
    through: str  # the last sealed local date; all earlier days are sealed too
    rules: str  # under which that date was released: `Calendar.rules_of`
    partitions: int  # number of release partitions of the policy
    starts: dict[str, TopicStart]  # output topic -> where reading starts; all earlier records are of sealed days
    first_ms: int | None = None  # start of the policy's first slot (ms UTC), under `add_remove`
    done_ms: int | None = None  # end of the last sealed slot (ms UTC), under `add_remove`
    has_horizons: bool = False  # whether the policy has running sums: their states cannot be read again from the topics

    def read_from(self, place: OutputPartition) -> Position | None:
        """Return the position before which an output partition has only records of sealed days; None if unknown."""
        start = self.starts.get(place.topic)
        if start is None or place.partition not in start.offsets:
            return None
        return Position(start.topic_id, start.offsets[place.partition])


class SealedDay(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's final part of a day's ledger. Registry key `day/POLICY/DATE`."""

    policy: str
    date: str
    cost: int  # its cost for one user (1e-9)
    sequence: int  # the day's ledger number at that time
    # limit, total_limit: of a day and of all days (1e-9), "" if charges have not set them
    limit: str
    total_limit: str
    fields: dict[str, str]  # the policy's fields of the day's ledger, values as text
    levels: dict[str, str]  # e(cell, slot) -> number of cells and slots with that e, both as text


def check_lost(lost: Collection[Sealed], calendar: Calendar) -> None:
    """Raise HatcastError if the last date of seals that Redis has lost was released under other rules than these.

    Readings around the midnight after it, which are folded again, would be on the next date as well.
    """
    if lost:
        last = max(lost, key=attrgetter("through"))
        calendar.check_rules([(last.through, last.rules)])


def registry_records(sealed: Sealed, days: Mapping[str, SealedDay]) -> dict[str, bytes]:
    """Return key -> value of the registry records of a seal and its days."""
    found = {f"{SEALED_KEY}{sealed.policy}": msgspec.json.encode(sealed)}
    for date, day in days.items():
        found[f"{DAY_KEY}{day.policy}/{date}"] = msgspec.json.encode(day)
    return found
