"""Answer queries over days into a ledger file once their days are over. [docs/specification/estimators.md, section 7]

They read the retained contributions of the HATs that this run has released, or would have released if they had no
record yet. Days of a period that are not in the run's files are missing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.retention import RetainChunks
from hatcast.agents.clock import now_ms
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Relation
from hatcast.stream.queries import RetainedDay
from hatcast.stream.release.queries import QueryPeriod, QueryRelease, query_periods, query_periods_of, query_release_of
from hatcast.stream.release.schedule import listed_cells

_ANSWERS: Final = 500  # per commit


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one run, and their inputs.

    retained   retained contributions of closed HATs
    has_lost   whether records of a local date were deleted
    first_ms   start (ms UTC) of the policy's first slot, under `add_remove`; None if there is none
    until      first local date of the next policy; None if all days are ours
    """

    calendar: Calendar
    retained: RetainChunks
    ledger: LedgerFile
    noise: Noise
    has_lost: Callable[[str], bool]
    first_ms: int | None
    until: str | None

    def closing(self, slot: str) -> Iterator[bytes]:
        """Yield, under `add_remove`, the answers of periods that close with a slot (`date/slot`), by query and cell."""
        policy = self.ledger.policy
        found = query_periods_of(policy, self.calendar, *slot.split("/"))
        periods = [period for period in found if period.closing.key == slot and self._is_ours(period)]
        return self._records((period, cell) for period in periods for cell in listed_cells(policy))

    def due(self, is_due: Callable[[Slot], bool]) -> Iterator[bytes]:
        """Yield, under `replace`, the answers of periods that have data on some day, by closing slot, query and cell.

        is_due   whether a closing slot is final
        """
        found = query_periods(self.ledger.policy, self.calendar, self.retained.stripped_slots())
        periods = [period for period in found if self._is_ours(period) and is_due(period.closing)]
        return self._records((period, cell) for period in periods for cell in self._cells(period))

    def _records(self, answers: Iterator[tuple[QueryPeriod, str]]) -> Iterator[bytes]:
        """Yield each answer's one record, after it is durable in the ledger."""
        while batch := list(islice(answers, _ANSWERS)):
            records = {period.release_id(cell): self.ledger.find(period.release_id(cell)) for period, cell in batch}
            missing = [self._draw(period, cell) for period, cell in batch if records[period.release_id(cell)] is None]
            if missing:
                records |= self.ledger.commit(missing, now_ms())
            yield from (record for record in records.values() if record is not None)

    def _draw(self, period: QueryPeriod, cell: str) -> QueryRelease:
        slots = [slot for slot in period.slots if self._is_complete(slot)]
        chunks = {slot.date: self.retained.stripped(slot.key).get(cell, b"") for slot in slots}
        days = {date: RetainedDay.of([each]) for date, each in chunks.items()}
        return query_release_of(period, self.calendar, cell, days, self.noise)

    def _is_complete(self, slot: Slot) -> bool:
        """Return whether a slot has all its data; an empty slot under `replace`, where counts are public, has not."""
        if self.ledger.policy.relation is Relation.ADD_REMOVE:
            begun = self.first_ms is not None and slot.start_ms >= self.first_ms
        else:
            begun = bool(self.retained.stripped(slot.key))
        return begun and not self.has_lost(slot.date)

    def _is_ours(self, period: QueryPeriod) -> bool:
        """Return False for a period with days of the next policy: no policy answers it."""
        return self.until is None or period.closing.date < self.until

    def _cells(self, period: QueryPeriod) -> list[str]:
        return sorted({cell for slot in period.slots for cell in self.retained.stripped(slot.key)})
