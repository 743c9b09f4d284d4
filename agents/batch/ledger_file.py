"""The ledger of `hatcast batch`: one file with all releases and charges.  [docs/specification/release.md, Invariants]

What is charged is decided by `hatcast.stream.ledger`, as for workers. A file is a domain: the charges of all its
policies add up. One process locks it at a time, and a commit is on the disk before `commit` returns. The file also
stores the users of each released HAT, so that K bounds a user's day over all runs; so the file is not private.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from hatcast.agents.batch.ledger_database import (
    PRAGMAS,
    check_contents,
    create_or_check,
    damaged_error,
    transaction,
    unusable_error,
)
from hatcast.agents.batch.ledger_days import LedgerDays, stored_records
from hatcast.agents.batch.ledger_users import NO_USERS, Entered, LedgerUsers, claim_user_key
from hatcast.agents.ledger.sqlite import SqliteStore
from hatcast.agents.ledger.store import at_once, decide
from hatcast.agents.recordings.pinned import PinnedReadings, Read
from hatcast.agents.sqlite import open_locked
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.commits import book_spent, commit, commit_rows, dates_rows, reserve
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import state_of, store_tracker_state
from hatcast.stream.ledger.rejections import Exhausted
from hatcast.stream.ledger.sums import StoredStates, states_of, states_rows
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy, claim
from hatcast.stream.ledger.view import DamagedRow, Decision, RowChanges, TooLarge, View, Wanted
from hatcast.stream.policy.composed_limit import check_alone
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.records.fields import date_of, policy_of
from hatcast.stream.release.placed import Placed
from hatcast.stream.release.queries import AnyRelease


def claim_policy(database: sqlite3.Connection, path: Path, policy: Policy) -> None:
    """Store the policy of a first run; reject a changed policy, and one that cannot replace the one that it names."""
    policies = {
        name: (policy_id, msgspec.json.decode(canonical), canonical)
        for name, policy_id, canonical in database.execute("SELECT name, policy_id, canonical FROM policies")
    }
    ours = policies.get(policy.name)
    if ours is not None and ours[0] != policy.policy_id:
        raise HatcastError(
            f"{path}: policy {policy.name!r} was started with another {differing_keys(ours[2], policy.canonical)}: a"
            " policy does not change; restore it, or start the new one under a new policy.name"
        )
    for _, other, _ in policies.values():
        if other["timezone"] != policy.timezone:
            raise HatcastError(
                f"{path}: its policies have the policy.timezone {other['timezone']!r}, and all must have the same local"
                " days: use that"
            )
    known = {name: other for name, (_, other, _) in policies.items()}
    check_alone(policy.name, msgspec.json.decode(policy.canonical), known)
    if policy.replaces is not None and policy.from_date is not None:
        if policy.replaces not in policies:
            raise HatcastError(
                f"{path}: policy {policy.replaces!r} was never run on this file: correct policy.replaces, or remove it"
            )
        _follow(database, path, policy, policies[policy.replaces][1].get("from"))
    database.execute(
        "INSERT OR IGNORE INTO policies VALUES (?, ?, ?)", (policy.name, policy.policy_id, policy.canonical)
    )


def _follow(database: sqlite3.Connection, path: Path, policy: Policy, begins: str | None) -> None:
    """Store the transition from the policy that this one replaces, which itself `begins` on a date."""
    old, first = str(policy.replaces), str(policy.from_date)
    if begins is not None and first <= begins:
        raise HatcastError(f"{path}: policy.from {first}: {old!r} itself begins on {begins}: use a later date")
    wanted = {rows.NEXT_POLICIES: {old}, rows.LAST: {old}}
    claimed = at_once(decide(SqliteStore(database), wanted, lambda view: claim(view, old, first, policy.name)))
    if isinstance(claimed, AlreadyBegun):
        raise HatcastError(
            f"{path}: policy.from {first} has begun: {old!r} has already released {claimed.last}; use a later date"
        )
    if claimed != NextPolicy(first, policy.name):
        raise HatcastError(
            f"{path}: policy {old!r} is replaced by {claimed.name!r} from {claimed.from_date} on: set policy.replaces"
            f" to {claimed.name!r}, with a later policy.from"
        )


R = TypeVar("R")

_NONE_ENTERED: Final[Mapping[str, Entered]] = MappingProxyType({})
_PARTITION: Final = 0  # a file has one owner


class LedgerFile(LedgerDays):
    """The records and day ledgers in a file, for one policy. Created by `open_ledger`."""

    def __init__(self, database: sqlite3.Connection, path: Path, policy: Policy, users: LedgerUsers) -> None:
        super().__init__(database, policy)
        self._path = path
        self.users = users  # users of the HATs that have a record
        self.readings = PinnedReadings(database, path)  # how their readings were read
        self.calendar = Calendar(policy)  # of the policy

    def find(self, release_id: str) -> bytes | None:
        """Return the one record of a HAT or an answer, or None."""
        key = rows.releases(date_of(release_id), policy_of(release_id))
        return at_once(self._store.read({key: {release_id}})).get(key, release_id)

    def records(self) -> Iterator[bytes]:
        """Yield every stored record: releases and answers, of all policies."""
        return stored_records(self._database)

    def commit(
        self, releases: Sequence[AnyRelease], now_ms: int, entered: Mapping[str, Entered] = _NONE_ENTERED
    ) -> dict[str, bytes]:
        """Commit releases with their charges, in order, in one durable transaction; an existing record stays.

        With each HAT's record it stores the users that have `entered` the HAT, by release_id.

        A date's first HAT stores the date's rules, and reserves the cost of the queries that read it; an answer
        reserves the cost of its query on the days of its period that had no HAT. Returns the records that are in the
        file now, by release_id. Raises HatcastError, and stores none of them, if the file cannot be written.
        """
        policy = self.policy
        proposals = [release.proposal(now_ms, _PARTITION) for release in releases]
        records = {}
        with transaction(self._database, self._path):
            wanted = commit_rows(policy, proposals, None)
            decided = self._decide(wanted, lambda view: commit(view, policy, proposals, None))
            for release, committed in zip(releases, decided, strict=True):
                if isinstance(committed, Exception):
                    raise self._clear(committed)
                if committed.new and isinstance(release, Placed) and release.is_hat:
                    self.readings.pin_date(release.date, self.calendar)
                    self.users.store(release.date, release.place, entered.get(release.release_id, NO_USERS))
                records[release.release_id] = committed.record
        return records

    def pin_readings(self, read: Read) -> None:
        """Fix how readings are read, before a release of them. Raises HatcastError if that cannot be written."""
        with transaction(self._database, self._path):
            self.readings.pin(read)

    def book_spent(self) -> None:
        """Book the cost of a private list of cells on each of its days where it is missing, in one transaction.

        Raises HatcastError if the file cannot be written.
        """
        dates = [] if self.policy.selection_cost is None else self.policy.selection_cost.dates
        if dates:
            with transaction(self._database, self._path):
                self._decide(dates_rows(self.policy, dates), lambda view: book_spent(view, self.policy, dates))

    def reserve_clustering(self, query: str, date: str, epsilon_nano: int) -> bool:
        """Reserve an epsilon (1e-9) for each user of a local date, once for each query name; False without room.

        It stores the date's rules, as a date's first HAT does.
        Raises HatcastError if the file cannot be written.
        """
        policy, cost = self.policy, Reserved(1, epsilon_nano)
        try:
            with transaction(self._database, self._path):
                self._decide(
                    dates_rows(policy, [date]), lambda view: reserve(view, policy, query, date, cost, calendar=None)
                )
                self.readings.pin_date(date, self.calendar)
        except Exhausted:
            return False
        return True

    def states(self, horizon: str, cells: Sequence[str]) -> StoredStates:
        """Return the states of the running sums of cells in a horizon (first local date)."""
        name = self.policy.name
        return self._read(states_rows(name, horizon, cells), lambda view: states_of(view, name, horizon, cells))

    def records_of(self, date: str) -> dict[str, bytes]:
        """Return release_id -> record of a date, by release_id."""
        key = rows.releases(date, self.policy.name)
        return dict(sorted(at_once(self._store.read({key: None})).whole(key).items()))

    def tracker_state(self) -> bytes | None:
        """Return the state of the policy's tracker after the last settled date; None if there is none."""
        name = self.policy.name
        return self._read({rows.tracker(name): None}, lambda view: state_of(view, name))

    def store_tracker_state(self, date: str, state: bytes) -> None:
        """Store the state of the policy's tracker after a settled date. Raises HatcastError."""
        name = self.policy.name
        with transaction(self._database, self._path):
            self._decide({rows.tracker(name): None}, lambda view: store_tracker_state(view, name, date, state, None))

    def _read(self, wanted: Wanted, read: Callable[[View], R]) -> R:
        return self._decide(wanted, lambda view: Decision(read(view), RowChanges()))

    def _decide(self, wanted: Wanted, decision: Callable[[View], Decision[R]]) -> R:
        try:
            return at_once(decide(self._store, wanted, decision))
        except (DamagedRow, TooLarge) as error:
            raise self._clear(error) from None

    def _clear(self, error: Exception) -> Exception:
        if isinstance(error, DamagedRow):
            return damaged_error(self._path)
        if isinstance(error, TooLarge):
            return HatcastError(
                f"{self._path}: one day would cost more than a ledger can count: lower policy.privacy.epsilon under a"
                " new policy.name"
            )
        return error


@contextmanager
def open_ledger(path: Path, policy: Policy, user_key: bytes | None = None) -> Iterator[LedgerFile]:
    """Open the ledger in a file, locked until the end; a new file is readable by its owner only.

    user_key   of the settings; None: generated with the file and stored in it

    Raises HatcastError: the file is not a ledger, in use or unreadable; its policy of this name has another policy_id,
    its policies another time zone, a date other rules of that zone, or its users another key; or the policy cannot
    replace the one that it names.
    """
    try:
        with open_locked(path, *PRAGMAS) as database:
            create_or_check(database, path)
            check_contents(database)
            with transaction(database, path):
                claim_policy(database, path, policy)
                pseudonyms = claim_user_key(database, path, user_key)
            ledger = LedgerFile(database, path, policy, LedgerUsers(database, policy.name, pseudonyms))
            ledger.readings.check_dates(ledger.calendar)
            ledger.book_spent()
            yield ledger
    except sqlite3.OperationalError as error:
        raise unusable_error(path, error) from None
    except sqlite3.DatabaseError:
        raise damaged_error(path) from None
