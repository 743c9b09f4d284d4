"""Final HATs and answers of files, in the order of release; `FilesPath` releases them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Final, TypeVar

from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.clock import now_ms
from hatcast.agents.progress import AddBar, no_bar
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar, Slot, closes_at, later
from hatcast.stream.ledger.day import reservations
from hatcast.stream.ledger.summary import fits
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, MeansKeys, Policy, Relation, TrackerKeys
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import Status, query_kind, release_id
from hatcast.stream.records.projections import HEAD
from hatcast.stream.release.continual import RunningSums
from hatcast.stream.release.hats import releases_of
from hatcast.stream.release.placed import Placed
from hatcast.stream.release.queries import (
    AnyRelease,
    QueryPeriod,
    QueryRelease,
    RetainedPeriod,
    answers_of,
    query_periods,
    query_periods_of,
)
from hatcast.stream.release.schedule import first_slot_ms, listed_cells, slots_between, slots_due
from hatcast.stream.release.tracker import PolicyTracker, closed_by, hat_users
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.units import DAY_MS

# The release path over files, in one process. [docs/specification/release.md, Release protocol]
#
# What a kind draws and proposes is its function in stream/release, as in a worker; the ledger decides the same. The
# steps have the worker's names (agents/release/path.py):
#
#     loaded     the retained chunks of final HATs without a record
#     drawn      the noisy estimates, not visible outside the process yet
#     committed  record, charge and users of the HAT, in one durable transaction
#     printed    the record's bytes from the file; the next run over the same files prints the same bytes
#     deleted    what no query over days of this run reads is dropped from memory

T = TypeVar("T")

MAX_BATCH: Final = 500  # releases committed together, which waits for the disk once


@dataclass(frozen=True, slots=True)
class FilesPath:
    """The path of all kinds of release of one run. Each method yields records after they are durable in the ledger."""

    folded: FoldResult
    retained: RetainChunks
    ledger: LedgerFile
    noise: Noise
    timetable: Timetable | None = None  # of a tracker's policy, as its file is now; None: it names none

    @property
    def policy(self) -> Policy:
        """Policy of the ledger."""
        return self.ledger.policy

    @property
    def calendar(self) -> Calendar:
        """Calendar of the policy."""
        return self.ledger.calendar

    def hats(self, hats: Iterable[RetainedHat]) -> Iterator[bytes]:
        """Yield the one record of each HAT. hats: in the order of release."""
        hidden = self.policy.relation is Relation.ADD_REMOVE
        for _, together in groupby(hats, attrgetter("slot" if hidden else "date")):
            yield from self._hats([*together])

    def _hats(self, hats: Sequence[RetainedHat]) -> Iterator[bytes]:
        """Yield the records of HATs of one date, under `add_remove` of one slot."""
        closed = self._closed_by(hats)

        def draw(missing: Sequence[RetainedHat]) -> Sequence[AnyRelease]:
            given = [(hat.slot, hat.cell, self.retained.chunks(hat)) for hat in missing]
            return releases_of(self.policy, self.calendar, given, self.noise, closed)

        yield from self._released(hats, draw)

    def sums(self, hats: Iterable[RetainedHat]) -> Iterator[bytes]:
        """Yield the record of each HAT of a policy with running sums, slot after slot."""
        sums = RunningSums(self.policy)

        def draw(missing: Sequence[RetainedHat]) -> Sequence[AnyRelease]:
            slot = sums.slot(missing[0].slot)
            horizon = sums.horizon(slot.date).first
            stored = self.ledger.states(horizon, [hat.cell for hat in missing])
            given = [(hat.cell, self.retained.chunks(hat)) for hat in missing]
            return sums.draw(slot, given, stored, self.noise, lost=self.has_lost(horizon))

        for _, of_slot in groupby(hats, attrgetter("slot")):
            yield from self._released([*of_slot], draw)

    def tracked(self, hats: Iterable[RetainedHat], add_bar: AddBar) -> Iterator[bytes]:
        """Yield the records of a tracker's HATs, slot after slot, each date followed by those of its settlement."""
        tracker = PolicyTracker(self.policy, self.ledger.tracker_state(), self.timetable)
        for day, of_day in groupby(hats, attrgetter("date")):
            of_date = [*of_day]
            advance = add_bar(f"releasing {day}", len(of_date))
            is_late = day <= tracker.settled
            if not is_late:
                if (first := tracker.first_state(day)) is not None:
                    self.ledger.store_tracker_state(*first)
                    tracker = PolicyTracker(self.policy, self.ledger.tracker_state(), self.timetable)
                tracker.begin_day(day, self.ledger.records_of(day).items())
            for key, of_slot in groupby(of_date, attrgetter("slot")):
                in_slot = [*of_slot]
                self._close_if_necessary(tracker, day)
                users = [hat_users(hat.cell, self.retained.chunks(hat)) for hat in in_slot]
                drawn = tracker.close_slot(self.calendar.stored_slot(key), users, self.noise)
                records = [*self._committed(drawn)]
                yield from () if is_late else records
                self._close(in_slot)
                advance(len(in_slot))
            if is_late:
                names, known = {self._name(hat) for hat in of_date}, self.ledger.records_of(day).items()
                records = [record for name, record in known if name in names or query_kind(name)]
                # In the order of the first run: by commit number.
                yield from sorted(records, key=lambda record: HEAD.decode(record).seq or 0)
            elif self.folded.is_final(self.calendar.previous_day_end(later(day, 1)) + self.policy.lateness_ms):
                self._close_if_necessary(tracker, day)
                yield from self._committed(tracker.settle(self.noise, add_bar(f"settling {day}", None)))
                self.ledger.store_tracker_state(day, tracker.end_day())

    def answers(
        self, periods: Sequence[QueryPeriod], first_ms: int, cells: Sequence[str] | None = None
    ) -> Iterator[bytes]:
        """Yield the one record of each answer, by period and cell. Days that these files do not have are missing.

        first_ms   slots that began earlier (ms UTC) are not the policy's
        cells      None: those with data on some day of the period
        """
        for period in periods:
            data = {slot.key: self.retained.stripped.get(slot.key, {}) for slot in period.slots}
            parts = {(cell, key): [chunk] for key, chunks in data.items() for cell, chunk in chunks.items()}
            with_data = {key for key, chunks in data.items() if chunks}
            retained = RetainedPeriod(with_data, parts, first_ms, lambda slot: self.has_lost(slot.date))
            draw = partial(self._answers, period, retained)
            some = sorted({cell for cell, _ in parts}) if cells is None else cells
            yield from self._records(some, period.release_id, draw)

    def _answers(self, period: QueryPeriod, retained: RetainedPeriod, cells: Sequence[str]) -> list[QueryRelease]:
        return answers_of(period, self.calendar, cells, retained, self.noise)

    def has_lost(self, date: str) -> bool:
        """Return True if records of a local date, or of a later one, were deleted unread."""
        complete_from = self.folded.complete_from
        return complete_from is not None and self.calendar.day_start(date) < complete_from

    def _closed_by(self, hats: Sequence[RetainedHat]) -> Status | None:
        """Return the status of HATs that nothing is drawn for.

        Under `add_remove` the budget has room for a slot as a whole, or not, as in agents/release/in_step.py; else each
        commit checks its own charge.
        """
        date = hats[0].date
        if self.has_lost(date):
            return Status.INCOMPLETE
        if self.policy.relation is Relation.REPLACE:
            return None
        missing = sum(self.ledger.find(self._name(hat)) is None for hat in hats)
        room = fits(self.ledger.summary(date), self.policy, missing, reservations(self.policy, date))
        return None if room else Status.BUDGET_EXHAUSTED

    def _released(
        self, hats: Sequence[RetainedHat], draw: Callable[[Sequence[RetainedHat]], Sequence[AnyRelease]]
    ) -> Iterator[bytes]:
        yield from self._records(hats, self._name, draw)
        self._close(hats)

    def _records(
        self, items: Sequence[T], name: Callable[[T], str], draw: Callable[[Sequence[T]], Sequence[AnyRelease]]
    ) -> Iterator[bytes]:
        """Yield the one record of each item, in order; draw and commit those that are missing."""
        rest = iter(items)
        while batch := [*islice(rest, MAX_BATCH)]:
            records = {name(item): self.ledger.find(name(item)) for item in batch}
            if missing := [item for item in batch if records[name(item)] is None]:
                records |= self._commit(draw(missing))
            yield from (record for record in records.values() if record is not None)

    def _committed(self, drawn: Sequence[AnyRelease]) -> Iterator[bytes]:
        for at in range(0, len(drawn), MAX_BATCH):
            yield from self._commit(drawn[at : at + MAX_BATCH]).values()

    def _commit(self, releases: Sequence[AnyRelease]) -> dict[str, bytes]:
        """Commit releases with their charges, and of HATs the users; a stored record wins."""
        key = self.ledger.users.pseudonyms.key
        hats = [each for each in releases if isinstance(each, Placed) and each.is_hat]
        entered = {
            each.release_id: self.retained.entered(RetainedHat(each.slot.end_ms, each.slot.key, each.cell), key)
            for each in hats
        }
        return self.ledger.commit(releases, now_ms(), entered)

    def _close(self, hats: Sequence[RetainedHat]) -> None:
        for hat in hats:
            self.retained.close(hat, strips=is_queried(self.policy, hat.date))

    def _name(self, hat: RetainedHat) -> str:
        return release_id(self.policy.name, hat.slot, hat.cell)

    def _close_if_necessary(self, tracker: PolicyTracker, date: str) -> None:
        """Stop the queries of a date that lacks records, or room in the day's limit."""
        if tracker.is_at(date):
            tracker.close_day(closed_by(self.ledger.summary(date), lost=self.has_lost(date)))


_MAX_DAYS: Final = 366  # without --days: one record with a wrong time must not release decades

Days = tuple[date, date]  # the first and the last local date, both included


def release_final(path: FilesPath, days: Days | None = None, add_bar: AddBar = no_bar) -> Iterator[bytes]:
    """Yield the one record of each final HAT, by slot, then cell, after it is durable in the ledger.

    Under `add_remove` these are each listed cell of each slot of `days`; None: from the slot of the first arrival to
    that of the last. Raises HatcastError if these are more than `_MAX_DAYS` apart. A day on which a dump lacks deleted
    records is released as incomplete; days of the next policy are not released.

    An existing record stays, whatever these files add.

    Also yields the one record of each due answer to a query over days: after all HATs, or under `add_remove` after the
    HATs of its closing slot. Calls `add_bar` for what it begins: of a tracker each day's HATs and its settlement.
    """
    folded, retained, policy, until = path.folded, path.retained, path.policy, path.ledger.until
    if policy.relation is Relation.ADD_REMOVE:  # most HATs have no readings
        yield from _shown(_in_step(path, _slots(folded, policy, days), until), add_bar("releasing", None))
        return
    is_due = _reached(folded, retained, policy)
    final = (hat for hat in retained.hats() if folded.is_final(hat.end_ms + policy.lateness_ms))
    hats = [hat for hat in final if until is None or hat.slot < until]
    match policy.method:
        case TrackerKeys():
            yield from path.tracked(hats, add_bar)
        case ContinualKeys():
            yield from _shown(path.sums(hats), add_bar("releasing", len(hats)))
        case MeansKeys() | HybridKeys():
            yield from _shown(path.hats(hats), add_bar("releasing", len(hats)))
    periods = query_periods(policy, path.calendar, sorted(retained.stripped))
    yield from path.answers([each for each in periods if _is_ours(each, until) and is_due(each.closing)], 0)


def _shown(records: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for record in records:
        yield record
        advance(1)


def _in_step(path: FilesPath, slots: Sequence[Slot], until: str | None) -> Iterator[bytes]:
    """Yield, under `add_remove`, the records of each slot's listed HATs, then of the periods that close with it."""
    cells = listed_cells(path.policy)
    for slot in slots:
        if not path.folded.is_final(closes_at(slot, path.policy)) or (until is not None and slot.key >= until):
            continue
        yield from path.hats(RetainedHat(slot.end_ms, slot.key, cell) for cell in cells)
        found = query_periods_of(path.policy, path.calendar, slot.date, slot.name)
        closing = [each for each in found if each.closing == slot and _is_ours(each, until)]
        yield from path.answers(closing, slots[0].start_ms, cells)


def _is_ours(period: QueryPeriod, until: str | None) -> bool:
    """Return False for a period with days of the next policy: no policy answers it."""
    return until is None or period.closing.date < until


def count_changed(folded: FoldResult, retained: RetainChunks, ledger: LedgerFile) -> int:
    """Count the HATs of these files whose record, of an earlier run, was made from other readings.

    The count is public under `replace` only. Call this before `release_final`, which drops the contributions.
    """
    key, changed = ledger.users.pseudonyms.key, set(folded.late_hats)
    for hat in retained.hats():
        digest = ledger.users.digest(hat.date, hat.place)
        if digest is not None and digest != retained.entered(hat, key).digest:
            changed.add((hat.slot, hat.cell))
    return len(changed)


def _reached(folded: FoldResult, retained: RetainChunks, policy: Policy) -> Callable[[Slot], bool]:
    """Return a function that tests whether a slot is final, even without data.

    As after replay's last heartbeat, a recording ends with its last arrival or the close of its last HAT, whichever is
    later. A period that closes after that may have days that are still to come.
    """
    last_ms = max((hat.end_ms + policy.lateness_ms for hat in retained.hats()), default=0)
    end_ms = max(last_ms, folded.last_ms or 0)
    return lambda slot: closes_at(slot, policy) <= end_ms and folded.is_final(closes_at(slot, policy))


def _slots(folded: FoldResult, policy: Policy, days: Days | None) -> list[Slot]:
    """Return the policy's slots under `add_remove`, as far as this run knows them, in the order of release."""
    calendar = Calendar(policy)
    if days is not None:
        return list(slots_between(calendar, *days))
    if folded.first_ms is None or folded.last_ms is None:
        return []
    if folded.last_ms - folded.first_ms > _MAX_DAYS * DAY_MS:
        raise HatcastError(
            f"the first and the last arrival are more than {_MAX_DAYS} days apart, and every listed cell of every"
            " hour between them would be released: name the first and the last date as `days`"
        )
    until = closes_at(calendar.slot_at(folded.last_ms), policy)
    return list(slots_due(calendar, policy, first_slot_ms(calendar, folded.first_ms), 0, until))
