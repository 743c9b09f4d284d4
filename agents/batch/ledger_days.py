"""Days of a ledger file: what each has cost so far, also for `hatcast budget`, which only reads the file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hatcast.agents.batch.ledger_checks import check_contents
from hatcast.agents.batch.ledger_database import check_readable, damaged_error, unusable_error
from hatcast.stream.accounting.ledger import DayLedger, DaySummary, PolicyDay, Reserved, Total
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys

_DAYS: Final = 8  # cached in memory: releases are ordered by date


class LedgerDays:
    """The days of a ledger file, for one policy."""

    def __init__(self, database: sqlite3.Connection, policy: Policy) -> None:
        self._database = database
        self.policy = policy
        self._days: dict[str, DayLedger] = {}

    @property
    def until(self) -> str | None:
        """The first local date of our next policy; None if there is none, so that all days are ours."""
        row = self._database.execute("SELECT from_date FROM successors WHERE name = ?", (self.policy.name,)).fetchone()
        return None if row is None else str(row[0])

    @property
    def next_policy(self) -> tuple[str, str] | None:
        """Name and first local date of our next policy; None if there is none."""
        row = self._database.execute(
            "SELECT successor, from_date FROM successors WHERE name = ?", (self.policy.name,)
        ).fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    @property
    def dates(self) -> list[str]:
        """The local dates with a ledger, oldest first."""
        return [str(date) for (date,) in self._database.execute("SELECT date FROM days ORDER BY date")]

    def summary(self, date: str) -> DaySummary:
        """Return a day's ledger, as published on `hats.budget`."""
        day, name, run = self._day(date), self.policy.name, self._database.execute
        ours = day.policies.get(name) or PolicyDay(self.policy.max_hats_per_day)
        (sequence,) = run("SELECT sequence FROM days WHERE date = ?", (date,)).fetchone() or (0,)
        (releases,) = run("SELECT releases FROM spent WHERE date = ? AND policy = ?", (date, name)).fetchone() or (0,)
        fineness = run("SELECT fineness, charges FROM fineness WHERE date = ? AND policy = ?", (date, name)).fetchall()
        return DaySummary(
            releases=releases,
            epsilon_sum=sum(ours.costs.values()),  # not summed by SQLite, which rounds beyond 64 bits
            epsilon_user_day=day.cost,
            shared=day.cost > ours.cost,
            limit=day.limit,
            sequence=sequence,
            levels=day.levels,
            total=self._total(),
            policy_levels=day.policy_levels(name),
            fineness=dict(fineness),
            queries=dict(ours.queries),
        )

    def _day(self, date: str) -> DayLedger:
        """Return a day's charges, cached: this process has locked the file, so no other process adds any."""
        if (known := self._days.get(date)) is not None:
            return known
        if len(self._days) == _DAYS:
            self._days.clear()
        run, day = self._database.execute, DayLedger()
        (day.limit,) = run("SELECT day_limit FROM days WHERE date = ?", (date,)).fetchone() or (None,)
        caps = dict(run("SELECT policy, cap FROM spent WHERE date = ?", (date,)).fetchall())
        for policy, place, epsilon in run("SELECT policy, place, epsilon FROM costs WHERE date = ?", (date,)):
            day.policies.setdefault(policy, PolicyDay(caps[policy])).add_charge(place, epsilon)
        for policy, query, *reserved in run(
            "SELECT policy, query, places, epsilon FROM reservations WHERE date = ?", (date,)
        ):
            day.policies.setdefault(policy, PolicyDay(caps[policy])).queries[query] = Reserved(*reserved)
        self._days[date] = day
        return day

    def _total(self) -> Total:
        return Total(*self._database.execute("SELECT spent, total_limit FROM total").fetchone())


@contextmanager
def read_ledger(path: Path, policy: Policy) -> Iterator[LedgerDays]:
    """Open the days of a ledger file for reading.

    Raises HatcastError: the file is missing, not a ledger, in use or unreadable, or has no such policy.
    """
    with _open_readable(path) as database:
        _check_policy(database, path, policy)
        yield LedgerDays(database, policy)


def ledger_records(path: Path) -> list[bytes]:
    """Return every stored record of a ledger file: releases and answers, of all policies. Raises as `read_ledger`."""
    with _open_readable(path) as database:
        return [bytes(record) for (record,) in database.execute("SELECT record FROM releases")]


@contextmanager
def _open_readable(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise HatcastError(f"{path}: no such file; `hatcast batch --ledger` creates it")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=0.0)) as database:
            check_readable(database, path)
            check_contents(database)
            yield database
    except sqlite3.OperationalError as error:
        raise unusable_error(path, error) from None
    except sqlite3.DatabaseError:
        raise damaged_error(path) from None


def _check_policy(database: sqlite3.Connection, path: Path, policy: Policy) -> None:
    """Raise HatcastError unless the file has this policy, unchanged."""
    rows = dict(database.execute("SELECT name, canonical FROM policies"))
    if policy.name not in rows:
        raise HatcastError(
            f"{path}: has no policy {policy.name!r}, but {', '.join(sorted(rows))}: name its file with --config"
        )
    if bytes(rows[policy.name]) != policy.canonical:
        changed = differing_keys(rows[policy.name], policy.canonical)
        raise HatcastError(f"{path}: has policy {policy.name!r} with another {changed}: name its file with --config")
