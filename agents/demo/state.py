"""State that the demo displays."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from hatcast.agents.demo.messages import Began
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.records.fields import is_settlement

_MAX_NAMES: Final = 3  # recordings that are named one by one
_MAX_LATEST: Final = 200  # releases: more than any terminal has lines

Status = Literal["released", "suppressed", "budget_exhausted", "incomplete", "deferred"]
"""Values on the wire. The enum in stream/release/hats.py costs two seconds of imports: too slow for the first page."""


class Noise(msgspec.Struct, frozen=True):
    """Noise of a release: its scale in km/h; None if its noise is not of one scale."""

    scale: float | None = None


class Users(msgspec.Struct, frozen=True):
    """Number of users of each group in a release of a hybrid policy."""

    central: int
    local: int


class Horizon(msgspec.Struct, frozen=True):
    """First and last local date of a horizon, whose running mean a release is."""

    horizon: str
    last_date: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Displayed fields of a record of `hats.means`; `mean` and `noise` are None unless released.

    weight, users   of a hybrid policy: weight of the mean of those who trust the operator, users of both groups
    running         of a continual policy: its mean is not that of the slot
    """

    release_id: str
    status: Status
    cell: str
    date: str
    slot: str
    mean: float | None = None
    noise: Noise | None = None
    interval95: tuple[float, float] | None = None
    weight: float | None = None
    users: Users | None = None
    running: Horizon | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Displayed fields of a record of `hats.queries`; `mean`, `unit` and `interval95` are None unless released.

    date   last date of the period with this slot
    """

    release_id: str
    status: Literal["released", "suppressed", "budget_exhausted"]
    query: str
    cell: str
    date: str
    slot: str
    first_date: str
    last_date: str
    mean: float | None = None
    unit: str | None = None
    interval95: tuple[float, float] | None = None
    reason: str | None = None


class Road(msgspec.Struct, frozen=True):
    """Speed of a road, or a running mean: mean and 95 % interval in km/h."""

    value: float
    interval95: tuple[float, float]


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """Displayed fields of a record of `hats.estimates`."""

    stage: Literal["live", "predicted", "settled"]
    cell: str
    date: str
    slot: str
    road: Road


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Displayed fields of a record of `hats.running`; `mean` is None if no hour of the window has a number."""

    name: str
    window: str
    cell: str
    date: str
    slot: str
    end: str
    slots: int
    mean: Road | None = None


class Spent(msgspec.Struct, frozen=True):
    """Epsilon that the users of a tracker have paid on a day: the most of one of them, and the mean."""

    largest: float
    mean: float


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Displayed fields of a record of `hats.budget`.

    epsilon_user_day   the most epsilon that one user's day has spent; all that is reserved of a tracker's day
    spent              of a tracker's users
    """

    date: str
    seq: int
    releases: int
    epsilon_user_day: float
    limit: float
    spent: Spent | None = None

    @property
    def largest(self) -> float:
        """The most epsilon that one user's day has spent, without reservations."""
        return self.epsilon_user_day if self.spent is None else self.spent.largest


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of the readings, and of the policy.

    files    recordings; empty: the synthetic city
    format   of the recordings
    config   hatcast.toml with the policy; None: the demo's own policy
    """

    files: Sequence[Path] = ()
    format: FormatChoice | None = None
    config: Path | None = None

    @property
    def name(self) -> str:
        """Names of the recordings, shortened if there are many."""
        names = [file.name for file in self.files]
        return ", ".join(names) if len(names) <= _MAX_NAMES else f"{len(names)} files, {names[0]} to {names[-1]}"


@dataclass(slots=True)
class State:
    """Progress of the demo.

    origin        source of the readings and of the policy
    map_url       URL of the live map
    began         source and pace of the feed; None: it has not started
    watermark_ms  minimum of the partitions (ms UTC)
    outcomes      readings by outcome, without heartbeats
    report_outcomes   reports of devices by outcome, without heartbeats
    counts        HATs by status
    hours         `date/slot` -> HATs by status, in the order of their first release
    budgets       date -> its latest record
    answers       release_id -> answer to a query over days, in the order of their arrival
    estimates     cell -> its newest estimate
    running       name of a running mean -> cell -> its newest record
    settled_dates dates with a settled estimate
    settling      date of the newest settlement of a tracker; "" without one
    not_sent      records of the recording that arrived in the future or before 1970
    feed_ended    the feed has sent everything
    finished      everything is released
    """

    policy: Policy
    calendar: Calendar
    origin: Origin
    map_url: str
    began: Began | None = None
    watermark_ms: int | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    report_outcomes: Mapping[str, int] = field(default_factory=dict)
    counts: Counter[Status] = field(default_factory=Counter)
    hours: dict[str, Counter[Status]] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    answers: dict[str, Answered] = field(default_factory=dict)
    estimates: dict[str, Estimated] = field(default_factory=dict)
    running: dict[str, dict[str, Running]] = field(default_factory=dict)
    settled_dates: set[str] = field(default_factory=set)
    settling: str = ""
    latest: deque[Published] = field(default_factory=lambda: deque(maxlen=_MAX_LATEST))
    not_sent: int = 0
    feed_ended: bool = False
    finished: bool = False
    _seen_ids: set[str] = field(default_factory=set)

    def add(self, release: Published) -> bool:
        """Add a release; return False if it is a duplicate or of no single HAT: a consumer may see a record twice."""
        if release.release_id in self._seen_ids:
            return False
        self._seen_ids.add(release.release_id)
        if is_settlement(release.release_id):
            self.settling = max(self.settling, release.date)
            return False
        self.counts[release.status] += 1
        self.hours.setdefault(f"{release.date}/{release.slot}", Counter())[release.status] += 1
        self.latest.append(release)
        return True

    def add_answer(self, answer: Answered) -> bool:
        """Add an answer to a query over days; return False if it is a duplicate."""
        if answer.release_id in self.answers:
            return False
        self.answers[answer.release_id] = answer
        return True

    def add_budget(self, budget: Budget) -> None:
        """Add a budget record. The one with the greatest `seq` of a day is valid."""
        known = self.budgets.get(budget.date)
        if known is None or budget.seq >= known.seq:
            spent = budget.spent if known is None or budget.spent is not None else known.spent
            self.budgets[budget.date] = msgspec.structs.replace(budget, spent=spent)

    def add_estimate(self, estimate: Estimated) -> bool:
        """Add an estimate; return False if it is of an earlier slot than another of its cell, or of the same one."""
        if estimate.stage == "settled":
            self.settled_dates.add(estimate.date)
        known, slot = self.estimates.get(estimate.cell), (estimate.date, estimate.slot)
        if known is not None and slot < (known.date, known.slot):
            return False
        self.estimates[estimate.cell] = estimate
        return known is None or slot > (known.date, known.slot)

    def add_running(self, running: Running) -> None:
        """Add a running mean, unless it is of an earlier slot than another of its name and cell."""
        cells = self.running.setdefault(running.name, {})
        known = cells.get(running.cell)
        if known is None or (running.date, running.slot) >= (known.date, known.slot):
            cells[running.cell] = running

    @property
    def settled(self) -> str:
        """The newest date with a settled estimate; "" without one."""
        return max(self.settled_dates, default="")

    @property
    def records(self) -> int:
        """Number of distinct records of `hats.means` and `hats.queries`: as many as the ledger has commits."""
        return len(self._seen_ids) + len(self.answers)

    @property
    def budget(self) -> Budget | None:
        """Budget of the latest day."""
        return self.budgets[max(self.budgets)] if self.budgets else None

    @property
    def next_slot(self) -> Slot | None:
        """The slot that is released next: the one that contains the watermark minus `lateness`."""
        if self.watermark_ms is None:
            return None
        first_ms = 0 if self.began is None else self.began.first_ms
        return self.calendar.slot_at(max(self.watermark_ms, first_ms) - self.policy.lateness_ms)
