"""What a device must not forget, in one SQLite file: ids of the day, and reports as the bytes that are sent.

A report is committed, and on the disk, before anything sends it; what was drawn and not committed was never seen. So
whatever is killed when, no HAT gets a second value, and no day more than it may cost. The file holds no means.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid import ID_BYTES

KEPT_DAYS: Final = 3  # besides the newest
_FORMAT: Final = 1
_SCHEMA: Final = """
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


@dataclass(frozen=True, slots=True)
class Stored:
    """A report as it is sent, always.

    id         its key on the topic
    sent_ms    the device's time base (ms UTC) when it was first due
    closes_ms  the clock from which the operator takes it no more
    """

    number: int
    id: str
    body: bytes
    sent_ms: int
    closes_ms: int


@dataclass(frozen=True, slots=True)
class Place:
    """A HAT of a vehicle: what is reported once."""

    vehicle: str
    date: str
    slot: str
    cell: str


@dataclass(frozen=True, slots=True)
class Times:
    """Of a report, see `Stored`; ms UTC."""

    sent_ms: int
    closes_ms: int


class Store:
    """An open state file. One process has it at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection
        self._before = str(connection.execute("SELECT before FROM forgotten").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block is durable after it, or nothing is. Raises HatcastError where the disk does not take it."""
        try:
            self._sql.execute("BEGIN IMMEDIATE")
            yield
            self.commit()
        except BaseException as error:
            with suppress(sqlite3.Error):  # it may have rolled back by itself
                self._sql.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise HatcastError(
                    f"the state file cannot be written ({' '.join(str(error).split())}): see to its disk and start"
                    " again; what is not stored was not sent"
                ) from None
            raise

    def commit(self) -> None:
        """The moment from which on what was drawn is what will be sent."""
        self._sql.execute("COMMIT")

    def is_forgotten(self, day: str) -> bool:
        """Whether reports of a local date may have been deleted: then nothing more is drawn for it."""
        return day < self._before

    def knows(self, place: Place) -> bool:
        """Whether it was reported."""
        found = self._sql.execute(
            "SELECT 1 FROM reports WHERE vehicle = ? AND date = ? AND slot = ? AND cell = ?",
            (place.vehicle, place.date, place.slot, place.cell),
        )
        return found.fetchone() is not None

    def spent(self, vehicle: str, day: str) -> tuple[int, int]:
        """(reports, what they cost in 1e-9 epsilon) of a vehicle's local date, under whatever policy."""
        reports, cost = self._sql.execute(
            "SELECT count(*), coalesce(sum(cost_nano), 0) FROM reports WHERE vehicle = ? AND date = ?", (vehicle, day)
        ).fetchone()
        return int(reports), int(cost)

    def id_of(self, vehicle: str, day: str) -> str:
        """The vehicle's id of a local date: random, and the same from then on."""
        found = self._sql.execute("SELECT id FROM ids WHERE vehicle = ? AND date = ?", (vehicle, day)).fetchone()
        if found is not None:
            return str(found[0])
        made = secrets.token_hex(ID_BYTES)
        self._sql.execute("INSERT INTO ids VALUES (?, ?, ?)", (vehicle, day, made))
        return made

    def add(self, place: Place, cost_nano: int, name: str, body: bytes, times: Times) -> Stored:
        """A report of an id `name`, unsent."""
        given = (*_values(place), cost_nano, name, body, times.sent_ms, times.closes_ms)
        number = self._sql.execute(
            "INSERT INTO reports (vehicle, date, slot, cell, cost_nano, id, body, sent_ms, closes_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            given,
        ).lastrowid
        assert number is not None  # noqa: S101 - sqlite3's own promise after an INSERT
        return Stored(number, name, body, times.sent_ms, times.closes_ms)

    def unsent(self) -> list[Stored]:
        """Those that no broker is known to have, in the order in which they were drawn."""
        rows = self._sql.execute(
            "SELECT number, id, body, sent_ms, closes_ms FROM reports WHERE state = 'unsent' ORDER BY number"
        )
        return [Stored(*row) for row in rows]

    def mark_sent(self, numbers: Iterable[int]) -> None:
        """The broker has them."""
        self._mark("sent", numbers)

    def mark_expired(self, numbers: Iterable[int]) -> None:
        """Nobody would take them any more; what they cost stays spent."""
        self._mark("expired", numbers)

    def _mark(self, state: str, numbers: Iterable[int]) -> None:
        with self.transaction():
            self._sql.executemany(
                "UPDATE reports SET state = ? WHERE number = ?", [(state, number) for number in numbers]
            )

    def forget_old(self, newest: str) -> None:
        """Delete the days long before a local date that was reported on, and never draw for them again."""
        before = (date.fromisoformat(newest) - timedelta(days=KEPT_DAYS)).isoformat()
        if before <= self._before:
            return
        with self.transaction():
            self._sql.execute("UPDATE forgotten SET before = ?", (before,))
            self._sql.execute("DELETE FROM reports WHERE date < ?", (before,))
            self._sql.execute("DELETE FROM ids WHERE date < ?", (before,))
        self._before = before


def _values(place: Place) -> tuple[str, str, str, str]:
    return place.vehicle, place.date, place.slot, place.cell


@contextmanager
def open_store(path: Path) -> Iterator[Store]:
    """The state file, made if it is missing, readable by its owner only.

    Raises HatcastError: it cannot be written, another process has it, or it is something else.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    except (OSError, sqlite3.OperationalError) as error:
        raise _refused(path, error) from None
    with closing(connection):
        try:
            _prepare(connection, path)
            for file in (path, path.with_name(f"{path.name}-wal")):  # also where they were made otherwise
                file.chmod(0o600)
        except (OSError, sqlite3.DatabaseError) as error:
            raise _refused(path, error) from None
        yield Store(connection)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # A log that is written ahead, and its every commit on the disk: a commit that returned outlives a power cut.
    for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN EXCLUSIVE")
    (form,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not form and not tables:
        for statement in filter(None, map(str.strip, _SCHEMA.split(";"))):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
    elif form != _FORMAT:
        raise HatcastError(f"{path} is no state of this version of `hatcast device`: name another file with --state")
    connection.execute("COMMIT")


def _refused(path: Path, error: Exception) -> HatcastError:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return HatcastError(f"{path} is in use by another device: give each its own file with --state")
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return HatcastError(f"{path} is no state of a device: name another file with --state")
    return HatcastError(f"{path} cannot be written ({' '.join(str(error).split())}): name another file with --state")
