"""Queries over days, answered into a ledger file once their days are over.    [estimators.md, section 7]

They read what is kept of the HATs that this run has released, or would have if they had no record yet: days of a period
that are not in the files of the run are missing.
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
from hatcast.stream.release.queries import QueryPeriod, QueryRelease, asked_about, asked_in, query_release_of
from hatcast.stream.release.schedule import listed_cells

_ANSWERS: Final = 500  # of one commit


@dataclass(frozen=True, slots=True)
class Answers:
    """What answers are made from.

    kept      of the HATs that are closed
    has_lost  whether records of a local date were deleted
    first_ms  the start (ms UTC) of the policy's first slot, under `add_remove`; None: there is none
    until     the local date from which another policy releases; None: all days are ours
    """

    calendar: Calendar
    kept: RetainChunks
    ledger: LedgerFile
    noise: Noise
    has_lost: Callable[[str], bool]
    first_ms: int | None
    until: str | None

    def closing(self, slot: str) -> Iterator[bytes]:
        """Under `add_remove`: the records of what closes with a slot (`date/slot`), by query, then listed cell."""
        policy = self.ledger.policy
        asked = [one for one in asked_in(policy, self.calendar, *slot.split("/")) if one.closing.key == slot]
        return self._records((one, cell) for one in asked if self._is_ours(one) for cell in listed_cells(policy))

    def due(self, is_due: Callable[[Slot], bool]) -> Iterator[bytes]:
        """Under `replace`: the records of what has data on some day, by closing slot, query, and cell.

        is_due   whether a closing slot is final
        """
        found = asked_about(self.ledger.policy, self.calendar, self.kept.stripped_slots())
        asked = [one for one in found if self._is_ours(one) and is_due(one.closing)]
        return self._records((one, cell) for one in asked for cell in self._cells(one))

    def _records(self, asked: Iterator[tuple[QueryPeriod, str]]) -> Iterator[bytes]:
        """Each answer's one record, durable in the ledger before it is given out."""
        while lot := list(islice(asked, _ANSWERS)):
            found = {one.release_id(cell): self.ledger.find(one.release_id(cell)) for one, cell in lot}
            missing = [self._draw(one, cell) for one, cell in lot if found[one.release_id(cell)] is None]
            if missing:
                found |= self.ledger.commit(missing, now_ms())
            yield from (record for record in found.values() if record is not None)

    def _draw(self, asked: QueryPeriod, cell: str) -> QueryRelease:
        kept = {slot.date: self.kept.stripped(slot.key).get(cell, b"") for slot in asked.slots if self._is_there(slot)}
        days = {date: RetainedDay.of([chunks]) for date, chunks in kept.items()}
        return query_release_of(asked, self.calendar, cell, days, self.noise)

    def _is_there(self, slot: Slot) -> bool:
        """Whether a slot's data is all there. Under `replace` a slot without any is missing: counts are public."""
        if self.ledger.policy.relation is Relation.ADD_REMOVE:
            begun = self.first_ms is not None and slot.start_ms >= self.first_ms
        else:
            begun = bool(self.kept.stripped(slot.key))
        return begun and not self.has_lost(slot.date)

    def _is_ours(self, asked: QueryPeriod) -> bool:
        """A period that another policy's days are in is nobody's."""
        return self.until is None or asked.closing.date < self.until

    def _cells(self, asked: QueryPeriod) -> list[str]:
        return sorted({cell for slot in asked.slots for cell in self.kept.stripped(slot.key)})
