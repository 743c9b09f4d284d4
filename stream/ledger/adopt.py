"""Adopt published records: consecutive ones of an output partition, with their charges and reservations.

A store may go back in time: a lost fsync, a failover, a restored file. A release that is missing then may be on an
output topic, and drawing it again would publish a second value. So one apply stores what a batch contains and the
position up to which the ledger has every record; whatever removes a record moves that position back too, or replaces
the token of the recovery.    [docs/proofs.md, "One ledger"; decisions/0004]
"""

from collections.abc import Collection, Mapping, Sequence

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import AdoptionBatch, Position, Published
from hatcast.stream.ledger.book import Book, lower_total_limit
from hatcast.stream.ledger.progress import restore_marks
from hatcast.stream.ledger.recovery import RecoveryCheck, position_of, require
from hatcast.stream.ledger.rejections import AlreadyAdopted, RecordsMissing
from hatcast.stream.ledger.sums import INCOMPLETE, close_horizon
from hatcast.stream.ledger.transitions import NextPolicy, restore_next_policy
from hatcast.stream.ledger.view import Decision, Draft, View, Wanted, merged, number_of
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import nano_ceil, nano_floor

_Group = list[tuple[int, Published]]  # records of one policy and date, each with its offset


def adopt_rows(batch: AdoptionBatch, check: RecoveryCheck, missing: Collection[str]) -> Wanted:
    """Return what `adopt` reads at least."""
    groups = _grouped(batch.records)
    wanted: Wanted = {
        rows.RECOVERY: {check.field},
        rows.ADOPTED: {batch.partition.field},
        rows.OLDEST: {_oldest(batch, *day) for day in groups.keys() | batch.days.keys()},
        rows.SEALED: {name for name, _ in groups.keys() | batch.days.keys()},
    }
    for (name, date), records in groups.items():
        ids = [record.release_id for _, record in records]
        new = [record for _, record in records if record.release_id in missing]
        of_date: dict[str, Collection[str] | None] = {
            rows.releases(date, name): {*ids, rows.COUNT},
            rows.published(date, name): ids,
            rows.costs(date, name): {each.place for each in new},
            rows.horizons(name): {f"closed:{each.horizon}" for each in new if each.horizon},
        }
        wanted = merged(wanted, of_date)
    for name, date in {*groups, *((q.policy, day) for q in batch.answered for day in q.period.dates)} | {
        (budget.policy, budget.date) for budget in batch.budgets
    }:
        wanted = merged(wanted, {rows.NONCES: {date}, rows.ledger(date): None, rows.levels(date, name): None})
    for budget in batch.budgets:
        replaced = () if budget.replaces is None else (budget.replaces,)
        wanted = merged(wanted, {rows.TOTAL: {rows.LIMIT}, rows.NEXT_POLICIES: replaced})
    return merged(wanted, {rows.progress(name): None for name in batch.spans})


def adopt(
    view: View,
    check: RecoveryCheck,
    batch: AdoptionBatch,
    missing: Collection[str] = frozenset(),
    committed: Collection[str] = frozenset(),
) -> Decision[None]:
    """Adopt a batch: its records, charges, reservations and limits, and the new adopted position.

    missing     ids of records to write if the ledger lacks them
    committed   those of them that Kafka has committed, to be marked as published
    Raises RecoveryEnded, AlreadyAdopted, or RecordsMissing if the ledger lacks a record that is not in `missing`, or
    has other bytes for it.
    """
    draft, position = Draft(view), None if batch.stored is None else batch.stored.stored.encode()
    require(draft, check)
    stored = draft.compare(rows.ADOPTED, batch.partition.field)
    if stored != position:
        raise AlreadyAdopted(None if stored is None else position_of(rows.ADOPTED, stored))
    for answered in batch.answered:
        for date in answered.period.dates:
            book = Book.read(draft, answered.policy, date, cap=None)
            book.restore(answered.query, answered.places, answered.epsilon)
            book.write()
    for budget in batch.budgets:
        _restore_budget(draft, budget)
    for name, (span, partitions) in batch.spans.items():
        restore_marks(draft, name, span.first_ms, span.last_ms, range(partitions))
    # The summary of a sealed day already includes its records.
    groups = {day: of for day, of in _grouped(batch.records).items() if not _is_sealed(draft, *day)}
    _require_records(draft, groups, missing)
    for (name, date), records in groups.items():
        _adopt_group(draft, name, date, records, committed)
        _store_oldest(draft, batch, name, date, min(offset for offset, _ in records))
    for (name, date), first in batch.days.items():
        if (name, date) not in groups and not _is_sealed(draft, name, date):
            _store_oldest(draft, batch, name, date, first)
    draft.set(rows.ADOPTED, batch.partition.field, batch.following.stored.encode())
    return Decision(None, draft.changes)


def _grouped(records: Sequence[tuple[int, Published]]) -> dict[tuple[str, str], _Group]:
    """Group records by policy and date, each release once: with its first offset, and the bytes that were sent last."""
    groups: dict[tuple[str, str], dict[str, tuple[int, Published]]] = {}
    for offset, record in records:
        group = groups.setdefault((record.name, record.date), {})
        first, _ = group.get(record.release_id, (offset, record))
        group[record.release_id] = first, record
    return {key: list(group.values()) for key, group in groups.items()}


def _is_sealed(draft: Draft, name: str, date: str) -> bool:
    sealed = draft.compare(rows.SEALED, name)
    return sealed is not None and date.encode() <= sealed


def _require_records(draft: Draft, groups: Mapping[tuple[str, str], _Group], missing: Collection[str]) -> None:
    """Raise RecordsMissing unless the ledger has all records but those to be written, with the bytes that were sent."""
    lacking, different = set[str](), set[str]()
    for (name, date), records in groups.items():
        for _, record in records:
            here = draft.get(rows.releases(date, name), record.release_id)
            if here is None and record.release_id not in missing:
                lacking.add(record.release_id)
            elif here is not None and here != record.record:
                different.add(record.release_id)
    if lacking or different:
        raise RecordsMissing(frozenset(lacking), frozenset(different))


def _adopt_group(draft: Draft, name: str, date: str, records: _Group, committed: Collection[str]) -> None:
    key, published = rows.releases(date, name), rows.published(date, name)
    book, stored = Book.read(draft, name, date, cap=None), draft.number(key, rows.COUNT)
    new = [record for _, record in records if draft.get(key, record.release_id) is None]
    for record in new:
        draft.set(key, record.release_id, record.record)
        if record.release_id in committed:
            draft.add_member(published, record.release_id)
        if record.horizon:  # the state after it is lost too: what follows would be drawn anew from an older one
            close_horizon(draft, name, record.horizon, INCOMPLETE)
        if record.charge:
            book.adopt(record.place, record.charge, record.fineness)
    # A record on a topic may have been read, even if Kafka has not committed it: no recovery discards it.
    for _, record in records:
        if not draft.has_member(published, record.release_id):
            draft.add_member(rows.seen(date, name), record.release_id)
    if new:
        draft.change_date(date)
        draft.add_member(rows.unsealed(name), date)
        draft.raise_to(rows.LAST, name, date)
    # Assigned numbers are not assigned again, though not all records contain theirs. A release may also have been sent
    # without its budget record, while commits with smaller numbers were lost unsent: so the date's number is at least
    # the sum of its policies' numbers. It is raised to that sum, not incremented: a budget record may have raised it.
    book.raise_to("commits", max(*(record.seq for _, record in records), stored + len(new)))
    commits = {field: value for field, value in draft.whole(rows.ledger(date)).items() if field.startswith("commits:")}
    commits.pop(f"commits:{name}", None)
    of_others = sum(number_of(rows.ledger(date), value) for value in commits.values())
    book.raise_to("sequence", of_others + book.number("commits"))
    book.write()


def _oldest(batch: AdoptionBatch, name: str, date: str) -> str:
    return f"{batch.partition.field} {date} {name}"


def _store_oldest(draft: Draft, batch: AdoptionBatch, name: str, date: str, first: int) -> None:
    """Store the first record of a day for its seal. In a topic that was recreated or cut off, offsets start again."""
    field, own = _oldest(batch, name, date), Position(batch.following.topic_id, first)
    stored = draft.get(rows.OLDEST, field)
    known = None if stored is None else position_of(rows.OLDEST, stored)
    if known is None or known.topic_id != own.topic_id or own.offset < known.offset:
        draft.set(rows.OLDEST, field, own.stored.encode())


def _restore_budget(draft: Draft, budget: BudgetRecord) -> None:
    """Restore numbers, reservations and limits from a budget record; records of releases do not contain them."""
    book = Book.read(draft, budget.policy, budget.date, cap=None)
    book.raise_to("sequence", budget.seq)  # consumers keep the record with the greatest number: continue above it
    if budget.max_hats_per_day is not None:
        book.restore_cap(budget.max_hats_per_day)
    for query in budget.queries:
        book.restore(query.query, query.places, nano_ceil(query.epsilon))
    if budget.releases > 0 or any(query.places for query in budget.queries):
        book.lower_limit(nano_floor(budget.limit))
        if budget.total_limit is not None:
            lower_total_limit(draft, nano_floor(budget.total_limit))
    book.write()
    if budget.replaces is not None and budget.from_date is not None:
        restore_next_policy(draft, budget.replaces, NextPolicy(budget.from_date, budget.policy))
