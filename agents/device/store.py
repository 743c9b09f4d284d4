"""State file of a device, in SQLite: daily ids, and reports as the bytes that are sent.

A report is committed and synced to disk before it is sent; a draw that was not committed was never sent. So even after
a kill no HAT gets a second value and no day exceeds its limit. The same holds for answers to clusterings, `answers`.
The file holds the device's own sums only if it answers them.
"""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from hatcast.agents import sqlite
from hatcast.agents.device.stored import (
    CLUSTERINGS_SCHEMA,
    DAY_KEYS_SCHEMA,
    AnswerStore,
    DayKeys,
    MessageTable,
    StoredMessage,
    VehicleHat,
)
from hatcast.agents.recordings import pinned
from hatcast.agents.recordings.pinned import PinnedReadings
from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid import ID_BYTES
from hatcast.stream.hybrid.reports import DayKey

RETENTION_DAYS: Final = 3  # before the newest
_FORMAT: Final = 2
# Write-ahead log, synced at every commit: a commit that has returned survives a power cut. What is deleted is
# overwritten: ids and keys of past days would link them.
_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")
_SCHEMA: Final = (
    """
CREATE TABLE ids (vehicle TEXT, date TEXT, id TEXT NOT NULL, PRIMARY KEY (vehicle, date)) WITHOUT ROWID;
CREATE TABLE reports (
    number INTEGER PRIMARY KEY, vehicle TEXT NOT NULL, date TEXT NOT NULL, slot TEXT NOT NULL, cell TEXT NOT NULL,
    cost_nano INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, sent_ms INTEGER NOT NULL,
    closes_ms INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'unsent' CHECK (state IN ('unsent', 'sent', 'expired')),
    UNIQUE (vehicle, date, slot, cell)
);
CREATE INDEX unsent ON reports (number) WHERE state = 'unsent';
CREATE TABLE forgotten (before TEXT NOT NULL);
INSERT INTO forgotten VALUES ('');
"""
    + CLUSTERINGS_SCHEMA
    + DAY_KEYS_SCHEMA
    + pinned.SCHEMA
)


class DeviceStore(MessageTable):
    """Open state file, and table of its reports. Only one process can open it at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, "reports", self.transaction)
        self.answers = AnswerStore(connection, self.transaction)  # its answers to clusterings
        self.keys = DayKeys(connection)  # day keys with which its reports are signed
        self.readings = PinnedReadings(connection, path)  # how the readings of its reports were read
        found = connection.execute("SELECT before FROM forgotten").fetchone()
        if found is None:
            raise sqlite.damaged()
        self._forgotten_before = str(found[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block, or none. Raises HatcastError if the disk write fails."""
        with _written(), sqlite.transaction(self._sql):
            yield
            self.commit()

    def commit(self) -> None:
        """Commit the transaction: from here on the drawn reports are final."""
        self._sql.execute("COMMIT")

    def is_forgotten(self, day: str) -> bool:
        """Return whether reports of a local date may have been deleted: then none is drawn for it."""
        return day < self._forgotten_before

    def is_reported(self, key: VehicleHat) -> bool:
        """Return whether the HAT has a report."""
        rows = self._sql.execute("SELECT 1 FROM reports WHERE vehicle = ? AND date = ? AND slot = ? AND cell = ?", key)
        return rows.fetchone() is not None

    def spent(self, vehicle: str, day: str) -> tuple[int, int]:
        """Return (number of reports, charges in 1e-9 epsilon) of a vehicle's local date, under all policies.

        The charges are those of its reports and of the clusterings that it has answered.
        """
        reports, cost = self._sql.execute(
            "SELECT count(*), coalesce(sum(cost_nano), 0) FROM reports WHERE vehicle = ? AND date = ?", (vehicle, day)
        ).fetchone()
        return int(reports), int(cost) + self.answers.spent(vehicle, day)

    def id_of(self, vehicle: str, day: str) -> str:
        """Return the vehicle's id of a local date: drawn at random once, then stored."""
        return self._stored_id(vehicle, day) or self._store_id(vehicle, day, secrets.token_hex(ID_BYTES))

    def signing_id_of(self, vehicle: str, day: str) -> tuple[str, DayKey] | None:
        """Return the vehicle's id of a local date and the key that it follows from: a certified one, taken once.

        None if no certified key of the date is left, or if the vehicle has reported under a random id on that date.
        """
        found = self._stored_id(vehicle, day)
        if found is None:
            taken = self.keys.take(day)
            if taken is None:
                return None
            found = self._store_id(vehicle, day, taken)
        key = self.keys.find(found)
        return None if key is None else (found, key)

    def _stored_id(self, vehicle: str, day: str) -> str | None:
        row = self._sql.execute("SELECT id FROM ids WHERE vehicle = ? AND date = ?", (vehicle, day)).fetchone()
        return None if row is None else str(row[0])

    def _store_id(self, vehicle: str, day: str, new: str) -> str:
        self._sql.execute("INSERT INTO ids VALUES (?, ?, ?)", (vehicle, day, new))
        return new

    def add(self, key: VehicleHat, cost_nano: int, new: StoredMessage) -> StoredMessage:
        """Store an unsent report; return it with its number."""
        return self._insert("vehicle, date, slot, cell, cost_nano", (*key, cost_nano), new)

    def forget_old(self, newest: str) -> None:
        """Delete the days more than RETENTION_DAYS before a reported local date; nothing is drawn for them again."""
        before = (date.fromisoformat(newest) - timedelta(days=RETENTION_DAYS)).isoformat()
        if before <= self._forgotten_before:
            return
        with self.transaction():
            self._sql.execute("UPDATE forgotten SET before = ?", (before,))
            self._sql.execute("DELETE FROM reports WHERE date < ?", (before,))
            self._sql.execute("DELETE FROM ids WHERE date < ?", (before,))
            self.answers.forget(before)
            self.keys.forget(before)
            self.readings.forget_dates(before)
        with _written():
            self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has the deleted rows too
        self._forgotten_before = before


@contextmanager
def _written() -> Iterator[None]:
    """Raise HatcastError if the disk write of the block fails."""
    try:
        yield
    except sqlite3.Error as error:
        if sqlite.is_damaged(error):
            raise  # `open_store` names the file
        raise HatcastError(
            f"the state file cannot be written ({' '.join(str(error).split())}): check its disk and start again;"
            " nothing that is not stored was sent"
        ) from None


@contextmanager
def open_store(path: Path) -> Iterator[DeviceStore]:
    """Open the state file; create it if it is missing, readable by its owner only.

    Raises HatcastError if it is not writable, in use by another process, not a state file, or damaged, also where that
    is found later.
    """
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            database = stack.enter_context(sqlite.open_locked(path, *_PRAGMAS, wait_s=1.0))
            with sqlite.transaction(database):
                found = sqlite.identity(database)
                if found is None:
                    sqlite.execute_all(database, _SCHEMA)
                    database.execute(f"PRAGMA user_version = {_FORMAT}")
                elif found[1] != _FORMAT:
                    raise HatcastError(
                        f"{path} is not a state file of this version of `hatcast device`: name another file with"
                        " --state"
                    )
            sqlite.check_structure(database)
            store = DeviceStore(database, path)
            _check_contents(database)
            for file in (path, path.with_name(f"{path.name}-wal")):  # also if they existed with other permissions
                file.chmod(0o600)
        except (OSError, sqlite3.DatabaseError) as error:
            raise _open_error(path, error) from None
        try:
            yield store
        except sqlite3.DatabaseError as error:
            raise _open_error(path, error) from None


def _check_contents(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if tables or values are not those of a state file."""
    sqlite.check_schema(database, _SCHEMA)
    sqlite.check_types(database)
    for table in ("reports", "clusterings"):
        if database.execute(f"SELECT 1 FROM {table} WHERE cost_nano < 0 LIMIT 1").fetchone():  # noqa: S608 - constants
            raise sqlite.damaged()


def _open_error(path: Path, error: Exception) -> HatcastError:
    if isinstance(error, sqlite3.Error) and sqlite.is_locked(error):
        return HatcastError(f"{path} is in use by a running device: stop it, or give each its own file with --state")
    if isinstance(error, sqlite3.Error) and sqlite.is_foreign(error):
        return HatcastError(f"{path} is not a state file of a device: name another file with --state")
    if isinstance(error, sqlite3.Error) and sqlite.is_damaged(error):
        return HatcastError(
            f"{path} is a damaged state file: name another one with --state once the days that it has reports of are"
            " over; before, the device would draw for them again (docs/device.md)"
        )
    return HatcastError(f"{path} cannot be written ({' '.join(str(error).split())}): name another file with --state")
