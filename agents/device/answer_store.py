"""Clusterings in a device's state file: its own sums by HAT, and its answers as the bytes that are sent.

The own sums are private and leave the device only through noise. They are stored only if the device answers
clusterings, because a clustering of a day comes after the day. An answer is committed with its charge before it is
sent.
"""

import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from hatcast.agents.device.message_table import STORED, MessageTable
from hatcast.agents.device.stored import Stored, VehicleHat
from hatcast.stream.hybrid import ID_BYTES

SCHEMA: Final = """
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
        row = (hat.vehicle, hat.date, hat.slot, hat.cell, count, total)
        self._sql.execute("INSERT OR IGNORE INTO own_sums VALUES (?, ?, ?, ?, ?, ?)", row)

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

    def find(self, vehicle: str, clustering: str, number: int) -> Stored | None:
        """Return the answer of a vehicle to a round, or None."""
        row = self._sql.execute(
            f"SELECT {STORED} FROM answers WHERE vehicle = ? AND clustering = ? AND round = ?",  # noqa: S608 - a constant
            (vehicle, clustering, number),
        ).fetchone()
        return None if row is None else Stored(*row)

    def add(self, key: tuple[str, str, int], day: str, stored: Stored) -> Stored:
        """Store an answer to (vehicle, clustering, round) of a local date; return it with its number."""
        number = self._sql.execute(
            "INSERT INTO answers (vehicle, clustering, round, date, id, body, sent_ms, closes_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, day, stored.id, stored.body, stored.sent_ms, stored.closes_ms),
        ).lastrowid
        assert number is not None  # noqa: S101 - guaranteed by sqlite3 after an INSERT
        return Stored(number, stored.id, stored.body, stored.sent_ms, stored.closes_ms)

    def forget(self, before: str) -> None:
        """Delete everything of the local dates before one."""
        self._sql.execute("DELETE FROM own_sums WHERE date < ?", (before,))
        self._sql.execute("DELETE FROM answers WHERE date < ?", (before,))
        self._sql.execute("DELETE FROM clusterings WHERE date < ?", (before,))
