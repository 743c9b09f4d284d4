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
    queries                 of its queries over days: name -> epsilon (1e-9); of a tracker, what a day reserves
    min_users               of a tracker's HATs: those with fewer are suppressed; None for another estimator
    grids                   name of a value besides the speed -> its grid
    cells                   in which a user's running sums are in a horizon; None for another estimator
    """

    name: str
    epsilon: int
    cap: int
    limit: int
    grid: Fraction
    exact: bool
    total: int | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    min_users: int | None = None
    grids: Mapping[str, Fraction] = field(default_factory=dict)
    cells: int | None = None

    @property
    def tracks(self) -> bool:
        """Whether it is a tracker's."""
        return self.min_users is not None

    @property
    def reserves(self) -> bool:
        """Whether a day's reservation pays for its releases."""
        return self.tracks or self.cells is not None

    @property
    def places(self) -> int:
        """A tracker reserves its day once, running sums each cell, a query over days each of the K HATs of a user."""
        return 1 if self.tracks else self.cells or self.cap


@dataclass(frozen=True)
class Asked:
    """A tracker's query as counts lead to it.

    query   its record's fields, without the released `sum`
    raw     km/h: the prediction from the numbers that were released before, and the released sum of this one
    spent   the largest loss of a bus on the date up to it, 1e-9, from its bound and the scale of the noise alone
    """

    release_id: str
    cell: str
    epsilon: Fraction
    query: Record
    raw: float
    spent: int


Course = Sequence[Asked]
"""A date's queries, in order, from one state of the tracker."""


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
    courses   date -> the queries of a tracker from each state with which it may have begun the date, the first without
              a loss
    settled   dates whose settlement is due, of a tracker
    estimates key -> the last estimate that one process makes of what is on `hats.means`
    releases  release_id -> the release that one process makes of the log, for several values and for running sums
    thinned   dates of which workers have met a log that lacked records
    """

    outcomes: Mapping[str, int]
    hats: Mapping[str, Totals]
    final: frozenset[str]
    answers: Mapping[str, Record] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    courses: Mapping[str, Sequence[Course]] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    estimates: Mapping[str, bytes] = field(default_factory=dict)
    releases: Mapping[str, Record] = field(default_factory=dict)
    thinned: frozenset[str] = frozenset()


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
    spent       date -> what `hats.budget` says that a bus has spent at most, 1e-9, as often as it says so
    estimates   key -> the last value on `hats.estimates`
    lost        Redis has lost data in the run
    accepted    requests of limits that were accepted: query about a day, its date, km/h
    limits      of such a query and date: what the registry says, or else the policy
    derived     HATs of the positions that telemetry was derived from, as one process derives them; None without
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
    spent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    estimates: Mapping[str, bytes] = field(default_factory=dict)
    lost: bool = False
    accepted: Sequence[tuple[str, str, float]] = ()
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    derived: Mapping[str, Totals] | None = None


@dataclass(frozen=True)
class Violation:
    """A promise that was broken. `rule` is one of `check.RULES`."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def release_id_of(name: str, hat: str) -> str:
    """The release_id of a HAT (`cell/date/slot`) of a policy."""
    cell, date, slot = hat.split("/")
    return f"{name}/{date}T{slot}/{cell}"
