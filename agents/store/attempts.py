"""A recovery of the ledger as one look at Redis shows it, and how a step of it ends early.    [decisions/0027]"""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.store.adoption import Position


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the recovery shows.

    token            "" while the ledger is not recovered
    attempt          the token of a recovery in progress; "" for none
    sealed_through   the local date through which the policy's days are sealed; "" for none
    commits          how many commits the domain has had, of all policies and workers
    sequences        release partition -> its commit sequence
    """

    token: str
    attempt: str
    sealed_through: str
    commits: int
    sequences: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recovery in progress; any worker may join it.

    ours       nobody else had begun it
    is_fenced  all publishers are fenced, and it is known how far the topics have to be read
    """

    token: str
    ours: bool
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class Grounds:
    """On which grounds records are adopted: a finished recovery that must not end meanwhile, or one in progress."""

    field: str
    token: str

    @staticmethod
    def finished(token: str) -> "Grounds":
        """Redis is recovered."""
        return Grounds("token", token)

    @staticmethod
    def in_progress(token: str) -> "Grounds":
        """Redis is being recovered."""
        return Grounds("attempt", token)


class Ended(Exception):
    """The recovery on whose grounds records were adopted is over: Redis lost something, or another one began."""


class Moved(Exception):
    """Another worker has adopted this stretch. `stored` is what is stored of the partition now."""

    def __init__(self, stored: Position | None) -> None:
        super().__init__(stored)
        self.stored = stored


class Missing(Exception):
    """The ledger lacks some of the records, or has others: nothing was adopted.

    missing     ids of records that are not there
    different   ids of those that have other bytes there
    """

    def __init__(self, missing: frozenset[str], different: frozenset[str]) -> None:
        super().__init__(len(missing), len(different))
        self.missing = missing
        self.different = different
