"""A release that is due, and the release partition whose owner commits and sends it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.partitioner import by_murmur2

TRACKER_PARTITION: Final = 0  # the owner of this release partition makes a tracker's queries
_OF_HAT: Final = 2  # slashes in the release_id of a HAT, or of a query of a tracker; an answer to a query has more


@dataclass(frozen=True, slots=True)
class Due:
    """A release that is due.

    max_users        of a batch, which is loaded at once: bounds memory
    date             local date that stores its record; a batch has one
    users            number of users' rows to load, 0 or more
    released_at_ms   ms UTC, if this public time is the only one that may be published; None: the time of the commit
    """

    max_users: ClassVar[int]

    release_id: str
    cell: str
    date: str
    users: int = field(compare=False)
    released_at_ms: int | None

    @property
    def dates(self) -> Sequence[str]:
        """The local dates that it is charged to; their budget records are sent with it."""
        return (self.date,)

    @property
    def loaded_with(self) -> Hashable:
        """Equal for consecutive items of a batch that are loaded and drawn together."""
        return self.date


def release_partition_of(policy: Policy, release_id: str, cell: str, partitions: int) -> int:
    """Return the release partition of a record: its owner commits and sends the record.

    A tracker's releases follow from each other, so they have one owner; so have the running sums of a cell.

    Under `add_remove` the output partition, so that one producer sends its records, in the order of slots and cells.
    """
    if policy.tracker is not None and release_id.count("/") == _OF_HAT:
        return TRACKER_PARTITION
    by_cell = policy.relation is Relation.ADD_REMOVE or policy.continual is not None
    return _partition_of(cell if by_cell else release_id, partitions)


@lru_cache(maxsize=16_384)  # each step of a release asks again
def _partition_of(key: str, partitions: int) -> int:
    return by_murmur2(key.encode(), partitions)
