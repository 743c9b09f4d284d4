"""What a round of releases is made of: final HATs, cut into lots that memory and one transaction can carry."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.agents.redis.ledger import Proposal
from hatcast.agents.redis.partition_state import FinalHat
from hatcast.agents.release.lots import lots_of
from hatcast.stream.release.hats import Release

HATS: Final = 500  # released together; a transaction carries those of one release partition
_USERS: Final = 200_000  # of one load: bounds memory; a larger HAT is loaded alone


@dataclass(frozen=True, slots=True)
class DueRelease:
    """A final HAT of ours, and how many users it has.

    released_at_ms   ms UTC, where that is public and all that may be told; None: the time of the commit
    """

    hat: FinalHat
    release_id: str
    users: int
    released_at_ms: int | None = None


def batches_of(due: Sequence[DueRelease]) -> Iterator[list[DueRelease]]:
    """In order, cut at dates, at `HATS` and at `_USERS`."""
    return lots_of(due, date_of, HATS, _USERS)


def date_of(due: DueRelease) -> str:
    """The local date that a HAT is charged to."""
    return due.hat.slot.partition("/")[0]


def proposal_of(release: Release, at_ms: int, release_partition: int) -> Proposal:
    """Return what the ledger is asked to commit, by the owner of a release partition."""
    return Proposal(
        release_id=release.release_id,
        date=release.date,
        place=release.place,
        charge=release.charge,
        record=release.record(at_ms),
        exhausted=release.exhausted().record(at_ms),
        fineness=release.fineness,
        release_partition=release_partition,
    )
