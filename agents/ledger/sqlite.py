"""A ledger in a SQLite file that its process has locked: one table of rows."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from hatcast.agents import sqlite
from hatcast.agents.ledger.store import draw_nonces
from hatcast.stream.ledger.rows import COUNT
from hatcast.stream.ledger.view import DamagedRow, RowChanges, View, Wanted, number_of

SCHEMA: Final = """
CREATE TABLE ledger (key TEXT, field TEXT, value BLOB NOT NULL, PRIMARY KEY (key, field)) WITHOUT ROWID;
"""
_FIELDS: Final = 500  # of one statement: older versions of SQLite take 999 values
_EXACT: Final = 2**53
_PUT: Final = "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)"


class SqliteStore:
    """The rows of a file. Errors of sqlite3 pass through."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    async def read(self, wanted: Wanted) -> View:
        """Return rows: no other process changes any meanwhile."""
        return View(wanted, {key: dict(self._fields(key, fields)) for key, fields in wanted.items()})

    async def apply(self, changes: RowChanges) -> bool:
        """Apply all changes, in the open transaction or in one of its own; False if a condition does not hold."""
        with self._transaction():
            if not self._holds(changes):
                return False
            for (key, field), more in changes.add.items():
                total = self._number(key, field) + more
                if not 0 <= total < _EXACT:
                    raise DamagedRow(key)
                self._put(key, field, b"%d" % total)
            for (key, field), value in changes.raised.items():
                stored = self._get(key, field)
                if stored is None or (len(stored), stored) < (len(value), value):
                    self._put(key, field, value)
            self._database.executemany("DELETE FROM ledger WHERE key = ?", [(key,) for key in changes.deleted])
            draw_nonces(changes)
            for key, fields in changes.set.items():
                gone = [(key, field) for field, value in fields.items() if value is None]
                kept = [(key, field, value) for field, value in fields.items() if value is not None]
                self._database.executemany("DELETE FROM ledger WHERE key = ? AND field = ?", gone)
                self._database.executemany(_PUT, kept)
        return True

    def _holds(self, changes: RowChanges) -> bool:
        equal = ((key, name, value) for key, fields in changes.equal.items() for name, value in fields.items())
        return all(self._get(key, name) == value for key, name, value in equal) and all(
            self._number(*row) >= number for row, number in changes.at_least.items()
        )

    def _fields(self, key: str, fields: Collection[str] | None) -> Iterator[tuple[str, bytes]]:
        run = self._database.execute
        if fields is None:
            yield from run("SELECT field, value FROM ledger WHERE key = ?", (key,))
            return
        names = list(fields)
        for start in range(0, len(names), _FIELDS):
            some = names[start : start + _FIELDS]
            marks = ",".join("?" * len(some))
            yield from run(
                f"SELECT field, value FROM ledger WHERE key = ? AND field IN ({marks})",  # noqa: S608 - question marks
                (key, *some),
            )
        if COUNT in fields:
            yield COUNT, b"%d" % run("SELECT count(*) FROM ledger WHERE key = ?", (key,)).fetchone()

    def _get(self, key: str, field: str) -> bytes | None:
        row = self._database.execute("SELECT value FROM ledger WHERE key = ? AND field = ?", (key, field)).fetchone()
        return None if row is None else bytes(row[0])

    def _number(self, key: str, field: str) -> int:
        stored = self._get(key, field)
        return 0 if stored is None else number_of(key, stored)

    def _put(self, key: str, field: str, value: bytes) -> None:
        self._database.execute(_PUT, (key, field, value))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._database.in_transaction:
            yield
        else:
            with sqlite.transaction(self._database):
                yield
