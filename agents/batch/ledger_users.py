"""Users of the HATs in a ledger file, so that limits hold over all runs of `hatcast batch`.    [decisions/0025]

They are stored with each record, in the same transaction, and are not private: pseudonyms, and the user key unless the
operator sets one. A run passes them to its fold, which counts no user twice and adds no user to a HAT with a record.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import h3.api.basic_int as h3
import numpy as np

from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.vehicles import KEY_BYTES, PSEUDONYM_BYTES, Pseudonyms

_DATES: Final = 8  # cached in memory: records are in arrival order
_KEY_SETTINGS: Final = "worker.user_key_file or HATCAST_USER_KEY"


@dataclass(frozen=True, slots=True)
class Entered:
    """The users of a HAT."""

    vehicles: bytes = b""  # concatenated pseudonyms of the users with readings
    devices: bytes = b""  # concatenated pseudonyms of the users with reports
    digest: bytes = b""  # of the identities of the readings and reports, without their values


NO_USERS: Final = Entered()


class LedgerRuns:
    """Users and HATs of earlier runs, for a policy's fold of readings (`vehicles`) or of reports (`devices`).

    See `stream.fold.users.EarlierRuns`. Each date is read from the file once, at its first use: a run folds
    before it releases.
    """

    def __init__(self, database: sqlite3.Connection, policy: str, column: Literal["vehicles", "devices"]) -> None:
        self._database = database
        self._policy = policy
        self._column = column
        self._of_date = lru_cache(_DATES)(self._read)

    def entered(self, date: str) -> Mapping[bytes, int]:
        """Return how many HATs of a local date each user (pseudonym) has entered."""
        users = np.frombuffer(b"".join(self._of_date(date).values()), ">u8")
        pseudonyms, hats = np.unique(users, return_counts=True)
        named = (number.to_bytes(PSEUDONYM_BYTES, "big") for number in pseudonyms.tolist())
        return dict(zip(named, hats.tolist(), strict=True))

    def members(self, dates: Sequence[str]) -> Mapping[tuple[str, int], frozenset[bytes]]:
        """Return (`date/slot`, H3 cell) -> users of each HAT with a record, of consecutive local dates."""
        rows = self._database.execute(
            f"SELECT date, place, {self._column} FROM entered"  # noqa: S608 - one of two names
            " WHERE date BETWEEN ? AND ? AND policy = ?",
            (dates[0], dates[-1], self._policy),
        )
        found = {}
        for date, place, users in rows:
            cell, _, name = place.partition("/")
            found[f"{date}/{name}", h3.str_to_int(cell)] = frozenset(_split(users))
        return found

    def released(self, slot: str) -> Mapping[int, frozenset[bytes]]:
        """Return H3 cell -> users of each HAT of a slot (`date/slot`) that has a record."""
        date, _, name = slot.partition("/")
        found = {}
        for place, users in self._of_date(date).items():
            cell, _, of = place.partition("/")
            if of == name:
                found[h3.str_to_int(cell)] = frozenset(_split(users))
        return found

    def _read(self, date: str) -> Mapping[str, bytes]:
        """Return `cell/slot` -> pseudonyms of a date."""
        return dict(
            self._database.execute(
                f"SELECT place, {self._column} FROM entered WHERE date = ? AND policy = ?",  # noqa: S608 - one of two names
                (date, self._policy),
            )
        )


def _split(users: bytes) -> Iterable[bytes]:
    return (users[at : at + PSEUDONYM_BYTES] for at in range(0, len(users), PSEUDONYM_BYTES))


class LedgerUsers:
    """The users of a policy in a ledger file."""

    def __init__(self, database: sqlite3.Connection, policy: str, pseudonyms: Pseudonyms) -> None:
        self._database = database
        self._policy = policy
        self.pseudonyms = pseudonyms
        # vehicles, devices: users and HATs of earlier runs, for the folds of readings and of reports
        self.vehicles = LedgerRuns(database, policy, "vehicles")
        self.devices = LedgerRuns(database, policy, "devices")

    def store(self, date: str, place: str, who: Entered) -> None:
        """Store the users of a HAT, even if there are none, in the transaction that commits its record."""
        row = (date, self._policy, place, who.vehicles, who.devices, who.digest)
        self._database.execute("INSERT INTO entered VALUES (?, ?, ?, ?, ?, ?)", row)

    def digest(self, date: str, place: str) -> bytes | None:
        """Return the digest of the readings and reports behind a HAT's record, or None."""
        row = self._database.execute(
            "SELECT digest FROM entered WHERE date = ? AND policy = ? AND place = ?", (date, self._policy, place)
        ).fetchone()
        return None if row is None else bytes(row[0])


def claim_user_key(database: sqlite3.Connection, path: Path, given: bytes | None) -> Pseudonyms:
    """Return the pseudonyms of a file: from the given key, else from a key generated once and stored in the file.

    Raises HatcastError if the file was created with another key: each user would count as two.
    """
    stored = database.execute("SELECT fingerprint, key FROM user_key").fetchone()
    if stored is None:
        new = Pseudonyms(secrets.token_bytes(KEY_BYTES) if given is None else given)
        database.execute("INSERT INTO user_key VALUES (?, ?)", (new.fingerprint, new.key if given is None else None))
        return new
    fingerprint, key = stored
    if given is None:
        if key is None:
            raise HatcastError(f"{path}: was created with a user key of your own: give it again ({_KEY_SETTINGS})")
        return Pseudonyms(key)
    ours = Pseudonyms(given)
    if ours.fingerprint != fingerprint:
        fix = "restore that key" if key is None else "the file has its own key: remove that setting"
        raise HatcastError(f"{path}: was created with another user key than that of {_KEY_SETTINGS}: {fix}")
    return ours
