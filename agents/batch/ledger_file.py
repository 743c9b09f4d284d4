"""The ledger of `hatcast batch`: one file with all releases and charges.  [docs/specification/release.md, Invariants]

The arithmetic is that of `agents/redis/commit.lua`. A file is a domain: the charges of all its policies add up. One
process locks it at a time, and a commit is on the disk before `commit` returns. The file also stores the users of each
released HAT, so that K bounds a user's day over all runs; so the file is not private.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hatcast.agents.batch.horizons import Horizons
from hatcast.agents.batch.ledger_checks import check_contents
from hatcast.agents.batch.ledger_database import PRAGMAS, create_or_check, damaged_error, transaction, unusable_error
from hatcast.agents.batch.ledger_days import LedgerDays
from hatcast.agents.batch.ledger_policies import claim_policy
from hatcast.agents.batch.ledger_readings import LedgerReadings
from hatcast.agents.batch.ledger_users import NO_USERS, Entered, Users, claim_user_key
from hatcast.agents.batch.tracker_days import TrackerDays
from hatcast.agents.sqlite import open_locked
from hatcast.stream.accounting.ledger import DayLedger, Reserved, Total
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import CELL_SELECTION, reservations
from hatcast.stream.records.fields import Status
from hatcast.stream.release.continual_records import ContinualRelease
from hatcast.stream.release.encoding import numbered
from hatcast.stream.release.hats import Release
from hatcast.stream.release.queries import QueryRelease
from hatcast.stream.release.tracker_records import TrackerRelease

AnyRelease = Release | QueryRelease | TrackerRelease | ContinualRelease

_MAX_SPENT: Final = 2**63 - 1  # 1e-9: SQLite's largest integer
_NONE_ENTERED: Final[Mapping[str, Entered]] = MappingProxyType({})


class LedgerFile(LedgerDays):
    """The records and day ledgers in a file, for one policy. Created by `open_ledger`.

    users     users of the HATs that have a record
    readings  how their readings were read
    tracker   what the policy's tracker has done, if it has one
    horizons  states of the policy's running sums, if it has them
    """

    def __init__(self, database: sqlite3.Connection, path: Path, policy: Policy, users: Users) -> None:
        super().__init__(database, policy)
        self._path = path
        self.users = users
        self.readings = LedgerReadings(database, path, policy)
        self.tracker = TrackerDays(database, path, policy.name)
        self.horizons = Horizons(database, policy.name)

    def find(self, release_id: str) -> bytes | None:
        """Return the one record of a HAT or an answer, or None."""
        row = self._database.execute("SELECT record FROM releases WHERE release_id = ?", (release_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def records(self) -> Iterator[bytes]:
        """Yield every stored record: releases and answers, of all policies."""
        return (bytes(record) for (record,) in self._database.execute("SELECT record FROM releases"))

    def commit(
        self,
        releases: Sequence[AnyRelease],
        now_ms: int,
        entered: Mapping[str, Entered] = _NONE_ENTERED,
        closes: Status | None = None,
    ) -> dict[str, bytes]:
        """Commit releases with their charges, in order, in one durable transaction; an existing record stays.

        With each HAT's record it stores the users that have `entered` the HAT, by release_id. closes: status with which
        the horizon of these running sums ends; then nothing is reserved for it.

        A date's first HAT reserves the cost of the queries that read the date; an answer reserves the cost of its query
        on the days of its period that had no HAT. Returns the records that are in the file now, by release_id.
        Raises HatcastError, and stores none of them, if the file cannot be written.
        """
        records = {}
        try:
            with transaction(self._database, self._path):
                total = self._total()
                for release in releases:
                    record = self.find(release.release_id)
                    if record is None:
                        record = self._store(release, total, now_ms, closes)
                        if not isinstance(release, QueryRelease) and release.is_hat:
                            self.users.store(release.date, release.place, entered.get(release.release_id, NO_USERS))
                    records[release.release_id] = record
        except BaseException:
            self._days.clear()  # they may include charges that were rolled back
            raise
        return records

    def book_spent(self) -> None:
        """Book the cost of a private list of cells on each of its days where it is missing, in one transaction.

        Raises HatcastError if the file cannot be written.
        """
        dates = [] if self.policy.selection_cost is None else self.policy.selection_cost.dates
        if not dates:
            return
        with transaction(self._database, self._path):
            decided, total = self._places(CELL_SELECTION, dates), self._total()
            for date in dates:
                if date not in decided:
                    self._count_change(date)
                    self._reserve(date, {CELL_SELECTION: reservations(self.policy, date)[CELL_SELECTION]}, total)

    def reserve_clustering(self, query: str, date: str, epsilon_nano: int) -> bool:
        """Reserve an epsilon (1e-9) for each user of a local date, once for each query name; False without room.

        Raises HatcastError if the file cannot be written.
        """
        if self._places(query, [date]).get(date):
            return True
        day, total, cost = self._day(date), self._total(), Reserved(1, epsilon_nano)
        if not day.has_room(self.policy, cost.amount, total):
            return False
        try:
            with transaction(self._database, self._path):
                self._count_change(date)
                self._reserve(date, {query: cost}, total)
        except BaseException:
            self._days.clear()  # they may include a reservation that was rolled back
            raise
        return True

    def _store(self, release: AnyRelease, total: Total, now_ms: int, closes: Status | None) -> bytes:
        run, ours = self._database.execute, (release.date, self.policy.name)
        self._count_change(release.date)
        if isinstance(release, QueryRelease):
            has_room = self._has_reserved(release, total) or release.status is not Status.RELEASED
        elif closes is not None:
            has_room = True  # nothing is drawn
        else:
            self._reserve(release.date, reservations(self.policy, release.date), total)
            has_room = self._has_required(release.date) and (not release.charge or self._charge(release, total))
        if not has_room:
            release, closes = release.exhausted(), Status.BUDGET_EXHAUSTED
        if isinstance(release, ContinualRelease):
            self.horizons.store(release, closes)
        run("UPDATE spent SET commits = commits + 1 WHERE date = ? AND policy = ?", ours)
        (number,) = run("SELECT commits FROM spent WHERE date = ? AND policy = ?", ours).fetchone()
        record = numbered(release.record(now_ms), number)
        run("INSERT INTO releases VALUES (?, ?)", (release.release_id, record))
        return record

    def _count_change(self, date: str) -> None:
        """Increment a day's ledger number; create the day if it is new."""
        run = self._database.execute
        run("INSERT OR IGNORE INTO days VALUES (?, 0, NULL)", (date,))
        run("UPDATE days SET sequence = sequence + 1 WHERE date = ?", (date,))
        run(
            "INSERT OR IGNORE INTO spent VALUES (?, ?, ?, 0, 0, 0)",
            (date, self.policy.name, self.policy.max_hats_per_day),
        )

    def _reserve(self, date: str, wanted: Mapping[str, Reserved], total: Total) -> None:
        """Decide the reservations of our queries on a date that are not decided yet."""
        day = self._day(date)
        new = day.reserve(self.policy, wanted, total)
        if not new:
            return
        reserved = day.policies[self.policy.name].queries
        self._database.executemany(
            "INSERT INTO reservations VALUES (?, ?, ?, ?, ?)",
            [(date, self.policy.name, name, reserved[name].places, reserved[name].epsilon) for name in new],
        )
        self._store_limits(date, day, total)

    def _has_reserved(self, release: QueryRelease, total: Total) -> bool:
        """Return whether all days of an answer's period have room for its query, deciding days that are undecided."""
        query, dates = release.query_period.query.name, release.query_period.period.dates
        decided = self._places(query, dates)
        for date in dates:
            if date not in decided:
                self._count_change(date)
                self._reserve(date, {query: reservations(self.policy, date)[query]}, total)
        return all(self._places(query, dates).values())

    def _has_required(self, date: str) -> bool:
        """Return whether the day has room for the reservations without which nothing is released."""
        places = self._day(date).policies
        wanted = reservations(self.policy, date)
        return all(places[self.policy.name].queries[name].places for name in wanted if wanted[name].is_required)

    def _places(self, query: str, dates: Sequence[str]) -> dict[str, int]:
        """Return date -> number of places reserved for a query, for decided dates; without reading the charges."""
        return dict(
            self._database.execute(
                "SELECT date, places FROM reservations WHERE policy = ? AND query = ? AND date BETWEEN ? AND ?",
                (self.policy.name, query, dates[0], dates[-1]),
            )
        )

    def _charge(self, release: Release | TrackerRelease | ContinualRelease, total: Total) -> bool:
        """Book a release's charge; return False if a limit does not allow it."""
        run, ours, day = self._database.execute, (release.date, self.policy.name), self._day(release.date)
        if not day.charge(self.policy, release.place, release.charge, total):
            return False
        spent = day.policies[self.policy.name].costs[release.place]
        run("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?)", (*ours, release.place, spent))
        self._store_limits(release.date, day, total)
        run("UPDATE spent SET releases = releases + 1 WHERE date = ? AND policy = ?", ours)
        fineness = (*ours, release.fineness)
        run("INSERT OR IGNORE INTO fineness VALUES (?, ?, ?, 0)", fineness)
        run("UPDATE fineness SET charges = charges + 1 WHERE date = ? AND policy = ? AND fineness = ?", fineness)
        return True

    def _store_limits(self, date: str, day: DayLedger, total: Total) -> None:
        """Store the total and the limits after a charge. Raises HatcastError if the total exceeds SQLite's integers."""
        if total.spent > _MAX_SPENT:
            raise HatcastError(
                f"{self._path}: all days together would cost more than a ledger file can count: lower"
                " policy.privacy.epsilon under a new policy.name"
            )
        self._database.execute("UPDATE days SET day_limit = ? WHERE date = ?", (day.limit, date))
        self._database.execute("UPDATE total SET spent = ?, total_limit = ?", (total.spent, total.limit))


@contextmanager
def open_ledger(path: Path, policy: Policy, user_key: bytes | None = None) -> Iterator[LedgerFile]:
    """Open the ledger in a file, locked until the end; a new file is readable by its owner only.

    user_key   of the settings; None: generated with the file and stored in it

    Raises HatcastError: the file is not a ledger, in use or unreadable; its policy of this name has another policy_id,
    its policies another time zone, or its users another key; or the policy cannot replace the one that it names.
    """
    try:
        with open_locked(path, *PRAGMAS) as database:
            create_or_check(database, path)
            check_contents(database)
            with transaction(database, path):
                claim_policy(database, path, policy)
                pseudonyms = claim_user_key(database, path, user_key)
            ledger = LedgerFile(database, path, policy, Users(database, path, policy.name, pseudonyms))
            ledger.book_spent()
            yield ledger
    except sqlite3.OperationalError as error:
        raise unusable_error(path, error) from None
    except sqlite3.DatabaseError:
        raise damaged_error(path) from None
