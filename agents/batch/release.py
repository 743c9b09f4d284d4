"""Release HATs into a ledger file, in one process. [docs/specification/release.md, Release protocol]

The steps have the worker's names:

    loaded     the retained chunks of final HATs without a record
    drawn      the noisy estimate, not visible outside the process yet
    committed  record, charge and users of the HAT, in one durable transaction
    printed    the record's bytes from the file; the next run prints the same bytes
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from hatcast.agents.batch.continual import ContinualRun
from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.queries import Answers
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.batch.tracker import TrackedRun
from hatcast.agents.clock import now_ms
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.ledger.reservations import reservations
from hatcast.stream.ledger.summary import fits
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.hats import Release, exhausted_of, incomplete_of, release_of
from hatcast.stream.release.schedule import first_slot_ms, listed_cells, slots_between, slots_due
from hatcast.stream.units import DAY_MS

_HATS: Final = 500  # per commit, which waits for the disk once
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
    policy, until, has_lost = ledger.policy, ledger.until, _losses(folded, ledger.policy)
    calendar = Calendar(policy)
    hidden = policy.relation is Relation.ADD_REMOVE
    slots = _slots(folded, policy, days) if hidden else []

    def draw(hat: RetainedHat, *, room: bool) -> Release:
        if has_lost(hat.date):
            return incomplete_of(policy, calendar, hat.slot, hat.cell)
        if not room:
            return exhausted_of(policy, calendar, hat.slot, hat.cell)
        return release_of(policy, calendar, hat.slot, hat.cell, retained.chunks(hat), noise)

    first_ms = min((slot.start_ms for slot in slots), default=None)
    answers = Answers(calendar, retained, ledger, noise, has_lost, first_ms, until)
    is_due = _reached(folded, retained, policy)
    hats = _listed(folded, policy, slots) if hidden else _with_data(folded, retained, policy)
    if policy.tracker is not None or policy.continual is not None:
        ours = (hat for hat in hats if until is None or hat.slot < until)
        tracked = TrackedRun(folded, retained, ledger, noise, has_lost)
        run = ContinualRun(retained, ledger, noise, has_lost) if policy.tracker is None else tracked
        yield from run.records(ours)
        yield from answers.due(is_due)
        return
    for due in _batches((hat for hat in hats if until is None or hat.slot < until), policy):
        records = {name: ledger.find(name) for name in (_name(policy, hat) for hat in due)}
        missing = [hat for hat, record in zip(due, records.values(), strict=True) if record is None]
        room = _has_room(ledger, missing)
        for at in range(0, len(missing), _HATS):
            batch = missing[at : at + _HATS]
            entered = {_name(policy, hat): retained.entered(hat, ledger.users.pseudonyms.key) for hat in batch}
            records |= ledger.commit([draw(hat, room=room) for hat in batch], now_ms(), entered)
        for hat in due:
            retained.close(hat, strips=is_queried(policy, hat.date))
        yield from (record for record in records.values() if record is not None)
        if hidden:
            yield from answers.closing(due[0].slot)
    if not hidden:
        yield from answers.due(is_due)


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


def _name(policy: Policy, hat: RetainedHat) -> str:
    return release_id(policy.name, hat.slot, hat.cell)


def _losses(folded: FoldResult, policy: Policy) -> Callable[[str], bool]:
    """Return a function that tests whether a local date lacks deleted records."""
    calendar, complete_from = Calendar(policy), folded.complete_from

    @cache
    def has_lost(date: str) -> bool:
        return complete_from is not None and calendar.day_start(date) < complete_from

    return has_lost


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


def _batches(hats: Iterator[RetainedHat], policy: Policy) -> Iterator[list[RetainedHat]]:
    """Group the HATs that are released together: by slot under `add_remove`, else up to `_HATS`."""
    if policy.relation is Relation.ADD_REMOVE:
        for _, slot in groupby(hats, attrgetter("slot")):
            yield list(slot)
        return
    while batch := list(islice(hats, _HATS)):
        yield batch


def _has_room(ledger: LedgerFile, missing: Sequence[RetainedHat]) -> bool:
    """Return whether the budget allows a slot as a whole, under `add_remove`; else each commit checks its own charge.

    As in agents/release/slots.py.
    """
    if not missing or ledger.policy.relation is Relation.REPLACE:
        return True
    date = missing[0].date
    return fits(ledger.summary(date), ledger.policy, len(missing), reservations(ledger.policy, date))


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


def _listed(folded: FoldResult, policy: Policy, slots: Sequence[Slot]) -> Iterator[RetainedHat]:
    cells = listed_cells(policy)
    for slot in slots:
        if folded.is_final(closes_at(slot, policy)):
            for cell in cells:
                yield RetainedHat(slot.end_ms, slot.key, cell)
