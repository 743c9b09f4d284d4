"""Progress of a tracker in a ledger file: records of a date, and the state after the last settled one."""

import sqlite3
from pathlib import Path

from hatcast.agents.batch.ledger_database import transaction
from hatcast.stream.records.fields import SETTLEMENT


class TrackerDays:
    """Dates of one policy's tracker."""

    def __init__(self, database: sqlite3.Connection, path: Path, policy: str) -> None:
        self._database = database
        self._path = path
        self._policy = policy

    def records(self, date: str, *, settlement: bool = False) -> dict[str, bytes]:
        """Return release_id -> record of all records of a date; or only of those of its settlement, in order."""
        prefix = f"{self._policy}/{date}T" + (f"{SETTLEMENT}/" if settlement else "")
        rows = self._database.execute(
            "SELECT release_id, record FROM releases WHERE release_id BETWEEN ? AND ? ORDER BY release_id",
            (prefix, prefix + "~"),  # after every letter and digit
        )
        return {str(name): bytes(record) for name, record in rows}

    def state(self) -> bytes | None:
        """Return the state after the last settled date; None if there is none."""
        row = self._database.execute("SELECT state FROM tracker_states WHERE policy = ?", (self._policy,)).fetchone()
        return None if row is None else bytes(row[0])

    def store_state(self, date: str, state: bytes) -> None:
        """Store the state after a settled date. Raises HatcastError."""
        with transaction(self._database, self._path):
            self._database.execute(
                "INSERT OR REPLACE INTO tracker_states VALUES (?, ?, ?)", (self._policy, date, state)
            )
