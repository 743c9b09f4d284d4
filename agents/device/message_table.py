"""Messages of a device's state file that are to be sent: its reports, or its answers to clusterings."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from hatcast.agents.device.stored import Stored

STORED = "number, id, body, sent_ms, closes_ms"
"""Columns of a `Stored`."""


class MessageTable:
    """Table of messages, each `unsent`, `sent` or `expired`."""

    def __init__(
        self, connection: sqlite3.Connection, table: str, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Args: `transaction`, of the whole state file; it raises HatcastError if the disk write fails."""
        self._sql = connection
        self._table = table
        self._transaction = transaction

    def unsent(self) -> list[Stored]:
        """Return the messages that no broker has acknowledged, in the order of their draws."""
        rows = self._sql.execute(f"SELECT {STORED} FROM {self._table} WHERE state = 'unsent' ORDER BY number")  # noqa: S608 - constants
        return [Stored(*row) for row in rows]

    def mark_sent(self, numbers: Iterable[int]) -> None:
        """Mark messages as acknowledged by the broker."""
        self._mark("sent", numbers)

    def mark_expired(self, numbers: Iterable[int]) -> None:
        """Mark messages as too late to be counted; their charges stay spent."""
        self._mark("expired", numbers)

    def _mark(self, state: str, numbers: Iterable[int]) -> None:
        with self._transaction():
            self._sql.executemany(
                f"UPDATE {self._table} SET state = ? WHERE number = ?",  # noqa: S608 - a constant
                [(state, number) for number in numbers],
            )
