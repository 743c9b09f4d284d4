"""State of a ledger recovery, and the exceptions of its steps.    [decisions/0027]"""

from collections.abc import Mapping
from dataclasses import dataclass

from hatcast.stream.ledger.adoption import Position


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """The recovery of the ledger, as read at one time.

    token            of the finished recovery; "" while the ledger is not recovered
    attempt          token of a recovery in progress; "" for none
    sealed_through   the last sealed local date of the policy; "" for none
    commits          number of commits in the domain, of all policies and workers
    generation       number of this recovery: Redis went back if it is not greater than that of another known one
    sequences        release partition -> its commit sequence
    """

    token: str
    attempt: str
    sealed_through: str
    commits: int
    generation: int
    sequences: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recovery in progress, which any worker may join.

    ours       this call began it
    is_fenced  all publishers are fenced, and the end offsets of the output topics are stored
    """

    token: str
    ours: bool
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class RecoveryCheck:
    """The recovery that must still be current when records are adopted: a finished one, or one in progress."""

    field: str
    token: str

    @staticmethod
    def finished(token: str) -> "RecoveryCheck":
        """Require this finished recovery."""
        return RecoveryCheck("token", token)

    @staticmethod
    def in_progress(token: str) -> "RecoveryCheck":
        """Require this recovery in progress."""
        return RecoveryCheck("attempt", token)


class RecoveryEnded(Exception):
    """The required recovery has ended: Redis lost data, or another recovery began."""


class AlreadyAdopted(Exception):
    """Another worker has adopted these records. `stored` is the partition's adopted position now."""

    def __init__(self, stored: Position | None) -> None:
        super().__init__(stored)
        self.stored = stored


class RecordsMissing(Exception):
    """The ledger lacks some of the records, or has other bytes for them: nothing was adopted.

    missing     ids of records that the ledger lacks
    different   ids of records for which the ledger has other bytes
    """

    def __init__(self, missing: frozenset[str], different: frozenset[str]) -> None:
        super().__init__(len(missing), len(different))
        self.missing = missing
        self.different = different
