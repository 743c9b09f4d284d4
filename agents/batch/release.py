"""Final HATs and answers of files, in the order of release; agents/batch/files.py releases them."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final

from hatcast.agents.batch.files import FilesPath
from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.release.queries import QueryPeriod, query_periods, query_periods_of
from hatcast.stream.release.schedule import first_slot_ms, listed_cells, slots_between, slots_due
from hatcast.stream.units import DAY_MS

_MAX_DAYS: Final = 366  # without --days: one record with a wrong time must not release decades


Days = tuple[date, date]
"""The first and the last local date, both included."""


def release_final(
    folded: FoldResult, retained: RetainChunks, ledger: LedgerFile, noise: Noise, days: Days | None = None
) -> Iterator[bytes]:
    """Yield the one record of each final HAT, by slot, then cell, after it is durable in the ledger.

    Under `add_remove` these are each listed cell of each slot of `days`; None: from the slot of the first arrival to
    that of the last. Raises HatcastError if these are more than `_MAX_DAYS` apart. A day on which a dump lacks deleted
    records is released as incomplete; days of the next policy are not released.

    An existing record stays, whatever these files add.

    Also yields the one record of each due answer to a query over days: after all HATs, or under `add_remove` after the
    HATs of its closing slot.
    """
    policy, until, path = ledger.policy, ledger.until, FilesPath(folded, retained, ledger, noise)
    if policy.relation is Relation.ADD_REMOVE:
        yield from _in_step(path, _slots(folded, policy, days), until)
        return
    is_due = _reached(folded, retained, policy)
    hats = [hat for hat in _with_data(folded, retained, policy) if until is None or hat.slot < until]
    if policy.tracker is not None:
        yield from path.tracked(hats)
    elif policy.continual is not None:
        yield from path.sums(hats)
    else:
        yield from path.hats(hats)
    periods = query_periods(policy, path.calendar, retained.stripped_slots())
    yield from path.answers([each for each in periods if _is_ours(each, until) and is_due(each.closing)], 0)


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


def _with_data(folded: FoldResult, retained: RetainChunks, policy: Policy) -> Iterator[RetainedHat]:
    return (hat for hat in retained.hats() if folded.is_final(hat.end_ms + policy.lateness_ms))


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
