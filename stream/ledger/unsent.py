"""Unsent records of a ledger: a recovery replaces them by the sent ones, discards them, or keeps them.

During a recovery nothing is committed, all publishers are fenced, and every record on the output topics is adopted. A
record that is on no topic by then was never sent, or a topic has lost it.    [decisions/0004; docs/proofs.md, "One
ledger"]
"""

from collections.abc import Collection, Sequence

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.book import Book
from hatcast.stream.ledger.recovery import Nonces, RecoveryCheck, require
from hatcast.stream.ledger.rejections import RecoveryEnded
from hatcast.stream.ledger.sums import INCOMPLETE, close_horizon, take_back_state
from hatcast.stream.ledger.view import Decision, Draft, View, Wanted, number_of


def record_rows(record: Published, check: RecoveryCheck) -> Wanted:
    """Return what `supersede` and `discard` read at least, of a record that may be unsent."""
    date, name, id_ = record.date, record.name, record.release_id
    return {
        rows.RECOVERY: {check.field},
        rows.NONCES: {date},
        rows.releases(date, name): {id_},
        rows.published(date, name): {id_},
        rows.seen(date, name): {id_},
        rows.ledger(date): None,
        rows.costs(date, name): {record.place},
        rows.levels(date, name): None,
        rows.progress(name): None,
    }


def supersede(
    view: View, check: RecoveryCheck, unsent: Published, sent: Published, *, in_kafka: bool
) -> Decision[bool]:
    """Replace a record that was never sent by the one that was, with its charge; False if another is stored by now.

    in_kafka   the transaction of the sent record has ended, so it is published
    Raises RecoveryEnded. The date's ledger number stays: with what is adopted, this is the ledger that `hats.budget`
    has published.
    """
    draft, date, name, key = Draft(view), sent.date, sent.name, rows.releases(sent.date, sent.name)
    require(draft, check)
    book = Book.read(draft, name, date, cap=None)
    if draft.get(key, sent.release_id) != unsent.record:
        return Decision(result=False, changes=draft.changes)
    draft.set(key, sent.release_id, sent.record)
    draft.change_date(date)
    if in_kafka:
        draft.add_member(rows.published(date, name), sent.release_id)
    if sent.horizon:  # the state here is not that of what was sent
        close_horizon(draft, name, sent.horizon, INCOMPLETE)
    if unsent.charge:
        book.take_back(sent.place, unsent.charge, unsent.fineness)
    if sent.charge:
        book.adopt(sent.place, sent.charge, sent.fineness)
    book.write()
    return Decision(result=True, changes=draft.changes)


def discard(view: View, check: RecoveryCheck, record: Published) -> Decision[bool]:
    """Discard a record with its charge; False if it was sent, or is not here. Raises RecoveryEnded."""
    draft, date, name, id_ = Draft(view), record.date, record.name, record.release_id
    require(draft, check)
    book = Book.read(draft, name, date, cap=None)
    marks = [draft.compare(key, id_) for key in (rows.published(date, name), rows.seen(date, name))]
    if draft.get(rows.releases(date, name), id_) != record.record or any(mark is not None for mark in marks):
        return Decision(result=False, changes=draft.changes)
    draft.set(rows.releases(date, name), id_, None)
    if record.is_drawn:
        take_back_state(draft, name, record.horizon, record.place.partition("/")[0], id_)
    book.count("sequence")  # hats.budget may have published the ledger with this charge
    _lower_committed(draft, name)
    if record.charge:
        book.take_back(record.place, record.charge, record.fineness)
    book.write()
    return Decision(result=True, changes=draft.changes)


def keep_rows(name: str, date: str, ids: Collection[str]) -> Wanted:
    """Return what `keep` reads."""
    marks = {row(date, name): ids for row in (rows.releases, rows.published, rows.seen)}
    return {rows.RECOVERY: {"attempt"}, **marks}


def keep(view: View, attempt: str, name: str, date: str, ids: Collection[str]) -> Decision[None]:
    """Mark unsent records of a policy and date as seen: a topic that lost records may have had them.

    Raises RecoveryEnded.
    """
    draft = Draft(view)
    require(draft, RecoveryCheck.in_progress(attempt))
    for id_ in ids:
        is_here = draft.get(rows.releases(date, name), id_) is not None
        if is_here and not draft.has_member(rows.published(date, name), id_):
            draft.add_member(rows.seen(date, name), id_)
            draft.change_date(date)  # for `end_keeping`
    return Decision(None, draft.changes)


def keep_reserved(view: View, attempt: str, days: Sequence[tuple[str, str]]) -> Decision[None]:
    """Count what days have reserved as reported: a topic that lost records may have reported it.

    days   (policy name, local date)
    Raises RecoveryEnded.
    """
    draft = Draft(view)
    require(draft, RecoveryCheck.in_progress(attempt))
    for name, date in days:
        book = Book.read(draft, name, date, cap=None)
        for query, reserved in book.queries.items():
            book.restore(query, reserved.places, reserved.epsilon)
        book.write()
    return Decision(None, draft.changes)


def end_keeping(view: View, attempt: str, nonces: Nonces) -> Decision[None]:
    """Store that all records and reservations are kept.

    nonces   with which nothing was left to keep
    Raises RecoveryEnded, also if they have changed: a copy came back.
    """
    draft = Draft(view)
    require(draft, RecoveryCheck.in_progress(attempt))
    if not all(draft.compare(rows.NONCES, each) == nonce for each, nonce in nonces.items()):
        raise RecoveryEnded
    draft.set(rows.RECOVERY, "kept", attempt.encode())
    return Decision(None, draft.changes)


def unreserve(view: View, check: RecoveryCheck, days: Sequence[tuple[str, str]]) -> Decision[None]:
    """Remove reservations that no output topic has reported.

    days   (policy name, local date)
    Raises RecoveryEnded.
    """
    draft = Draft(view)
    require(draft, check)
    for name, date in days:
        book = Book.read(draft, name, date, cap=None)
        book.unreserve()
        book.write()
    return Decision(None, draft.changes)


def reserved_rows(check: RecoveryCheck, days: Sequence[tuple[str, str]]) -> Wanted:
    """Return what `unreserve` and `keep_reserved` read."""
    dates, whole = {date for _, date in days}, dict[str, None]()
    for name, date in days:
        whole |= {rows.ledger(date): None, rows.levels(date, name): None}
    return {rows.RECOVERY: {check.field}, rows.NONCES: dates, **whole}


def _lower_committed(draft: Draft, name: str) -> None:
    """Lower the marks of commits: under `add_remove` a slot is sent after all of it is committed: no longer true."""
    key = rows.progress(name)
    for field, value in draft.view.whole(key).items():
        mark, _, partition = field.partition(":")
        if mark == "committed":
            draft.compare(key, field)
            draft.compare(key, f"published:{partition}")
            published = draft.number(key, f"published:{partition}")
            if published < number_of(key, value):
                draft.set_number(key, field, published)
