"""The ledger of `hatcast batch`: one file that holds what was released and charged.    [design 3: I1, I2; 4, Release]

The arithmetic is that of `agents/redis/commit.lua`. A file is a domain: charges of all policies in it add up. One
process holds it at a time, and a commit is on the disk before `commit` returns. With a record it keeps who entered the
HAT, so that K binds a user's day over all runs; so the file is not private.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from hatcast.agents.batch.ledger_database import hold, step, unusable
from hatcast.agents.batch.ledger_users import NOBODY, Entered, Users, claim_user_key
from hatcast.stream.accounting.ledger import DayLedger, DaySummary, PolicyDay, Reserved, Total
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.queries import CELLS, reservations
from hatcast.stream.release.hats import Release, Status, numbered
from hatcast.stream.release.queries import QueryRelease

_MOST_SPENT: Final = 2**63 - 1  # 1e-9: what SQLite keeps as an integer
_DAYS: Final = 8  # kept in memory: releases come by date
_NOBODY: Final[Mapping[str, Entered]] = MappingProxyType({})


class LedgerFile:
    """The records and day ledgers in a file, for one policy. Made by `open_ledger`.

    users   who has entered the HATs that have their records
    """

    def __init__(self, database: sqlite3.Connection, path: Path, policy: Policy, users: Users) -> None:
        self._database = database
        self._path = path
        self.policy = policy
        self.users = users
        self._days: dict[str, DayLedger] = {}

    @property
    def until(self) -> str | None:
        """The local date from which another policy in the file releases; None: all days are ours."""
        row = self._database.execute("SELECT from_date FROM successors WHERE name = ?", (self.policy.name,)).fetchone()
        return None if row is None else str(row[0])

    def find(self, release_id: str) -> bytes | None:
        """The one record of a HAT or an answer, if it is there already."""
        row = self._database.execute("SELECT record FROM releases WHERE release_id = ?", (release_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def commit(
        self,
        releases: Sequence[Release | QueryRelease],
        now_ms: int,
        entered: Mapping[str, Entered] = _NOBODY,
    ) -> dict[str, bytes]:
        """Keep the releases with their charges, in order, in one durable step; what has a record keeps it.

        With each HAT's record it keeps who has `entered` it, by release_id.

        A date's first HAT reserves what the queries cost that read it, and an answer what its query costs on those days
        of its period that had no HAT. Returns the records that are in the file now, by release_id.
        Raises HatcastError if the file cannot be written: then none of them is in it.
        """
        records = {}
        try:
            with step(self._database, self._path):
                total = self._total()
                for release in releases:
                    record = self.find(release.release_id)
                    if record is None:
                        record = self._keep(release, total, now_ms)
                        if isinstance(release, Release):
                            self.users.keep(release.date, release.place, entered.get(release.release_id, NOBODY))
                    records[release.release_id] = record
        except BaseException:
            self._days.clear()  # they may hold charges that the file does not
            raise
        return records

    def book_spent(self) -> None:
        """Book what a private list of cells has cost on those of its days on which it is not booked yet, in one step.

        Raises HatcastError if the file cannot be written.
        """
        dates = [] if self.policy.chosen is None else self.policy.chosen.dates
        if not dates:
            return
        with step(self._database, self._path):
            settled, total = self._places(CELLS, dates), self._total()
            for date in dates:
                if date not in settled:
                    self._change(date)
                    self._reserve(date, {CELLS: reservations(self.policy, date)[CELLS]}, total)

    def _keep(self, release: Release | QueryRelease, total: Total, now_ms: int) -> bytes:
        run, ours = self._database.execute, (release.date, self.policy.name)
        self._change(release.date)
        if isinstance(release, QueryRelease):
            has_room = self._has_reserved(release, total) or release.status is not Status.RELEASED
        else:
            self._reserve(release.date, reservations(self.policy, release.date), total)
            has_room = not release.charge or self._charge(release, total)
        if not has_room:
            release = release.exhausted()
        run("UPDATE spent SET commits = commits + 1 WHERE date = ? AND policy = ?", ours)
        (number,) = run("SELECT commits FROM spent WHERE date = ? AND policy = ?", ours).fetchone()
        record = numbered(release.record(now_ms), number)
        run("INSERT INTO releases VALUES (?, ?)", (release.release_id, record))
        return record

    def _change(self, date: str) -> None:
        """One more change of a day's ledger."""
        run = self._database.execute
        run("INSERT OR IGNORE INTO days VALUES (?, 0, NULL)", (date,))
        run("UPDATE days SET sequence = sequence + 1 WHERE date = ?", (date,))
        run(
            "INSERT OR IGNORE INTO spent VALUES (?, ?, ?, 0, 0, 0)",
            (date, self.policy.name, self.policy.max_hats_per_day),
        )

    def _reserve(self, date: str, wanted: Mapping[str, Reserved], total: Total) -> None:
        """Settle what queries of ours cost on a date, those that are not settled yet."""
        day = self._day(date)
        new = day.reserve(self.policy, wanted, total)
        if not new:
            return
        reserved = day.policies[self.policy.name].queries
        self._database.executemany(
            "INSERT INTO reservations VALUES (?, ?, ?, ?, ?)",
            [(date, self.policy.name, name, reserved[name].places, reserved[name].epsilon) for name in new],
        )
        self._limit(date, day, total)

    def _has_reserved(self, release: QueryRelease, total: Total) -> bool:
        """Whether all days of an answer's period have room for its query; those that are not settled are asked now."""
        query, dates = release.asked.query.name, release.asked.period.dates
        settled = self._places(query, dates)
        for date in dates:
            if date not in settled:
                self._change(date)
                self._reserve(date, {query: reservations(self.policy, date)[query]}, total)
        return all(self._places(query, dates).values())

    def _places(self, query: str, dates: Sequence[str]) -> dict[str, int]:
        """Date -> the places that are reserved for a query, of those that are settled; without reading the charges."""
        return dict(
            self._database.execute(
                "SELECT date, places FROM reservations WHERE policy = ? AND query = ? AND date BETWEEN ? AND ?",
                (self.policy.name, query, dates[0], dates[-1]),
            )
        )

    def _charge(self, release: Release, total: Total) -> bool:
        """Book a release's charge; False if a limit does not allow it."""
        run, ours, day = self._database.execute, (release.date, self.policy.name), self._day(release.date)
        if not day.charge(self.policy, release.place, release.charge, total):
            return False
        spent = day.policies[self.policy.name].costs[release.place]
        run("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?)", (*ours, release.place, spent))
        self._limit(release.date, day, total)
        run("UPDATE spent SET releases = releases + 1 WHERE date = ? AND policy = ?", ours)
        fineness = (*ours, release.fineness)
        run("INSERT OR IGNORE INTO fineness VALUES (?, ?, ?, 0)", fineness)
        run("UPDATE fineness SET charges = charges + 1 WHERE date = ? AND policy = ? AND fineness = ?", fineness)
        return True

    def _limit(self, date: str, day: DayLedger, total: Total) -> None:
        """Keep what binds a day and all days after a charge. Raises HatcastError beyond the numbers of a ledger file."""
        if total.spent > _MOST_SPENT:
            raise HatcastError(
                f"{self._path}: all days together would cost more than a ledger file can count: name another file with"
                " --ledger, or lower policy.privacy.epsilon under a new policy.name"
            )
        self._database.execute("UPDATE days SET day_limit = ? WHERE date = ?", (day.limit, date))
        self._database.execute("UPDATE total SET spent = ?, total_limit = ?", (total.spent, total.limit))

    def summary(self, date: str) -> DaySummary:
        """A day's ledger, as `hats.budget` tells it."""
        day, own, run = self._day(date), self.policy.name, self._database.execute
        ours = day.policies.get(own) or PolicyDay(self.policy.max_hats_per_day)
        (sequence,) = run("SELECT sequence FROM days WHERE date = ?", (date,)).fetchone() or (0,)
        (releases,) = run("SELECT releases FROM spent WHERE date = ? AND policy = ?", (date, own)).fetchone() or (0,)
        fineness = run("SELECT fineness, charges FROM fineness WHERE date = ? AND policy = ?", (date, own)).fetchall()
        return DaySummary(
            releases=releases,
            epsilon_sum=sum(ours.costs.values()),  # not added up by SQLite, which rounds beyond 64 bits
            epsilon_user_day=day.cost,
            shared=day.cost > ours.cost,
            limit=day.limit,
            sequence=sequence,
            levels=day.levels,
            total=self._total(),
            own=day.own(own),
            fineness=dict(fineness),
            queries=dict(ours.queries),
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
        for policy, query, *reserved in run(
            "SELECT policy, query, places, epsilon FROM reservations WHERE date = ?", (date,)
        ):
            day.policies.setdefault(policy, PolicyDay(caps[policy])).queries[query] = Reserved(*reserved)
        self._days[date] = day
        return day

    def _total(self) -> Total:
        return Total(*self._database.execute("SELECT spent, total_limit FROM total").fetchone())


@contextmanager
def open_ledger(path: Path, policy: Policy, user_key: bytes | None = None) -> Iterator[LedgerFile]:
    """The ledger in a file, made if it is not there (for its owner alone), held until the end.

    user_key   of the settings; None: made with the file and kept in it

    Raises HatcastError: no ledger, in use, unreadable, its policy of this name has another policy_id, its policies another
    time zone, its users another key; or the policy cannot follow the one that it replaces.
    """
    database = None
    try:
        with suppress(OSError):  # SQLite says what is wrong with the place
            path.touch(mode=0o600, exist_ok=False)
        # Transactions are begun by hand; timeout 0: whoever else holds the file is named at once.
        database = sqlite3.connect(path, timeout=0, isolation_level=None)
        hold(database, path)
        with step(database, path):
            _claim(database, path, policy)
            pseudonyms = claim_user_key(database, path, user_key)
        ledger = LedgerFile(database, path, policy, Users(database, path, policy.name, pseudonyms))
        ledger.book_spent()
        yield ledger
    except sqlite3.OperationalError as error:
        raise unusable(path, error) from None
    except sqlite3.DatabaseError:
        raise HatcastError(f"{path}: is no ledger of hatcast, or damaged; name another file with --ledger") from None
    finally:
        if database is not None:
            database.close()


def _claim(database: sqlite3.Connection, path: Path, policy: Policy) -> None:
    """Keep the policy of a first run; refuse another one under its name, and one that cannot follow the one before."""
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
                f"{path}: its policies have the policy.timezone {other['timezone']!r}, and a day of one has to be a day"
                " of the others: use that"
            )
    if policy.replaces is not None and policy.from_date is not None:
        if policy.replaces not in policies:
            raise HatcastError(
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
        raise HatcastError(
            f"{path}: policy {old!r} is replaced by {kept[1]!r} from {kept[0]} on: let policy.replaces be {kept[1]!r},"
            " with a later policy.from"
        )
    if begins is not None and first <= begins:
        raise HatcastError(f"{path}: policy.from {first}: {old!r} itself begins on {begins}: use a later date")
    (last,) = run("SELECT max(date) FROM spent WHERE policy = ? AND commits > 0", (old,)).fetchone()
    if last is not None and last >= first:
        raise HatcastError(
            f"{path}: policy.from {first} has begun: {old!r} has released {last} already; use a later date"
        )
    run("INSERT INTO successors VALUES (?, ?, ?)", (old, first, policy.name))
