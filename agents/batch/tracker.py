"""Release a tracker policy's HATs into a ledger file: slot after slot, then the settlement of each complete date.

The same pure steps as a worker's, agents/release/tracker.py.    [docs/specification/tracker.md, section 4]
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date as local_date
from datetime import timedelta
from itertools import groupby
from typing import Final

import msgspec

from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.ledger_users import NO_USERS, Entered
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.clock import now_ms
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.mechanisms import Noise
from hatcast.stream.queries import TRACKER_QUERIES, is_queried
from hatcast.stream.records.fields import Status
from hatcast.stream.release.tracker import PolicyTracker, closed_releases, hat_users
from hatcast.stream.release.tracker_records import TrackerRelease

_COMMITTED: Final = 500  # releases of one transaction, which waits for the disk once


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """One run over files.

    has_lost   whether records of a local date were deleted
    """

    folded: FoldResult
    retained: RetainChunks
    ledger: LedgerFile
    noise: Noise
    has_lost: Callable[[str], bool]

    def records(self, hats: Iterator[RetainedHat]) -> Iterator[bytes]:
        """Yield the records of final HATs, by slot, each date followed by those of its settlement.

        Each is durable in the ledger before. hats: in the order of release.
        """
        tracker = PolicyTracker(self.ledger.policy, self.ledger.tracker_state())
        for date, of_date in groupby(hats, lambda hat: hat.date):
            yield from self._of_date(tracker, date, list(of_date))

    def _of_date(self, tracker: PolicyTracker, date: str, hats: Sequence[RetainedHat]) -> Iterator[bytes]:
        is_late, stored = date <= tracker.settled, self.ledger.records_of(date)
        if not is_late:
            tracker.begin_day(date, stored.items())
        for key, of_slot in groupby(hats, lambda hat: hat.slot):
            in_slot = list(of_slot)
            users = [hat_users(hat.cell, self.retained.chunks(hat)) for hat in in_slot]
            slot = Calendar(self.ledger.policy).stored_slot(key)
            if is_late:
                drawn = closed_releases(self.ledger.policy, slot, users, Status.DEFERRED)
                drawn.sort(key=lambda each: _number(stored.get(each.release_id)))
            else:
                self._close_if_necessary(tracker, date)
                drawn = tracker.close_slot(slot, users, self.noise)
            key_of_users = self.ledger.users.pseudonyms.key
            entered = {hat.cell: self.retained.entered(hat, key_of_users) for hat in in_slot}
            yield from self._committed(drawn, entered)
            for hat in in_slot:
                self.retained.close(hat, strips=is_queried(self.ledger.policy, date))
        if is_late:
            yield from self.ledger.records_of(date, settlement=True).values()
        elif self._is_over(date):
            self._close_if_necessary(tracker, date)
            yield from self._committed(tracker.settle(self.noise), {})
            self.ledger.store_tracker_state(date, tracker.end_day())

    def _committed(self, drawn: Sequence[TrackerRelease], entered: dict[str, Entered]) -> Iterator[bytes]:
        for at in range(0, len(drawn), _COMMITTED):
            some = drawn[at : at + _COMMITTED]
            users = {each.release_id: entered.get(each.cell, NO_USERS) for each in some}
            yield from self.ledger.commit(some, now_ms(), users).values()

    def _close_if_necessary(self, tracker: PolicyTracker, date: str) -> None:
        if self.has_lost(date):
            tracker.close_day(Status.INCOMPLETE)
        reserved = self.ledger.summary(date).queries.get(TRACKER_QUERIES)
        if reserved is not None and not reserved.places:
            tracker.close_day(Status.BUDGET_EXHAUSTED)

    def _is_over(self, date: str) -> bool:
        following = (local_date.fromisoformat(date) + timedelta(days=1)).isoformat()
        policy = self.ledger.policy
        return self.folded.is_final(Calendar(policy).previous_day_end(following) + policy.lateness_ms)


class _Numbered(msgspec.Struct):
    seq: int


def _number(record: bytes | None) -> float:
    """Return a record's commit number, by which a later run prints records in the same order; new records come last."""
    return math.inf if record is None else msgspec.json.decode(record, type=_Numbered).seq
