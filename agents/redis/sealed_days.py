"""What is left of sealed days: a mark a policy, and a summary of at most 1 kB a day.    [decisions/0028]

Both are records of the registry topic too, which a Redis that lost them is filled from.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from hatcast.agents.redis.adoption import OutputPartition, Position

SEALED_KEY: Final = "sealed/"
DAY_KEY: Final = "day/"


class TopicStart(msgspec.Struct, frozen=True, array_like=True):
    """Where reading one output topic begins, partition by partition. `topic_id`: see `Position`."""

    topic_id: str
    offsets: dict[int, int]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a policy's days are sealed. Key `sealed/POLICY`.

    through     the last local date that is sealed, and all before it
    first_ms    start of the policy's first slot (ms UTC), under `add_remove`
    done_ms     end of the last slot that is sealed (ms UTC), under `add_remove`
    partitions  release partitions of the policy
    starts      output topic -> where reading begins: all before is of sealed days
    """

    policy: str
    through: str
    partitions: int
    starts: dict[str, TopicStart]
    first_ms: int | None = None
    done_ms: int | None = None

    def read_from(self, place: OutputPartition) -> Position | None:
        """Before which everything in an output partition is of sealed days; None where that is not known."""
        start = self.starts.get(place.topic)
        if start is None or place.partition not in start.offsets:
            return None
        return Position(start.topic_id, start.offsets[place.partition])


class SealedDay(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's part of a day's ledger, which does not change any more. Key `day/POLICY/DATE`.

    cost                what it costs one user (1e-9)
    sequence            the day's ledger number at that time
    limit, total_limit  of a day and of all days (1e-9), as far as charges have set them
    fields              of the day's ledger, those of the policy; their texts
    levels              e(cell, slot) -> how many have it; as texts
    """

    policy: str
    date: str
    cost: int
    sequence: int
    limit: str
    total_limit: str
    fields: dict[str, str]
    levels: dict[str, str]


def registry_records(sealed: Sealed, days: Mapping[str, SealedDay]) -> dict[str, bytes]:
    """Key -> value of the registry's records about a seal."""
    found = {f"{SEALED_KEY}{sealed.policy}": msgspec.json.encode(sealed)}
    for date, day in days.items():
        found[f"{DAY_KEY}{day.policy}/{date}"] = msgspec.json.encode(day)
    return found
