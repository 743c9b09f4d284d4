"""Days of a ledger file: what each has cost so far, also for `hatcast budget show`, which only reads the file; and
estimates and running means from a ledger file or a dump.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hatcast.agents.batch.ledger_database import opened
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import Dump
from hatcast.agents.ledger.sqlite import SqliteStore
from hatcast.agents.ledger.store import at_once, decide
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.summary import DaySummary, summary_of, summary_rows
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.ledger.view import Decision, RowChanges
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.records import ReleaseRecord
from hatcast.stream.running.running import running_means_of
from hatcast.stream.tracker.observations import read_release
from hatcast.stream.tracker.smoother import estimates_of


class LedgerDays:
    """The days of a ledger file, for one policy."""

    def __init__(self, database: sqlite3.Connection, policy: Policy) -> None:
        self._database = database
        self._store = SqliteStore(database)
        self.policy = policy

    @property
    def until(self) -> str | None:
        """The first local date of our next policy; None if there is none, so that all days are ours."""
        return None if self.next_policy is None else self.next_policy[1]

    @property
    def next_policy(self) -> tuple[str, str] | None:
        """Name and first local date of our next policy; None if there is none."""
        name = self.policy.name
        stored = at_once(self._store.read({rows.NEXT_POLICIES: {name}})).get(rows.NEXT_POLICIES, name)
        if stored is None:
            return None
        found = NextPolicy.of(stored)
        return found.name, found.from_date

    @property
    def dates(self) -> list[str]:
        """The local dates with a ledger, oldest first."""
        return sorted(at_once(self._store.read({rows.NONCES: None})).whole(rows.NONCES).keys() - {rows.TOTAL})

    def summary(self, date: str) -> DaySummary:
        """Return a day's ledger, as published on `hats.budget`."""
        name = self.policy.name
        return at_once(
            decide(
                self._store,
                summary_rows(date, name),
                lambda view: Decision(summary_of(view, self.policy, date), RowChanges()),
            )
        )


@contextmanager
def read_ledger(path: Path, policy: Policy) -> Iterator[LedgerDays]:
    """Open the days of a ledger file for reading.

    Raises HatcastError: the file is missing, not a ledger, in use or unreadable, or has no such policy.
    """
    with _open_readable(path) as database:
        policies = dict(database.execute("SELECT name, canonical FROM policies"))
        if policy.name not in policies:
            raise HatcastError(
                f"{path}: has no policy {policy.name!r}, but {', '.join(sorted(policies))}: name its file with --config"
            )
        if bytes(policies[policy.name]) != policy.canonical:
            changed = differing_keys(policies[policy.name], policy.canonical)
            raise HatcastError(
                f"{path}: has policy {policy.name!r} with another {changed}: name its file with --config"
            )
        yield LedgerDays(database, policy)


def ledger_records(path: Path) -> list[bytes]:
    """Return every stored record of a ledger file: releases and answers, of all policies. Raises as `read_ledger`."""
    with _open_readable(path) as database:
        return list(stored_records(database))


def stored_records(database: sqlite3.Connection) -> Iterator[bytes]:
    """Yield every stored record: releases and answers, of all policies."""
    for (record,) in database.execute("SELECT value FROM ledger WHERE key >= 'releases:' AND key < 'releases;'"):
        yield bytes(record)


@contextmanager
def _open_readable(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise HatcastError(f"{path}: no such file; `hatcast batch --ledger` creates it")
    with opened(path, "ro") as database:
        yield database


def estimates(values: Iterable[bytes], policy: Policy) -> Iterator[bytes]:
    """Yield the estimate records of a policy, in the order in which a worker publishes them.

    values   of records, in any order; those that are not releases of the policy are left out
    """
    return map(msgspec.json.encode, estimates_of(policy, _releases(values, policy)))


def running_means(values: Iterable[bytes], policy: Policy) -> Iterator[bytes]:
    """Yield the running means of a policy, in the order in which a worker publishes them. values: as of `estimates`."""
    return map(msgspec.json.encode, running_means_of(policy, _releases(values, policy)))


def _releases(values: Iterable[bytes], policy: Policy) -> Iterator[ReleaseRecord]:
    return (record for value in values if (record := read_release(value, policy)) is not None)


def dumped_values(dump: Dump, settings: Settings, name: str) -> Iterator[bytes]:
    """Yield the values of a dump of `hats.means`. name: of its files. Raises RecordingError for another topic."""
    if dump.head.topic != settings.topics.means:
        raise RecordingError(
            name, f"is a dump of {dump.head.topic}, not of {settings.topics.means}", "give `hatcast dump means`"
        )
    return (line.value for line in dump if line.value is not None)
