"""Who entered the HATs in a ledger file: by it K binds a user's day over all runs of `hatcast batch`.    [decision 25]

It stands beside each record, written in the same step, and is not private: pseudonyms, and the key that makes them
unless it was given. A run hands it to its fold, which counts nobody twice and lets nobody into a HAT with a record.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import h3.api.basic_int as h3
import numpy as np

from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.pseudonyms import KEY_BYTES, PSEUDONYM_BYTES, Pseudonyms

_DATES: Final = 8  # kept in memory: records come by arrival
_GIVEN: Final = "worker.user_key_file or HATCAST_USER_KEY"


@dataclass(frozen=True, slots=True)
class Entered:
    """Who is in a HAT.

    vehicles   pseudonyms of those with readings, one after the other
    devices    of those with reports
    digest     of which readings and reports they are, without their values
    """

    vehicles: bytes = b""
    devices: bytes = b""
    digest: bytes = b""


NOBODY: Final = Entered()


class EarlierRuns:
    """What earlier runs have released, for the fold of readings (`vehicles`) or of reports (`devices`) of a policy.

    See `stream.fold.partition_fold.Earlier`. It is read date by date, as it stood when a date was first asked for: a
    run folds before it releases.
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

    def released(self, slot: str) -> Mapping[int, frozenset[bytes]]:
        """Return the users of each HAT of a slot (`date/slot`) that has its record, by H3 cell."""
        date, _, name = slot.partition("/")
        found = {}
        for place, users in self._of_date(date).items():
            cell, _, of = place.partition("/")
            if of == name:
                found[h3.str_to_int(cell)] = frozenset(_split(users))
        return found

    def _read(self, date: str) -> Mapping[str, bytes]:
        """`cell/slot` -> pseudonyms."""
        return dict(
            self._database.execute(
                f"SELECT place, {self._column} FROM entered WHERE date = ? AND policy = ?",  # noqa: S608 - one of two names
                (date, self._policy),
            )
        )


def _split(users: bytes) -> Iterable[bytes]:
    return (users[at : at + PSEUDONYM_BYTES] for at in range(0, len(users), PSEUDONYM_BYTES))


class Users:
    """The users of a policy in a ledger file.

    vehicles, devices   who has entered the HATs that have their records, for the folds of readings and of reports
    """

    def __init__(self, database: sqlite3.Connection, path: Path, policy: str, pseudonyms: Pseudonyms) -> None:
        self._database = database
        self._path = path
        self._policy = policy
        self.pseudonyms = pseudonyms
        self.vehicles = EarlierRuns(database, policy, "vehicles")
        self.devices = EarlierRuns(database, policy, "devices")

    def keep(self, date: str, place: str, who: Entered) -> None:
        """Keep who entered a HAT, also where nobody did, in the step that commits its record: nobody will any more."""
        row = (date, self._policy, place, who.vehicles, who.devices, who.digest)
        self._database.execute("INSERT INTO entered VALUES (?, ?, ?, ?, ?, ?)", row)

    def digest(self, date: str, place: str) -> bytes | None:
        """Return the digest of what a HAT's record was made from; None if it has no record."""
        row = self._database.execute(
            "SELECT digest FROM entered WHERE date = ? AND policy = ? AND place = ?", (date, self._policy, place)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def refuse_unknown(self, dates: Iterable[str]) -> None:
        """Raise HatcastError if one of the local dates was released while it was not kept who entered its HATs."""
        found = self._database.execute("SELECT date FROM unknown_users WHERE policy = ?", (self._policy,))
        unknown = sorted({date for (date,) in found}.intersection(dates))
        if unknown:
            raise HatcastError(
                f"{self._path}: {', '.join(unknown)}: released by an earlier version of hatcast, which did not keep who"
                " was counted where, so that max_hats_per_day could not bind: leave the records of that day out"
            )


def claim_user_key(database: sqlite3.Connection, path: Path, given: bytes | None) -> Pseudonyms:
    """Return the pseudonyms of a file: from the given key, else from one that is made once and kept in it.

    Raises HatcastError if the file was begun with another key: its users would count as others.
    """
    kept = database.execute("SELECT fingerprint, key FROM user_key").fetchone()
    if kept is None:
        made = Pseudonyms(secrets.token_bytes(KEY_BYTES) if given is None else given)
        database.execute("INSERT INTO user_key VALUES (?, ?)", (made.fingerprint, made.key if given is None else None))
        return made
    fingerprint, key = kept
    if given is None:
        if key is None:
            raise HatcastError(f"{path}: was begun with a user key of your own: give it again ({_GIVEN})")
        return Pseudonyms(key)
    ours = Pseudonyms(given)
    if ours.fingerprint != fingerprint:
        mend = "restore that one" if key is None else "it has its own: remove that setting"
        raise HatcastError(f"{path}: was begun with another user key than that of {_GIVEN}: {mend}")
    return ours
