"""Running sums in a ledger file: the states of cells in a horizon, written with the records that follow from them."""

import sqlite3
from collections.abc import Sequence

from hatcast.stream.records.fields import Status
from hatcast.stream.release.continual_records import ContinualRelease


class Horizons:
    """The horizons of one policy."""

    def __init__(self, database: sqlite3.Connection, policy: str) -> None:
        self._database = database
        self._policy = policy

    def states(self, horizon: str, cells: Sequence[str]) -> list[bytes | None]:
        """Return the state of each cell in a horizon (first local date); None before its first slot."""
        run, found = self._database.execute, list[bytes | None]()
        for cell in cells:
            row = run(
                "SELECT state FROM running_sums WHERE policy = ? AND horizon = ? AND cell = ?",
                (self._policy, horizon, cell),
            ).fetchone()
            found.append(None if row is None else bytes(row[0]))
        return found

    def closed(self, horizon: str) -> Status | None:
        """Return the status with which a horizon has ended early; None: it has not."""
        row = self._database.execute(
            "SELECT status FROM closed_horizons WHERE policy = ? AND horizon = ?", (self._policy, horizon)
        ).fetchone()
        return None if row is None else Status(row[0])

    def store(self, release: ContinualRelease, closes: Status | None) -> None:
        """Store the state after a release, in the transaction that commits its record.

        closes   the status with which its horizon ends; None: it goes on
        """
        horizon = release.horizon.first
        if closes is not None:
            self._database.execute(
                "INSERT OR IGNORE INTO closed_horizons VALUES (?, ?, ?)", (self._policy, horizon, closes.value)
            )
        elif release.state is not None:
            self._database.execute(
                "INSERT OR REPLACE INTO running_sums VALUES (?, ?, ?, ?)",
                (self._policy, horizon, release.cell, release.state),
            )
