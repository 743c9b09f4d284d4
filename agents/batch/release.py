"""Releases into a ledger file: the protocol of agents/release.py in one process.    [design 3, I1 and I2; 4, Release]

The steps, by the worker's names:

    loaded     the kept chunks of final HATs without a record
    drawn      the estimate, with noise; seen by nobody yet
    committed  record + charge in the file, in one durable step
    printed    the bytes as they stand in the file; a next run prints the same ones
"""

from collections.abc import Iterator
from datetime import date
from functools import cache
from itertools import islice
from typing import Final

from agents.batch.fold import Folded
from agents.batch.keep import KeepChunks, KeptHat
from agents.clock import now_ms
from agents.ledger_file import LedgerFile
from stream.clock import closes_at
from stream.errors import Refusal
from stream.hats import Calendar
from stream.mechanisms import Noise
from stream.policy import Policy, Relation
from stream.release import Release, incomplete_of, release_id, release_of
from stream.schedule import first_slot_ms, listed_cells, slots_between, slots_due
from stream.units import DAY_MS

_HATS: Final = 500  # of one commit: the disk is waited for once
_MOST_DAYS: Final = 366  # without being told: one record with a broken clock must not release decades


Days = tuple[date, date]
"""The first and the last local date, both included."""


def release_final(
    folded: Folded, kept: KeepChunks, ledger: LedgerFile, noise: Noise, days: Days | None = None
) -> Iterator[bytes]:
    """The one record of each final HAT, by slot, then cell; each is durable in the ledger before it is given out.

    Under `add_remove` that is each listed cell of each slot of `days`; None: from the slot of the first arrival to that
    of the last one. Raises Refusal where these are years apart. What a dump's days have lost makes them incomplete; the
    days of a policy that follows are left to it.
    """
    policy = ledger.policy
    calendar = Calendar(policy)
    if policy.relation is Relation.ADD_REMOVE:
        hats = _listed(folded, policy, calendar, days)
    else:
        hats = (hat for hat in kept.hats() if folded.is_final(hat.end_ms + policy.lateness_ms))
    until = ledger.until
    if until is not None:
        hats = (hat for hat in hats if hat.slot < until)

    @cache
    def has_lost(day: str) -> bool:
        return folded.complete_from is not None and calendar.days_start(day) < folded.complete_from

    def draw(hat: KeptHat) -> Release:
        if has_lost(hat.slot.partition("/")[0]):
            return incomplete_of(policy, calendar, hat.slot, hat.cell)
        return release_of(policy, calendar, hat.slot, hat.cell, kept.chunks(hat), noise)

    while due := list(islice(hats, _HATS)):
        names = [release_id(policy, hat.slot, hat.cell) for hat in due]
        records = {name: ledger.find(name) for name in names}
        drawn = [draw(hat) for name, hat in zip(names, due, strict=True) if records[name] is None]
        records |= ledger.commit(drawn, now_ms())
        yield from (record for record in records.values() if record is not None)


def _listed(folded: Folded, policy: Policy, calendar: Calendar, days: Days | None) -> Iterator[KeptHat]:
    if days is not None:
        slots = slots_between(calendar, *days)
    elif folded.first_ms is None or folded.last_ms is None:
        return
    else:
        if folded.last_ms - folded.first_ms > _MOST_DAYS * DAY_MS:
            raise Refusal(
                f"the first and the last arrival are more than {_MOST_DAYS} days apart, and every listed cell of every"
                " hour between would be released: name the days that are meant with --days FIRST,LAST"
            )
        until = closes_at(calendar.slot_at(folded.last_ms), policy)
        slots = slots_due(calendar, policy, first_slot_ms(calendar, folded.first_ms), 0, until)
    cells = listed_cells(policy)
    for slot in slots:
        if folded.is_final(closes_at(slot, policy)):
            for cell in cells:
                yield KeptHat(slot.end_ms, slot.key, cell)
