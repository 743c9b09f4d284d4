"""Decisions of a ledger: commit releases and answers with their charges, and reserve costs.

Each takes rows of one moment and returns what was decided with the changes that store it. No other module decides
whether a charge may be made: `DayLedger.charge_if_room` and `reserve_if_room` (day.py) say whether there is room. How
much it is, the proposal says: `Release.charge` of a HAT, `AnswerProposal.reserved` of an answer; a tracker and running
sums charge nothing but what `MethodKeys.reserved` says of the date. What one bus pays within a tracker's reservation is
decided outside of a ledger, by `Balances` (stream/tracker/schedule.py). Under `add_remove` a slot without room as a
whole is not even drawn (`fits`, summary.py). A recovery books what was sent, whatever the limits (adopt.py), and takes
back what was not (unsent.py).

[docs/proofs.md, "One ledger"; docs/specification/release.md, Ledger]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.book import Book, lower_total_limit, total_of
from hatcast.stream.ledger.date_rules import pin_rules
from hatcast.stream.ledger.day import Reserved, Total, reservations
from hatcast.stream.ledger.proposals import AnswerProposal, Committed, Proposal, numbered
from hatcast.stream.ledger.recovery import RECOVERED_ROWS, require_recovered
from hatcast.stream.ledger.rejections import Behind, DaySealed, Exhausted, Replaced, Unclaimed, Unrecovered
from hatcast.stream.ledger.sums import change_rows, check_state, store_sum_state
from hatcast.stream.ledger.view import DamagedRow, Decision, Draft, TooLarge, View, Wanted, merged, text_of
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION
from hatcast.stream.records.fields import Status

AnyProposal = Proposal | AnswerProposal
Rejection = Unrecovered | DaySealed | Replaced | Unclaimed | DamagedRow | TooLarge


@dataclass(frozen=True, slots=True)
class Guard:
    """State that a worker expects of a ledger: a commit compares it, to notice a loss of data before it writes."""

    token: str  # of the finished recovery; "" while the ledger is not known to be recovered
    written: Mapping[int, int]  # release partition -> the commit sequence that this worker wrote last
    commits: int  # the greatest number of the domain's commits that this worker knows


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation that the ledger has."""

    new: bool  # whether this decision makes it
    token: bytes  # of the finished recovery that the ledger had; b"" without one


def commit_rows(policy: Policy, proposals: Sequence[AnyProposal], guard: Guard | None) -> Wanted:
    """Return the rows that a commit of these proposals reads in any case."""
    name, wanted = policy.name, dict[str, set[str] | None]()

    def want(key: str, *fields: str) -> None:
        known = wanted.setdefault(key, set())
        if known is not None:
            known.update(fields)

    want(rows.SEALED, name)
    want(rows.NEXT_POLICIES, name, *([] if policy.replaces is None else [policy.replaces]))
    if guard is not None:
        want(rows.SEQUENCES, rows.ALL, *(rows.sequence_field(name, each) for each in guard.written))
    want(rows.TOTAL, rows.LIMIT)
    if policy.total_limit_nano is not None:
        want(rows.NONCES, rows.TOTAL)
        wanted[rows.TOTAL] = None
    for each in proposals:
        want(rows.releases(each.date, name), each.release_id)
        want(rows.published(each.date, name), each.release_id)
        if isinstance(each, Proposal):
            want(rows.costs(each.date, name), each.place)
        for date in {each.date, *(each.dates if isinstance(each, AnswerProposal) else ())}:
            want(rows.NONCES, date)
            wanted[rows.ledger(date)] = wanted[rows.levels(date, name)] = None
    found: Wanted = merged(wanted, {} if guard is None else RECOVERED_ROWS)
    for each in proposals:
        if isinstance(each, Proposal) and each.change is not None:
            found = merged(found, change_rows(name, each.change))
    return found


def commit(
    view: View, policy: Policy, proposals: Sequence[AnyProposal], guard: Guard | None
) -> Decision[list[Committed | Rejection]]:
    """Commit records with their charges, in order; a record that is stored already is returned.

    guard   None: of a store that only this process writes, and that has no recovery
    Each proposal is decided by itself: a rejection is in its place, and the others are committed. Raises Unrecovered or
    Behind if the store may have lost data: then none is.
    """
    entry = _Entry(view, policy)
    if guard is not None:
        require_recovered(entry.draft, guard.token)
        _check_sequences(entry.draft, policy.name, proposals, guard)
    decided, new = list[Committed | Rejection](), dict[int, int]()
    for proposal in proposals:
        try:
            committed = entry.book_record(proposal, discardable=guard is not None)
        except Behind:  # a running sum was drawn from another state: the batch is drawn again
            raise
        except (DaySealed, Replaced, Unclaimed, DamagedRow, TooLarge) as rejection:
            decided.append(rejection)
            continue
        decided.append(committed)
        if committed.new:
            new[proposal.release_partition] = new.get(proposal.release_partition, 0) + 1
    entry.write()
    if guard is not None:
        _count_commits(entry.draft, policy.name, new, guard)
    return Decision(decided, entry.draft.changes)


def reserve(
    view: View, policy: Policy, query: str, date: str, cost: Reserved, calendar: Calendar | None
) -> Decision[Reservation]:
    """Reserve the cost of a clustering on a date, once for each name, if day and total have room.

    A commit reserves what a policy's queries, tracker or running sums cost by itself.

    calendar   of the policy: the date's rules are compared and pinned, and a finished recovery is required; None: of a
               store that only this process writes
    Raises Unrecovered, DaySealed, Replaced or Exhausted; HatcastError if the date has other rules in the domain.
    """
    entry, token = _Entry(view, policy), b""
    if calendar is not None:
        token = require_recovered(entry.draft, None)
        pin_rules(entry.draft, policy.name, date, calendar)
    book, total = entry.book(date), entry.total
    known = book.queries.get(query)
    if known is None or not known.places:
        entry.check_open(date)
        if not book.day.has_room(policy, cost.amount, total):
            raise Exhausted
        if known is not None:  # it had no room, and is asked for again
            del book.day.policies[policy.name].queries[query]
        book.reserve_if_room(policy, {query: cost}, total)
        book.count("sequence")
        entry.changed[date] = None
        entry.write()
    return Decision(Reservation(date in entry.changed, token), entry.draft.changes)


def book_spent(view: View, policy: Policy, dates: Sequence[str]) -> Decision[list[str]]:
    """Book the cost of a private list of cells on each of its dates where it is missing; return these dates."""
    entry, booked = _Entry(view, policy), list[str]()
    for date in dates:
        wanted = {CELL_SELECTION: reservations(policy, date)[CELL_SELECTION]}
        if entry.book(date).reserve_if_room(policy, wanted, entry.total):
            entry.book(date).count("sequence")
            entry.changed[date] = None
            booked.append(date)
    entry.write()
    return Decision(booked, entry.draft.changes)


def announce_spent(view: View, policy: Policy, dates: Sequence[str]) -> Decision[bool]:
    """Store that the cost of each date is on `hats.budget`; False if some are missing, which are then booked again."""
    booked = book_spent(view, policy, dates)
    if booked.result:
        return Decision(result=False, changes=booked.changes)
    draft = Draft(view)
    for date in dates:
        draft.read_date(date)
    if draft.compare(rows.ANNOUNCED, policy.name) is None:
        draft.set(rows.ANNOUNCED, policy.name, b"1")
    return Decision(result=True, changes=draft.changes)


def dates_rows(policy: Policy, dates: Sequence[str]) -> Wanted:
    """Return what `reserve` and `book_spent` read of these dates."""
    found: dict[str, set[str] | None] = {
        rows.NONCES: {*dates, rows.TOTAL},
        rows.TOTAL: None,
        rows.SEALED: {policy.name},
        rows.NEXT_POLICIES: {policy.name, *([] if policy.replaces is None else [policy.replaces])},
    }
    of_dates = {key: None for date in dates for key in (rows.ledger(date), rows.levels(date, policy.name))}
    return {**found, **RECOVERED_ROWS, **of_dates}


def _check_sequences(draft: Draft, name: str, proposals: Sequence[AnyProposal], guard: Guard) -> None:
    """Raise Behind if the store went back, or another worker owns a release partition of these proposals."""
    for release_partition in {each.release_partition for each in proposals}:
        written = guard.written.get(release_partition)
        if written is None:
            raise Unrecovered
        field = rows.sequence_field(name, release_partition)
        draft.compare(rows.SEQUENCES, field)
        if draft.number(rows.SEQUENCES, field) != written:
            raise Behind
    draft.changes.at_least[rows.SEQUENCES, rows.ALL] = guard.commits
    if draft.number(rows.SEQUENCES, rows.ALL) < guard.commits:
        raise Behind


def _count_commits(draft: Draft, name: str, new: Mapping[int, int], guard: Guard) -> None:
    for release_partition, commits in new.items():
        number = guard.written[release_partition] + commits
        draft.set_number(rows.SEQUENCES, rows.sequence_field(name, release_partition), number)
    if new:
        draft.changes.add[rows.SEQUENCES, rows.ALL] = sum(new.values())


@dataclass(slots=True)
class _Entry:
    """Bookings of one decision so far: the books of its dates, and their common total."""

    view: View
    policy: Policy
    draft: Draft = field(init=False)
    books: dict[str, Book] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)  # dates with a change
    _total: Total | None = None

    def __post_init__(self) -> None:
        self.draft = Draft(self.view)

    @property
    def total(self) -> Total:
        """Cost of all days, with the charges of this commit so far."""
        if self._total is None:
            self._total = total_of(self.draft, self.policy)
            self._total.spent += sum(book.recomputed for book in self.books.values())
        return self._total

    def book(self, date: str) -> Book:
        """Return the book of a date. Raises DamagedRow, Unread."""
        if date not in self.books:
            book = Book.read(self.draft, self.policy.name, date, self.policy.max_hats_per_day)
            total = self.total
            total.spent += book.recomputed
            self.books[date] = book
        return self.books[date]

    def check_open(self, date: str) -> None:
        """Raise DaySealed or Replaced if nothing of a date may be charged any more."""
        draft, policy = self.draft, self.policy
        self._check_sealed(date)
        next_policy = draft.compare(rows.NEXT_POLICIES, policy.name)
        if next_policy is not None and date >= text_of(rows.NEXT_POLICIES, next_policy).partition(" ")[0]:
            raise Replaced

    def check_claimed(self) -> None:
        """Raise Unclaimed unless the transition to the policy is stored, if it replaces another."""
        policy = self.policy
        if policy.replaces is not None:
            claimed = self.draft.compare(rows.NEXT_POLICIES, policy.replaces)
            if claimed != f"{policy.from_date} {policy.name}".encode():
                raise Unclaimed

    def book_record(self, proposal: AnyProposal, *, discardable: bool) -> Committed:
        """Commit one record with its charge, or return the stored one.

        discardable   a recovery may discard it unsent, so the state of its running sum before it is kept with it
        Raises DaySealed, Replaced, Unclaimed, DamagedRow, TooLarge, Behind or Unread before anything of it is changed.
        """
        key, name = rows.releases(proposal.date, self.policy.name), self.policy.name
        self._check_sealed(proposal.date)
        if (stored := self.draft.get(key, proposal.release_id)) is not None:
            marked = self.draft.has_member(rows.published(proposal.date, name), proposal.release_id)
            return Committed(stored, marked, new=False)
        self.check_open(proposal.date)
        self.check_claimed()
        book = self.book(proposal.date)
        has_room = (
            self._answer(proposal)
            if isinstance(proposal, AnswerProposal)
            else self._charge(proposal, book, discardable=discardable)
        )
        book.count("sequence")
        record = numbered(proposal.record if has_room else proposal.exhausted, number := book.count("commits"))
        if number == 1:  # of this date: both stay until its seal, which ends its commits
            self.draft.add_member(rows.unsealed(name), proposal.date)
            self.draft.raise_to(rows.LAST, name, proposal.date)
        self.draft.set(key, proposal.release_id, record)
        self.changed[proposal.date] = None
        return Committed(record, published=False, new=True)

    def _check_sealed(self, date: str) -> None:
        sealed = self.draft.compare(rows.SEALED, self.policy.name)
        if sealed is not None and date.encode() <= sealed:
            raise DaySealed

    def write(self) -> None:
        """Write the rows of the dates that have changed, and the limit of all days."""
        for date in self.changed:
            self.books[date].write()
        if self._total is not None and self._total.limit is not None:
            lower_total_limit(self.draft, self._total.limit)

    def _charge(self, proposal: Proposal, book: Book, *, discardable: bool) -> bool:
        """Charge a release, after what its date reserves. Return whether there was room."""
        policy, change, wanted = self.policy, proposal.change, reservations(self.policy, proposal.date)
        if change is not None:
            check_state(self.draft, policy.name, change)
        if proposal.ends_horizon:  # it reserves nothing more
            wanted = {}
        before = book.check_charge(proposal.place, proposal.charge) if proposal.charge else 0
        book.reserve_if_room(policy, wanted, self.total)
        has_room = all(book.queries[query].places for query, cost in wanted.items() if cost.is_required)
        if has_room and proposal.charge:
            has_room = book.charge(policy, proposal, before, self.total)
        if change is not None:
            if not has_room:
                change = replace(change, closes=Status.BUDGET_EXHAUSTED)
            store_sum_state(self.draft, policy.name, change, proposal.release_id if discardable else None)
        return has_room

    def _answer(self, proposal: AnswerProposal) -> bool:
        """Reserve an answer's query on each date of its period. Return whether all of them had room."""
        books = [self.book(date) for date in proposal.dates]
        for book in books:
            if book.reserve_if_room(self.policy, {proposal.query: proposal.reserved}, self.total):
                book.count("sequence")
                self.changed[book.date] = None
        return all(book.queries[proposal.query].places for book in books)
