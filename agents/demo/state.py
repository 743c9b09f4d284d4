"""What the demo knows so far: everything that it shows, and nothing else."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.policy.policy import Policy

_KEPT: Final = 200  # latest releases: more than any terminal has lines

Status = Literal["released", "suppressed", "budget_exhausted", "incomplete"]
"""As on the wire. The enum of stream/release/hats.py costs two seconds of imports: too slow for a first page."""


class Noise(msgspec.Struct, frozen=True):
    """Of a release: the scale in km/h."""

    scale: float


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a record of `hats.means`; `mean` and `noise` are None unless released."""

    release_id: str
    status: Status
    cell: str
    date: str
    slot: str
    mean: float | None = None
    noise: Noise | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a record of `hats.budget`. Epsilon: spent so far at most, by one user's day, and its limit."""

    date: str
    seq: int
    releases: int
    epsilon_user_day: float
    limit: float


@dataclass(slots=True)
class State:
    """The demo so far.

    map_url     where the live map is
    source      what is fed: a file's name, or None for the city
    clock_ms    of the slowest partition (ms UTC): what the workers know to be over
    outcomes    readings by outcome; no ticks
    counts      HATs by status
    hours       `date/slot` -> HATs by status, in the order of their first release
    budgets     date -> its latest record
    not_sent    records of the recording that are dated in the future or before 1970
    ended       the feed has sent all
    over        and all of it is released
    """

    policy: Policy
    calendar: Calendar
    source: str | None
    map_url: str = ""
    speedup: float = 0.0
    records: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    clock_ms: int | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    counts: Counter[Status] = field(default_factory=Counter)
    hours: dict[str, Counter[Status]] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    latest: deque[Published] = field(default_factory=lambda: deque(maxlen=_KEPT))
    not_sent: int = 0
    ended: bool = False
    over: bool = False
    _known: set[str] = field(default_factory=set)

    def add(self, release: Published) -> bool:
        """Take a release in; False if it is known: a consumer may see a record twice."""
        if release.release_id in self._known:
            return False
        self._known.add(release.release_id)
        self.counts[release.status] += 1
        self.hours.setdefault(f"{release.date}/{release.slot}", Counter())[release.status] += 1
        self.latest.append(release)
        return True

    def add_budget(self, budget: Budget) -> None:
        """Take a budget record in: of a day, the one with the greatest `seq` counts."""
        known = self.budgets.get(budget.date)
        if known is None or budget.seq >= known.seq:
            self.budgets[budget.date] = budget

    @property
    def releases(self) -> int:
        """How many records of `hats.means` came, each counted once."""
        return len(self._known)

    @property
    def budget(self) -> Budget | None:
        """The latest day's."""
        return self.budgets[max(self.budgets)] if self.budgets else None

    @property
    def closing(self) -> Slot | None:
        """The slot that is released next: the one that `lateness` before the clock lies in."""
        if self.clock_ms is None:
            return None
        return self.calendar.slot_at(max(self.clock_ms, self.first_ms or 0) - self.policy.lateness_ms)
