"""What the checker compares: what a policy says, what the log makes of it, and what is there after a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

Totals = tuple[int, int, int, int]  # users, readings, sum, maximum
Record = Mapping[str, Any]  # as JSON has it, but for exact numbers
Places = tuple[int, int]  # places that a query has on a day, and its epsilon in each of them (1e-9)

NANO: Final = 10**9
GRID_STEPS: Final = 2  # of noise and rounding, where epsilon is so large that nothing is hidden


@dataclass(frozen=True)
class Promise:
    """What the policy says.

    epsilon, limit, total   1e-9; `total` is the limit of all days, None without one
    grid                    km/h
    exact                   epsilon is so large that a mean is the true one; else the limits may bind
    queries                 of its queries over days: name -> epsilon (1e-9)
    """

    name: str
    epsilon: int
    cap: int
    limit: int
    grid: Fraction
    exact: bool
    total: int | None = None
    queries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """One day's charges: those of our policy, and the number of the day's changes. `epsilon_sum` in 1e-9.

    queries   those that are settled, by name
    """

    releases: int
    epsilon_sum: int
    sequence: int
    queries: Mapping[str, Places] = field(default_factory=dict)

    @property
    def reserved(self) -> int:
        """1e-9: what the queries cost a user's day."""
        return sum(places * epsilon for places, epsilon in self.queries.values())


@dataclass(frozen=True)
class Log:
    """What one process makes of the dumped log.

    hats      `cell/date/slot` -> totals
    final     those whose slot is over in every partition
    answers   release_id -> the answer to a query whose closing slot is
    waiting   the final HATs that a query will read whose closing slot is not
    """

    outcomes: Mapping[str, int]
    hats: Mapping[str, Totals]
    final: frozenset[str]
    answers: Mapping[str, Record] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """What is there after a run has settled.

    published   release_id -> every value on `hats.means`, also of transactions that were not committed
    stored      release_id -> record, in Redis
    ledgers     date -> ledger, in Redis
    announced   date -> ledger, as readers of `hats.budget` have it
    outcomes    stored, of all partitions together
    open_hats   `cell/date/slot` -> stored contributions
    users       (date, pseudonym) -> the HATs that it is found in, each with its partition
    answered    as `published`, on `hats.queries`
    kept        `cell/date/slot` -> what is kept for queries
    sealed      date -> commits of our policy, of sealed days: `stored` has nothing of them
    """

    published: Mapping[str, Sequence[bytes]]
    stored: Mapping[str, bytes]
    ledgers: Mapping[str, Ledger]
    announced: Mapping[str, Ledger]
    outcomes: Mapping[str, int]
    open_hats: Mapping[str, Totals]
    users: Mapping[tuple[str, str], Sequence[tuple[str, int]]]
    answered: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    kept: Mapping[str, Totals] = field(default_factory=dict)
    sealed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Violation:
    """A promise that was broken. `rule` is one of `check.RULES`."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
