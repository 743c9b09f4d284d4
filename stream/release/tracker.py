"""A tracker policy at work: final slots of a date in order, then its settlement.    [docs/specification/tracker.md]

Each query is drawn once. Its record is committed before it leaves, and after a crash the same calls with the stored
records lead to the same state: a stored query has to be the one that the same counts lead to now, and its released
number is learned instead of a new one. If it is not, then it is not known what each bus has paid on the date, so no
further query is made of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hatcast.stream.fold.calendar import Calendar, Slot, later
from hatcast.stream.fold.packing import joined_columns
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.policy.query import TRACKER_QUERIES
from hatcast.stream.records.fields import Status
from hatcast.stream.release.budget_records import Spent
from hatcast.stream.release.hats import HatChunks
from hatcast.stream.release.tracker_records import MadeQuery, StoredDraw, TrackerRelease, hat_release, query_release
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.state import TrackerState
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers, Tracker


class DifferentQueryError(Exception):
    """A stored query is not the one that the same counts lead to now."""


class PolicyTracker:
    """The tracker of one policy, at work on one date after the other.

    Call `begin_day`, then `close_slot` for each slot of the date with HATs, in order of their ends, then `settle` and
    `end_day`. After an error of the caller between two of them, make a new one from the last state.
    """

    def __init__(self, policy: Policy, stored: bytes | None, timetable: Timetable | None = None) -> None:
        """Args:
        stored: what `end_day` returned last; None: nothing. A state that cannot be used counts as none
        timetable: the policy's, as its file is now: it holds from the next date on, or from a first date
        """
        self._policy = policy
        self._file = timetable
        self._keys = policy.keys_of(TrackerKeys)
        self._calendar = Calendar(policy)
        self._state = TrackerState.decoded(stored, policy.policy_id)
        self._tracker = self._new_tracker()
        # local date through which days are settled; "" for none
        self.settled = "" if self._state is None else self._state.date
        self.date = ""  # the date at work; "" before the first
        self.closed: Status | None = None  # why no query is made of the date; None: queries are made
        self.is_different = False  # whether that is because a stored query is different
        self._number = 0
        self._slots: dict[str, Slot] = {}
        self._names: list[tuple[str, str]] = []
        self._known: frozenset[str] = frozenset()
        self._queries: dict[int, StoredDraw] = {}

    @property
    def timetable(self) -> Timetable | None:
        """The timetable that holds on the date at work, whatever the file is now."""
        return self._tracker.timetable

    def first_state(self, date: str) -> tuple[str, bytes] | None:
        """Return the date before and a first state with the timetable, to be stored before the first draw.

        None if there is a state, or no timetable. The caller continues with a new object made from what is stored then.
        """
        if self._state is not None or self._file is None:
            return None
        before = later(date, -1)
        return before, self._tracker.state(self._policy.policy_id, before).encoded()

    def begin_day(self, date: str, records: Iterable[tuple[str, bytes]]) -> None:
        """Begin a local date, later than the settled ones.

        records   release_id and bytes of each record of the date that is stored already
        """
        self._tracker.begin_day()
        self.date, self.closed, self.is_different = date, None, False
        self._number, self._slots, self._names = 0, {}, []
        known, queries = set(), dict[int, StoredDraw]()
        for name, record in records:
            known.add(name)
            stored = StoredDraw.of(record)
            if stored.query is not None:
                queries[stored.query.number] = stored
            if stored.prior_scale not in (None, self._tracker.prior_scale):  # the state that it was drawn with is lost
                self.closed, self.is_different = Status.DEFERRED, True
        self._known, self._queries = frozenset(known), queries

    def close_day(self, status: Status | None) -> None:
        """Stop the queries of the date: its HATs get this status. The model goes back to the date's beginning.

        None: as `closed_by` says, they go on.
        """
        if self.closed is None and status is not None:
            self._tracker = self._new_tracker()
            self._tracker.begin_day()
            self.closed = status

    def is_at(self, date: str) -> bool:
        """Return whether the tracker works on a local date. An earlier date is settled, and its HATs are late."""
        return self.settled < date == self.date

    def is_known(self, name: str) -> bool:
        """Return whether the date had a record of this release_id when it began."""
        return name in self._known

    def close_slot(self, slot: Slot, hats: Sequence[HatUsers], noise: LaplaceNoise) -> list[TrackerRelease]:
        """Return the releases of a final slot, in the order in which they are committed: queries first.

        They are those of its HATs and, first of all, the pulse. A late slot, of a settled date, has no query.
        """
        if not self.is_at(slot.date):
            return closed_releases(self._policy, slot, hats, Status.DEFERRED)
        queried: list[TrackerRelease] = []
        of = {hat.cell: hat for hat in hats}
        counted = [hat for hat in hats if len(hat.counts) >= self._policy.min_users]
        if self.closed is None and counted:
            self._slots[slot.name] = slot
            self._names += [(slot.name, hat.cell) for hat in counted]
            hour = self._calendar.local(slot.start_ms).hour
            queries = self._tracker.close_slot(slot.start_ms, hour, counted)

            def released(query: MadeQuery) -> TrackerRelease:
                if query.is_pulse:
                    return self._query_release(query)
                return hat_release(self._policy, self._calendar, slot, of[query.cell], Status.RELEASED, query)

            queried = self._made(queries, released, noise)
        releases = closed_releases(self._policy, slot, hats, self.closed or Status.DEFERRED)
        done = {release.cell for release in queried if release.is_hat}
        releases = [*queried, *(release for release in releases if release.cell not in done)]
        return [self._of_date(each) for each in releases]

    def settle(self, noise: LaplaceNoise, advance: Callable[[int], None] = lambda _: None) -> list[TrackerRelease]:
        """Return the releases of the date's settlement, in the order in which they are committed.

        advance   called with 1 after each query is chosen
        """
        if self.closed is not None:
            return []
        releases = self._made(_counted(self._tracker.settle(), advance), self._query_release, noise)
        return [self._of_date(each) for each in releases]

    def end_day(self) -> bytes:
        """End the date. Return the state after it, to begin with after a crash: with the timetable of the next date."""
        self._tracker.end_day()
        self._tracker.timetable = self._file
        self._state = self._tracker.state(self._policy.policy_id, self.date)
        self.settled = self.date
        return self._state.encoded()

    def spent(self) -> Spent | None:
        """Return the largest and the mean charge of the date's users so far, 1e-9; None without users."""
        day = self._tracker.schedule.day
        if not len(day.bus):
            return None
        spent = self._tracker.schedule.balances.spent(int(day.bus.max()) + 1)
        return int(spent.max()), float(spent.mean())

    def _query_release(self, query: MadeQuery) -> TrackerRelease:
        return query_release(self._policy, self._calendar, self._slots, query)

    def _of_date(self, release: TrackerRelease) -> TrackerRelease:
        """Return a release with what readers need of the date's model: the prior's scale, a HAT's scheduled speed."""
        speeds = {} if self.timetable is None or not release.is_hat else self.timetable.speeds
        return replace(release, scheduled=speeds.get(release.cell), prior_scale=self._tracker.prior_scale)

    def _made(
        self, queries: Iterator[ResidualQuery], release: Callable[[MadeQuery], TrackerRelease], noise: LaplaceNoise
    ) -> list[TrackerRelease]:
        """Return the releases of queries; an empty list if a stored query is different."""
        try:
            return [self._released(asked, release, noise) for asked in queries]
        except DifferentQueryError:
            self.close_day(Status.DEFERRED)
            self.is_different = True
            return []

    def _released(
        self, asked: ResidualQuery, release: Callable[[MadeQuery], TrackerRelease], noise: LaplaceNoise
    ) -> TrackerRelease:
        """Draw a query, or learn its stored number."""
        track, number = self._tracker.tracks[0], self._number + 1
        hats = tuple(self._names[hat] for hat in asked.members.hats.tolist())
        stored = self._queries.get(number)
        predicted = track.expected(asked)
        released = 0 if stored is None or stored.query is None else stored.query.sum
        made = MadeQuery(number, asked, hats, released, predicted, self._keys.daily_limit)
        name = release(made).release_id
        if stored is None:
            if name in self._known or number < max(self._queries, default=0):
                raise DifferentQueryError
            released = track.draw(asked, self._tracker.values, noise)
            made = replace(made, released=released)
        elif not stored.is_of(made, name, made.cell):
            raise DifferentQueryError
        track.learn(asked, released)
        self._number = number
        return release(made)

    def _new_tracker(self) -> Tracker:
        policy = self._policy
        tracker = Tracker(self._keys, Prior.of_policy(policy), state=self._state, min_users=policy.min_users)
        if self._state is None:
            tracker.timetable = self._file
        return tracker


def closed_by(summary: DaySummary, *, lost: bool) -> Status | None:
    """Return why a tracker makes no more queries on a date; None if it does.

    summary   of the date: its reservation has no places if the day's limit had no room for the queries
    lost      whether the date lacks deleted records
    """
    if lost:
        return Status.INCOMPLETE
    reserved = summary.queries.get(TRACKER_QUERIES)
    return Status.BUDGET_EXHAUSTED if reserved is not None and not reserved.places else None


def closed_releases(policy: Policy, slot: Slot, hats: Sequence[HatUsers], status: Status) -> list[TrackerRelease]:
    """Return the releases of a slot's HATs without a query, in the same order.

    status   of HATs with enough users
    """
    calendar = Calendar(policy)
    statuses = (
        Status.SUPPRESSED if status is not Status.INCOMPLETE and len(hat.counts) < policy.min_users else status
        for hat in hats
    )
    return [hat_release(policy, calendar, slot, hat, each) for hat, each in zip(hats, statuses, strict=True)]


def hat_users(cell: str, chunks: HatChunks) -> HatUsers:
    """Return the users of a HAT, by pseudonym, so that the same HAT gives the same floats."""
    pseudonyms, counts, sums = joined_columns(chunks.readings)
    order = np.argsort(pseudonyms)
    return HatUsers(cell, pseudonyms[order], counts[order], sums[order])


def _counted(queries: Iterator[ResidualQuery], advance: Callable[[int], None]) -> Iterator[ResidualQuery]:
    for query in queries:
        yield query
        advance(1)
