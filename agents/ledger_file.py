"""The ledger of `hatcast batch`: one file that holds what was released and charged.    [design 3: I1, I2; 4, Release]

The arithmetic is that of `agents/store/commit.lua`. A file is a domain: charges of all policies in it add up. One
process holds it at a time, and a commit is on the disk before `commit` returns.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from stream.accounting import DayLedger, DaySummary, PolicyDay, Total
from stream.errors import Refusal
from stream.policy import Policy
from stream.policy_table import differing_keys
from stream.release import Release, numbered

_APPLICATION_ID: Final = 0x68636C64  # "hcld": what tells the file from any other database
_VERSION: Final = 2
# No STRICT and no RETURNING: SQLite has them only since 2021, and Python takes the system's.
_SCHEMA: Final = """
CREATE TABLE policies (name TEXT PRIMARY KEY, policy_id TEXT NOT NULL, canonical BLOB NOT NULL);
CREATE TABLE successors (name TEXT PRIMARY KEY, from_date TEXT NOT NULL, successor TEXT NOT NULL);
CREATE TABLE releases (release_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE costs (date TEXT, policy TEXT, place TEXT, epsilon INTEGER NOT NULL,
                    PRIMARY KEY (date, policy, place)) WITHOUT ROWID;
CREATE TABLE days (date TEXT PRIMARY KEY, sequence INTEGER NOT NULL, day_limit INTEGER);
CREATE TABLE spent (date TEXT, policy TEXT, cap INTEGER NOT NULL, commits INTEGER NOT NULL, releases INTEGER NOT NULL,
                    epsilon INTEGER NOT NULL, PRIMARY KEY (date, policy));
CREATE TABLE fineness (date TEXT, policy TEXT, fineness INTEGER, charges INTEGER NOT NULL,
                       PRIMARY KEY (date, policy, fineness)) WITHOUT ROWID;
CREATE TABLE total (spent INTEGER NOT NULL, total_limit INTEGER);
INSERT INTO total VALUES (0, NULL);
"""
_DAYS: Final = 8  # kept in memory: releases come by date


class LedgerFile:
    """The records and day ledgers in a file, for one policy. Made by `open_ledger`."""

    def __init__(self, database: sqlite3.Connection, path: Path, policy: Policy) -> None:
        self._database = database
        self._path = path
        self.policy = policy
        self._days: dict[str, DayLedger] = {}

    @property
    def until(self) -> str | None:
        """The local date from which another policy in the file releases; None: all days are ours."""
        row = self._database.execute("SELECT from_date FROM successors WHERE name = ?", (self.policy.name,)).fetchone()
        return None if row is None else str(row[0])

    def find(self, release_id: str) -> bytes | None:
        """The one record of a HAT, if it is there already."""
        row = self._database.execute("SELECT record FROM releases WHERE release_id = ?", (release_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def commit(self, releases: Sequence[Release], now_ms: int) -> dict[str, bytes]:
        """Keep the releases with their charges, in order, in one durable step; a HAT that has a record keeps it.

        Returns the records that are in the file now, by release_id.
        Raises Refusal if the file cannot be written: then none of them is in it.
        """
        records = {}
        try:
            with _step(self._database, self._path):
                total = self._total()
                for release in releases:
                    record = self.find(release.release_id)
                    if record is None:
                        record = self._keep(release, self._day(release.date), total, now_ms)
                    records[release.release_id] = record
        except BaseException:
            self._days.clear()  # they may hold charges that the file does not
            raise
        return records

    def _keep(self, release: Release, day: DayLedger, total: Total, now_ms: int) -> bytes:
        run, ours = self._database.execute, (release.date, self.policy.name)
        run("INSERT OR IGNORE INTO days VALUES (?, 0, NULL)", (release.date,))
        run("UPDATE days SET sequence = sequence + 1 WHERE date = ?", (release.date,))
        run("INSERT OR IGNORE INTO spent VALUES (?, ?, ?, 0, 0, 0)", (*ours, self.policy.max_hats_per_day))
        if release.charge and not self._charge(release, day, total):
            release = release.exhausted()
        run("UPDATE spent SET commits = commits + 1 WHERE date = ? AND policy = ?", ours)
        (number,) = run("SELECT commits FROM spent WHERE date = ? AND policy = ?", ours).fetchone()
        record = numbered(release.record(now_ms), number)
        run("INSERT INTO releases VALUES (?, ?)", (release.release_id, record))
        return record

    def _charge(self, release: Release, day: DayLedger, total: Total) -> bool:
        """Book a release's charge; False if a limit does not allow it."""
        run, ours = self._database.execute, (release.date, self.policy.name)
        if not day.charge(self.policy, release.place, release.charge, total):
            return False
        spent = day.policies[self.policy.name].costs[release.place]
        run("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?)", (*ours, release.place, spent))
        run("UPDATE days SET day_limit = ? WHERE date = ?", (day.limit, release.date))
        run("UPDATE total SET spent = ?, total_limit = ?", (total.spent, total.limit))
        run(
            "UPDATE spent SET releases = releases + 1, epsilon = epsilon + ? WHERE date = ? AND policy = ?",
            (release.charge, *ours),
        )
        fineness = (*ours, release.fineness)
        run("INSERT OR IGNORE INTO fineness VALUES (?, ?, ?, 0)", fineness)
        run("UPDATE fineness SET charges = charges + 1 WHERE date = ? AND policy = ? AND fineness = ?", fineness)
        return True

    def summary(self, date: str) -> DaySummary:
        """A day's ledger, as `hats.budget` tells it."""
        day, own, run = self._day(date), self.policy.name, self._database.execute
        (sequence,) = run("SELECT sequence FROM days WHERE date = ?", (date,)).fetchone() or (0,)
        releases, epsilon = run(
            "SELECT releases, epsilon FROM spent WHERE date = ? AND policy = ?", (date, own)
        ).fetchone() or (0, 0)
        fineness = run("SELECT fineness, charges FROM fineness WHERE date = ? AND policy = ?", (date, own)).fetchall()
        return DaySummary(
            releases=releases,
            epsilon_sum=epsilon,
            epsilon_user_day=day.cost,
            shared=bool(day.policies.keys() - {own}),
            limit=day.limit,
            sequence=sequence,
            levels=day.levels,
            total=self._total(),
            own=day.own(own),
            fineness=dict(fineness),
        )

    def _day(self, date: str) -> DayLedger:
        """A day's charges, read once: this process holds the file, so nobody else adds any."""
        if (known := self._days.get(date)) is not None:
            return known
        if len(self._days) == _DAYS:
            self._days.clear()
        run, day = self._database.execute, DayLedger()
        (day.limit,) = run("SELECT day_limit FROM days WHERE date = ?", (date,)).fetchone() or (None,)
        caps = dict(run("SELECT policy, cap FROM spent WHERE date = ?", (date,)).fetchall())
        for policy, place, epsilon in run("SELECT policy, place, epsilon FROM costs WHERE date = ?", (date,)):
            day.policies.setdefault(policy, PolicyDay(caps[policy])).book(place, epsilon)
        self._days[date] = day
        return day

    def _total(self) -> Total:
        return Total(*self._database.execute("SELECT spent, total_limit FROM total").fetchone())


@contextmanager
def open_ledger(path: Path, policy: Policy) -> Iterator[LedgerFile]:
    """The ledger in a file, made if it is not there, held until the end.

    Raises Refusal: no ledger, in use, unreadable, its policy of this name has another policy_id, its policies another
    time zone; or the policy cannot follow the one that it replaces.
    """
    database = None
    try:
        # Transactions are begun by hand; timeout 0: whoever else holds the file is named at once.
        database = sqlite3.connect(path, timeout=0, isolation_level=None)
        _hold(database, path)
        with _step(database, path):
            _claim(database, path, policy)
        yield LedgerFile(database, path, policy)
    except sqlite3.OperationalError as error:
        raise _unusable(path, error) from None
    except sqlite3.DatabaseError:
        raise Refusal(f"{path}: is no ledger of hatcast, or damaged; name another file with --ledger") from None
    finally:
        if database is not None:
            database.close()


def _hold(database: sqlite3.Connection, path: Path) -> None:
    """Take the file for this process, durably written from here on, and make its tables if it is new."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA synchronous = EXTRA")  # FULL, and no journal that comes back after a power cut
    database.execute("BEGIN EXCLUSIVE")
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == 0 and tables == 0:
        for statement in _SCHEMA.split(";")[:-1]:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    elif application != _APPLICATION_ID:
        raise Refusal(f"{path}: is no ledger of hatcast; name another file with --ledger")
    elif version != _VERSION:
        raise Refusal(f"{path}: was written by another version of hatcast; use that one, or another file")
    database.execute("COMMIT")


def _claim(database: sqlite3.Connection, path: Path, policy: Policy) -> None:
    """Keep the policy of a first run; refuse another one under its name, and one that cannot follow the one before."""
    policies = {
        name: (policy_id, msgspec.json.decode(canonical), canonical)
        for name, policy_id, canonical in database.execute("SELECT name, policy_id, canonical FROM policies")
    }
    ours = policies.get(policy.name)
    if ours is not None and ours[0] != policy.policy_id:
        raise Refusal(
            f"{path}: policy {policy.name!r} was started with another {differing_keys(ours[2], policy.canonical)}: a"
            " policy does not change; restore it, or start the new one under a new policy.name"
        )
    for _, other, _ in policies.values():
        if other["timezone"] != policy.timezone:
            raise Refusal(
                f"{path}: its policies have the policy.timezone {other['timezone']!r}, and a day of one has to be a day"
                " of the others: use that"
            )
    if policy.replaces is not None and policy.from_date is not None:
        if policy.replaces not in policies:
            raise Refusal(
                f"{path}: no policy {policy.replaces!r} was ever run on it: correct policy.replaces, or remove it"
            )
        _follow(database, path, policy, policies[policy.replaces][1].get("from"))
    database.execute(
        "INSERT OR IGNORE INTO policies VALUES (?, ?, ?)", (policy.name, policy.policy_id, policy.canonical)
    )


def _follow(database: sqlite3.Connection, path: Path, policy: Policy, begins: str | None) -> None:
    """Keep the policy as the successor of the one that it replaces, which itself `begins` on a date."""
    run, old, first = database.execute, policy.replaces, str(policy.from_date)
    kept = run("SELECT from_date, successor FROM successors WHERE name = ?", (old,)).fetchone()
    if kept == (first, policy.name):
        return
    if kept is not None:
        raise Refusal(
            f"{path}: policy {old!r} is replaced by {kept[1]!r} from {kept[0]} on: let policy.replaces be {kept[1]!r},"
            " with a later policy.from"
        )
    if begins is not None and first <= begins:
        raise Refusal(f"{path}: policy.from {first}: {old!r} itself begins on {begins}: use a later date")
    (last,) = run("SELECT max(date) FROM spent WHERE policy = ?", (old,)).fetchone()
    if last is not None and last >= first:
        raise Refusal(f"{path}: policy.from {first} has begun: {old!r} has released {last} already; use a later date")
    run("INSERT INTO successors VALUES (?, ?, ?)", (old, first, policy.name))


@contextmanager
def _step(database: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All of the block, or nothing of it."""
    try:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise _unusable(path, error) from None
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _unusable(path: Path, error: sqlite3.OperationalError) -> Refusal:
    if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Refusal(f"{path}: is in use by another `hatcast batch`; wait until it has ended")
    return Refusal(f"{path}: cannot be used as a ledger ({error}); name a file in a folder that you may write to")
