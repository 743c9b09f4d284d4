"""Releases into a ledger file: the protocol of agents/release in one process.    [design 3, I1 and I2; 4, Release]

The steps, by the worker's names:

    loaded     the kept chunks of final HATs without a record
    drawn      the estimate, with noise; seen by nobody yet
    committed  record + charge + who entered the HAT in the file, in one durable step
    printed    the bytes as they stand in the file; a next run prints the same ones
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from hatcast.agents.batch.fold import Folded
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.queries import Answers
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.clock import now_ms
from hatcast.stream.accounting.ledger import fits
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.queries import is_read, reservations
from hatcast.stream.release.hats import Release, exhausted_of, incomplete_of, release_id, release_of
from hatcast.stream.release.schedule import first_slot_ms, listed_cells, slots_between, slots_due
from hatcast.stream.units import DAY_MS

_HATS: Final = 500  # of one commit: the disk is waited for once
_MOST_DAYS: Final = 366  # without being told: one record with a broken clock must not release decades


Days = tuple[date, date]
"""The first and the last local date, both included."""


def release_final(
    folded: Folded, kept: RetainChunks, ledger: LedgerFile, noise: Noise, days: Days | None = None
) -> Iterator[bytes]:
    """The one record of each final HAT, by slot, then cell; each is durable in the ledger before it is given out.

    Under `add_remove` that is each listed cell of each slot of `days`; None: from the slot of the first arrival to that
    of the last one. Raises HatcastError where these are years apart. What a dump's days have lost makes them incomplete; the
    days of a policy that follows are left to it.

    What has a record keeps it, whatever these files add. Raises HatcastError where it is not known who entered the HATs that
    an earlier run has released of a date.

    Then the one record of each answer to a query over days that is due: after all HATs, under `add_remove` after those
    of the slot that it closes with.
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
        return release_of(policy, calendar, hat.slot, hat.cell, kept.chunks(hat), noise)

    dates = {slot.date for slot in slots} if hidden else {hat.date for hat in kept.hats()}
    ledger.users.refuse_unknown(date for date in dates if until is None or date < until)
    first_ms = min((slot.start_ms for slot in slots), default=None)
    answers, is_due = Answers(calendar, kept, ledger, noise, has_lost, first_ms, until), _reached(folded, kept, policy)
    hats = _listed(folded, policy, slots) if hidden else _with_data(folded, kept, policy)
    for due in _lots((hat for hat in hats if until is None or hat.slot < until), policy):
        records = {name: ledger.find(name) for name in (_name(policy, hat) for hat in due)}
        missing = [hat for hat, record in zip(due, records.values(), strict=True) if record is None]
        room = _has_room(ledger, missing)
        for at in range(0, len(missing), _HATS):
            lot = missing[at : at + _HATS]
            entered = {_name(policy, hat): kept.entered(hat, ledger.users.pseudonyms.key) for hat in lot}
            records |= ledger.commit([draw(hat, room=room) for hat in lot], now_ms(), entered)
        for hat in due:
            kept.close(hat, strips=is_read(policy, hat.date))
        yield from (record for record in records.values() if record is not None)
        if hidden:
            yield from answers.closing(due[0].slot)
    if not hidden:
        yield from answers.due(is_due)


def changed_since(folded: Folded, kept: RetainChunks, ledger: LedgerFile) -> int:
    """Return how many HATs of these files have a record of an earlier run that was made from other readings.

    A count, so public under `replace` only. Call it before `release_final`, which forgets what was read.
    """
    key, changed = ledger.users.pseudonyms.key, set(folded.too_late)
    for hat in kept.hats():
        digest = ledger.users.digest(hat.date, hat.place)
        if digest is not None and digest != kept.entered(hat, key).digest:
            changed.add((hat.slot, hat.cell))
    return len(changed)


def _name(policy: Policy, hat: RetainedHat) -> str:
    return release_id(policy, hat.slot, hat.cell)


def _losses(folded: Folded, policy: Policy) -> Callable[[str], bool]:
    """Whether records of a local date were deleted."""
    calendar, complete_from = Calendar(policy), folded.complete_from

    @cache
    def has_lost(date: str) -> bool:
        return complete_from is not None and calendar.days_start(date) < complete_from

    return has_lost


def _with_data(folded: Folded, kept: RetainChunks, policy: Policy) -> Iterator[RetainedHat]:
    return (hat for hat in kept.hats() if folded.is_final(hat.end_ms + policy.lateness_ms))


def _reached(folded: Folded, kept: RetainChunks, policy: Policy) -> Callable[[Slot], bool]:
    """Whether a slot without data is final too: a recording ends with its last arrival, or closes its last HAT.

    As by replay's last tick. What closes later may have days that are still to come.
    """
    last_ms = max((hat.end_ms + policy.lateness_ms for hat in kept.hats()), default=0)
    end_ms = max(last_ms, folded.last_ms or 0)
    return lambda slot: closes_at(slot, policy) <= end_ms and folded.is_final(closes_at(slot, policy))


def _lots(hats: Iterator[RetainedHat], policy: Policy) -> Iterator[list[RetainedHat]]:
    """What is released together: a slot under `add_remove`, else whatever comes."""
    if policy.relation is Relation.ADD_REMOVE:
        for _, slot in groupby(hats, attrgetter("slot")):
            yield list(slot)
        return
    while lot := list(islice(hats, _HATS)):
        yield lot


def _has_room(ledger: LedgerFile, missing: Sequence[RetainedHat]) -> bool:
    """As in agents/release/slots.py: under `add_remove` a slot fits as a whole or not at all. Else each commit asks."""
    if not missing or ledger.policy.relation is Relation.REPLACE:
        return True
    date = missing[0].date
    return fits(ledger.summary(date), ledger.policy, len(missing), reservations(ledger.policy, date))


def _slots(folded: Folded, policy: Policy, days: Days | None) -> list[Slot]:
    """Under `add_remove`: the policy's slots, as far as this run knows, in the order of release."""
    calendar = Calendar(policy)
    if days is not None:
        return list(slots_between(calendar, *days))
    if folded.first_ms is None or folded.last_ms is None:
        return []
    if folded.last_ms - folded.first_ms > _MOST_DAYS * DAY_MS:
        raise HatcastError(
            f"the first and the last arrival are more than {_MOST_DAYS} days apart, and every listed cell of every"
            " hour between would be released: name the days that are meant with --days FIRST,LAST"
        )
    until = closes_at(calendar.slot_at(folded.last_ms), policy)
    return list(slots_due(calendar, policy, first_slot_ms(calendar, folded.first_ms), 0, until))


def _listed(folded: Folded, policy: Policy, slots: Sequence[Slot]) -> Iterator[RetainedHat]:
    cells = listed_cells(policy)
    for slot in slots:
        if folded.is_final(closes_at(slot, policy)):
            for cell in cells:
                yield RetainedHat(slot.end_ms, slot.key, cell)
