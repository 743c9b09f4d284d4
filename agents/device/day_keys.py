"""Day keys in a device's state file: key pairs of one local date each, with which its reports are signed.

A key is drawn at random and used by one vehicle on one date, so keys of two dates have nothing in common. It is deleted
with the reports of its date.
"""

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid.report_keys import KEY_BYTES, DayKey, device_id

SCHEMA: Final = """
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
