"""Tables of a device's state file: messages that are to be sent, clusterings, day keys."""

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid import ID_BYTES
from hatcast.stream.hybrid.reports import KEY_BYTES, DayKey, device_id


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Stored report or answer; every attempt sends the same bytes."""

    number: int
    id: str  # key on the topic
    body: bytes
    sent_ms: int  # time (ms UTC) at which it was first due, wall clock or recorded
    # time (ms UTC) from which the operator rejects it: a watermark for a report, the wall clock for an answer
    closes_ms: int


class VehicleHat(NamedTuple):
    """HAT of one vehicle: it is reported once."""

    vehicle: str
    date: str
    slot: str
    cell: str


STORED = "number, id, body, sent_ms, closes_ms"  # columns of a `StoredMessage`


class MessageTable:
    """Table of messages, each `unsent`, `sent` or `expired`."""

    def __init__(
        self, connection: sqlite3.Connection, table: str, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Args: `transaction`, of the whole state file; it raises HatcastError if the disk write fails."""
        self._sql = connection
        self._table = table
        self._transaction = transaction

    def unsent(self) -> list[StoredMessage]:
        """Return the messages that no broker has acknowledged, in the order of their draws."""
        rows = self._sql.execute(f"SELECT {STORED} FROM {self._table} WHERE state = 'unsent' ORDER BY number")  # noqa: S608 - constants
        return [StoredMessage(*row) for row in rows]

    def mark(self, state: Literal["sent", "expired"], numbers: Iterable[int]) -> None:
        """Mark messages as acknowledged by the broker, or as too late to be counted: their charges stay spent."""
        with self._transaction():
            self._sql.executemany(
                f"UPDATE {self._table} SET state = ? WHERE number = ?",  # noqa: S608 - a constant
                [(state, number) for number in numbers],
            )

    def _insert(self, columns: str, row: tuple[str | int | bytes, ...], new: StoredMessage) -> StoredMessage:
        """Store an unsent message with these further columns; return it with its number."""
        row += (new.id, new.body, new.sent_ms, new.closes_ms)
        number = self._sql.execute(
            f"INSERT INTO {self._table} ({columns}, id, body, sent_ms, closes_ms)"  # noqa: S608 - constants
            f" VALUES ({', '.join('?' * len(row))})",
            row,
        ).lastrowid
        assert number is not None  # noqa: S101 - guaranteed by sqlite3 after an INSERT
        return replace(new, number=number)


# Clusterings in a device's state file: its own sums by HAT, and its answers as the bytes that are sent.
#
# The own sums are private and leave the device only through noise. They are stored only if the device answers
# clusterings, because a clustering of a day comes after the day. An answer is committed with its charge before it is
# sent.

CLUSTERINGS_SCHEMA: Final = """
CREATE TABLE own_sums (
    vehicle TEXT, date TEXT, slot TEXT, cell TEXT, count INTEGER NOT NULL, total INTEGER NOT NULL,
    PRIMARY KEY (vehicle, date, slot, cell)
) WITHOUT ROWID;
CREATE TABLE clusterings (
    vehicle TEXT, clustering TEXT, date TEXT NOT NULL, id TEXT NOT NULL, parameters BLOB NOT NULL,
    cost_nano INTEGER NOT NULL, PRIMARY KEY (vehicle, clustering)
) WITHOUT ROWID;
CREATE TABLE answers (
    number INTEGER PRIMARY KEY, vehicle TEXT NOT NULL, clustering TEXT NOT NULL, round INTEGER NOT NULL,
    date TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, sent_ms INTEGER NOT NULL, closes_ms INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'unsent' CHECK (state IN ('unsent', 'sent', 'expired')),
    UNIQUE (vehicle, clustering, round)
);
"""


@dataclass(frozen=True, slots=True)
class Joined:
    """A clustering that a device has answered: its id there, and the parameters of the first round."""

    id: str
    parameters: bytes


class AnswerStore(MessageTable):
    """Clusterings of an open state file. The caller opens the transactions, except those of the marks."""

    def __init__(self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        """Args: as of MessageTable."""
        super().__init__(connection, "answers", transaction)

    def add_sums(self, hat: VehicleHat, count: int, total: int) -> None:
        """Store the number of readings in a HAT and their sum in milli-units; the first ones of a HAT stay."""
        self._sql.execute("INSERT OR IGNORE INTO own_sums VALUES (?, ?, ?, ?, ?, ?)", (*hat, count, total))

    def sums(self, day: str) -> dict[str, list[tuple[str, int, int]]]:
        """Return vehicle -> (slot, count, total) of each of its HATs on a local date."""
        found: dict[str, list[tuple[str, int, int]]] = {}
        for vehicle, *row in self._sql.execute(
            "SELECT vehicle, slot, count, total FROM own_sums WHERE date = ? ORDER BY vehicle, slot, cell", (day,)
        ):
            found.setdefault(vehicle, []).append((row[0], row[1], row[2]))
        return found

    def spent(self, vehicle: str, day: str) -> int:
        """Return the cost (1e-9) of all clusterings of a local date that a vehicle has answered."""
        (cost,) = self._sql.execute(
            "SELECT coalesce(sum(cost_nano), 0) FROM clusterings WHERE vehicle = ? AND date = ?", (vehicle, day)
        ).fetchone()
        return int(cost)

    def joined(self, vehicle: str, clustering: str) -> Joined | None:
        """Return the clustering if the vehicle has answered it, or None."""
        row = self._sql.execute(
            "SELECT id, parameters FROM clusterings WHERE vehicle = ? AND clustering = ?", (vehicle, clustering)
        ).fetchone()
        return None if row is None else Joined(*row)

    def join(self, vehicle: str, clustering: str, day: str, parameters: bytes, cost_nano: int) -> Joined:
        """Store a clustering with its charge; return it with a new random id."""
        new = Joined(secrets.token_hex(ID_BYTES), parameters)
        row = (vehicle, clustering, day, new.id, parameters, cost_nano)
        self._sql.execute("INSERT INTO clusterings VALUES (?, ?, ?, ?, ?, ?)", row)
        return new

    def find(self, vehicle: str, clustering: str, number: int) -> StoredMessage | None:
        """Return the answer of a vehicle to a round, or None."""
        row = self._sql.execute(
            f"SELECT {STORED} FROM answers WHERE vehicle = ? AND clustering = ? AND round = ?",  # noqa: S608 - a constant
            (vehicle, clustering, number),
        ).fetchone()
        return None if row is None else StoredMessage(*row)

    def add(self, key: tuple[str, str, int], day: str, stored: StoredMessage) -> StoredMessage:
        """Store an answer to (vehicle, clustering, round) of a local date; return it with its number."""
        return self._insert("vehicle, clustering, round, date", (*key, day), stored)

    def forget(self, before: str) -> None:
        """Delete everything of the local dates before one."""
        self._sql.execute("DELETE FROM own_sums WHERE date < ?", (before,))
        self._sql.execute("DELETE FROM answers WHERE date < ?", (before,))
        self._sql.execute("DELETE FROM clusterings WHERE date < ?", (before,))


# Day keys in a device's state file: key pairs of one local date each, with which its reports are signed.
#
# A key is drawn at random and used by one vehicle on one date, so keys of two dates have nothing in common. It is
# deleted with the reports of its date.

DAY_KEYS_SCHEMA: Final = """
CREATE TABLE day_keys (
    id TEXT PRIMARY KEY, date TEXT NOT NULL, key BLOB NOT NULL, seed BLOB NOT NULL, certificate BLOB,
    taken INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX day_keys_by_date ON day_keys (date, taken);
"""

IsCertified = Callable[[str, bytes, bytes], bool]
"""Returns whether a certificate is valid, from local date, public key and certificate."""


class Certificate(NamedTuple):
    """Certificate of a public day key, issued for a local date."""

    date: str
    key: bytes
    certificate: bytes


class DayKeys:
    """Day keys of an open state file. The caller opens the transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection

    def make(self, day: str, number: int) -> list[bytes]:
        """Return the public keys of a local date in a fixed order, at least `number`: missing ones are drawn."""
        from hatcast.stream.hybrid.signatures import public_key

        for _ in range(number - len(self._keys(day))):
            seed = secrets.token_bytes(KEY_BYTES)
            key = public_key(seed)
            row = (device_id(key), day, key, seed)
            self._sql.execute("INSERT INTO day_keys (id, date, key, seed) VALUES (?, ?, ?, ?)", row)
        return self._keys(day)

    def _keys(self, day: str) -> list[bytes]:
        return [key for (key,) in self._sql.execute("SELECT key FROM day_keys WHERE date = ? ORDER BY id", (day,))]

    def install(self, certificates: Iterable[Certificate], is_certified: IsCertified | None = None) -> int:
        """Store the certificates of this file's keys; return their number. Those of other keys are ignored.

        is_certified   checks each of them; None: workers will
        Raises HatcastError for one that it rejects.
        """
        stored = 0
        for date, key, certificate in certificates:
            done = self._sql.execute(
                "UPDATE day_keys SET certificate = ? WHERE id = ? AND date = ?", (certificate, device_id(key), date)
            )
            if done.rowcount and is_certified is not None and not is_certified(date, key, certificate):
                raise HatcastError(
                    f"the certificate of {date} is not by an authority of these report keys, or its key is revoked:"
                    " ask the operator for new certificates; none was installed"
                )
            stored += done.rowcount
        return stored

    def has_certified(self) -> bool:
        """Return whether any key has a certificate."""
        found = self._sql.execute("SELECT 1 FROM day_keys WHERE certificate IS NOT NULL LIMIT 1").fetchone()
        return found is not None

    def take(self, day: str) -> str | None:
        """Return the id of a certified key of a local date that no vehicle uses, from now on in use; None: no key.

        In the order of the secret seeds: ids in the order in which vehicles take them would show which came first.
        """
        row = self._sql.execute(
            "SELECT id FROM day_keys WHERE date = ? AND taken = 0 AND certificate IS NOT NULL ORDER BY seed LIMIT 1",
            (day,),
        ).fetchone()
        if row is None:
            return None
        self._sql.execute("UPDATE day_keys SET taken = 1 WHERE id = ?", row)
        return str(row[0])

    def find(self, name: str) -> DayKey | None:
        """Return the certified key that an id follows from; None if the id is a random one."""
        row = self._sql.execute(
            "SELECT seed, certificate FROM day_keys WHERE id = ? AND certificate IS NOT NULL", (name,)
        ).fetchone()
        return None if row is None else DayKey(*row)

    def forget(self, before: str) -> None:
        """Delete the keys of the local dates before one."""
        self._sql.execute("DELETE FROM day_keys WHERE date < ?", (before,))
