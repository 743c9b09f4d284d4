"""Options of the demo, the state that it displays, and the messages from its feed process: one JSON object per line."""

import secrets
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.config.tables import DisplayTable
from hatcast.agents.demo.defaults import MAP, SHARE
from hatcast.agents.demo.embedded import Addresses
from hatcast.agents.sources.synthetic import chance_of, write_timetable
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.records import BudgetRecord, EstimateRecord, QueryRecord, ReleaseRecord, RunningRecord
from hatcast.stream.records.fields import is_settlement, query_kind


class FeedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Job of the feed: source, speed-up and target services. Without `files`, the synthetic city."""

    addresses: Addresses
    config: str | None = None  # path of a hatcast.toml whose [policy] is used; None: the demo's policy
    files: tuple[str, ...] = ()
    format: FormatChoice | None = None
    speedup: float | None = None  # None: chosen to fit the recording; 0: as fast as possible
    hybrid: bool = False  # the policy has to take reports of devices
    share: float = 1.0  # share of the vehicles that trust the operator, if the policy takes reports
    seed: int = 0  # of the synthetic city


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has opened its source and starts to send."""

    records: int | None  # number of records; None: endless
    # first_ms, last_ms: ms UTC of the first and last arrival; None: unknown
    first_ms: int
    last_ms: int | None
    speedup: float
    # trusting, devices: number of vehicles that send readings, and of those with devices; None: all send readings
    trusting: int | None = None
    devices: int | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sentence for the user."""

    text: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has sent everything, and Kafka has acknowledged it."""

    sent: int  # records without heartbeats, with `undecodable` ones
    undecodable: int
    arrived_in_future: int  # records that were not sent: they arrive later than now
    arrived_before_1970: int  # records that were not sent


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has failed; `text` is the error line for the user."""

    text: str


FeedMessage = Began | Note | Ended | Failed

_MAX_NAMES: Final = 3  # recordings that are named one by one
_MAX_LATEST: Final = 200  # releases: more than any terminal has lines


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the user; see `FeedJob` for those of the feed."""

    config: Path | None = None  # hatcast.toml with the policy; None: the demo's own policy
    files: Sequence[Path] = ()  # recordings; empty: the synthetic city
    format: FormatChoice | None = None  # of the recordings
    speedup: float | None = None
    seconds: float | None = None  # time limit; None: until Ctrl-C or the end of the recording
    port: int | None = None  # of the map; None: `MAP_PORT`, or any free port if that is in use
    hybrid: bool = False  # the policy has to take reports of devices
    share: float | None = None  # share of the vehicles that trust the operator; None: `SHARE`
    keep: bool = False  # keep the map after the end of the recording, until Ctrl-C or the time limit
    gtfs: Path | None = None  # timetable that the map draws, and of the tracker of recordings
    basemap: Path | None = None  # PMTiles archive that the map draws
    seed: int = field(default_factory=lambda: secrets.randbits(32))  # of a synthetic city

    def timetable(self, folder: Path) -> Path | None:
        """Return the timetable of the demo's own policy: of a synthetic city its own, which is written."""
        if self.files:
            return self.gtfs
        path = folder / "timetable.zip"
        write_timetable(path, chance_of(self.seed))
        return path

    @property
    def display(self) -> DisplayTable:
        """Settings of the map."""
        gtfs, basemap = (None if path is None else str(path) for path in (self.gtfs, self.basemap))
        return msgspec.structs.replace(MAP, gtfs=gtfs, basemap=basemap)

    @property
    def name(self) -> str:
        """Names of the recordings, shortened if there are many."""
        names = [file.name for file in self.files]
        return ", ".join(names) if len(names) <= _MAX_NAMES else f"{len(names)} files, {names[0]} to {names[-1]}"

    def job(self, addresses: Addresses) -> FeedJob:
        """Return the job for the feed."""
        return FeedJob(
            addresses=addresses,
            config=None if self.config is None else str(self.config),
            files=tuple(map(str, self.files)),
            format=self.format,
            speedup=self.speedup,
            hybrid=self.hybrid,
            share=SHARE if self.share is None else self.share,
            seed=self.seed,
        )


@dataclass(slots=True)
class DemoState:
    """Progress of the demo."""

    policy: Policy
    calendar: Calendar
    options: DemoOptions
    map_url: str  # URL of the live map
    began: Began | None = None  # source and pace of the feed; None: it has not started
    watermark_ms: int | None = None  # minimum of the partitions (ms UTC)
    outcomes: Mapping[str, int] = field(default_factory=dict)  # readings by outcome, without heartbeats
    # reports of devices by outcome, without heartbeats
    report_outcomes: Mapping[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)  # HATs by status
    # `date/slot` -> HATs by status, in the order of their first release
    hours: dict[str, Counter[str]] = field(default_factory=dict)
    budgets: dict[str, BudgetRecord] = field(default_factory=dict)  # date -> its latest record
    # release_id -> answer to a query over days, in the order of their arrival
    answers: dict[str, QueryRecord] = field(default_factory=dict)
    estimates: dict[str, EstimateRecord] = field(default_factory=dict)  # cell -> its newest estimate
    # name of a running mean -> cell -> its newest record
    running: dict[str, dict[str, RunningRecord]] = field(default_factory=dict)
    settled_dates: set[str] = field(default_factory=set)  # dates with a settled estimate
    settling: str = ""  # date of the newest settlement of a tracker; "" without one
    latest: deque[ReleaseRecord] = field(default_factory=lambda: deque(maxlen=_MAX_LATEST))
    not_sent: int = 0  # records of the recording that arrived in the future or before 1970
    feed_ended: bool = False  # the feed has sent everything
    finished: bool = False  # everything is released
    _seen_ids: set[str] = field(default_factory=set)

    def add(self, release: ReleaseRecord) -> bool:
        """Add a release; return False if it is a duplicate or of no single HAT: a consumer may see a record twice."""
        if release.release_id in self._seen_ids:
            return False
        self._seen_ids.add(release.release_id)
        if query_kind(release.release_id):
            if is_settlement(release.release_id):
                self.settling = max(self.settling, release.date)
            return False
        self.counts[release.status] += 1
        self.hours.setdefault(f"{release.date}/{release.slot}", Counter())[release.status] += 1
        self.latest.append(release)
        return True

    def add_answer(self, answer: QueryRecord) -> bool:
        """Add an answer to a query over days; return False if it is a duplicate."""
        if answer.release_id in self.answers:
            return False
        self.answers[answer.release_id] = answer
        return True

    def add_budget(self, budget: BudgetRecord) -> None:
        """Add a budget record. The one with the greatest `seq` of a day is valid."""
        known = self.budgets.get(budget.date)
        if known is None or budget.seq >= known.seq:
            spent = budget.spent if known is None or budget.spent is not None else known.spent
            self.budgets[budget.date] = msgspec.structs.replace(budget, spent=spent)

    def add_estimate(self, estimate: EstimateRecord) -> bool:
        """Add an estimate; return False if it is of an earlier slot than another of its cell, or of the same one."""
        if estimate.stage == "settled":
            self.settled_dates.add(estimate.date)
        known, slot = self.estimates.get(estimate.cell), (estimate.date, estimate.slot)
        if known is not None and slot < (known.date, known.slot):
            return False
        self.estimates[estimate.cell] = estimate
        return known is None or slot > (known.date, known.slot)

    def add_running(self, running: RunningRecord) -> None:
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
    def budget(self) -> BudgetRecord | None:
        """BudgetRecord of the latest day."""
        return self.budgets[max(self.budgets)] if self.budgets else None

    @property
    def next_slot(self) -> Slot | None:
        """The slot that is released next: the one that contains the watermark minus `lateness`."""
        if self.watermark_ms is None:
            return None
        first_ms = 0 if self.began is None else self.began.first_ms
        return self.calendar.slot_at(max(self.watermark_ms, first_ms) - self.policy.lateness_ms)
