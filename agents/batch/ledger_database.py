"""SQLite database of a ledger file: its tables, version and transactions. See agents/batch/ledger_file.py."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hatcast.agents import sqlite
from hatcast.stream.errors import HatcastError

_APPLICATION_ID: Final = 0x68636C64  # "hcld": distinguishes the file from other databases
_VERSION: Final = 4
_HEAD_BYTES: Final = 72  # of a SQLite file; the last four are the application id
_WITHOUT_USERS: Final = 3  # the last version that did not store the users of a HAT
# No STRICT and no RETURNING: SQLite has them only since 2021, and Python uses the system's SQLite.
_USERS: Final = """
CREATE TABLE user_key (fingerprint TEXT NOT NULL, key BLOB);
CREATE TABLE entered (date TEXT, policy TEXT, place TEXT, vehicles BLOB NOT NULL, devices BLOB NOT NULL,
                      digest BLOB NOT NULL, PRIMARY KEY (date, policy, place)) WITHOUT ROWID;
CREATE TABLE unknown_users (date TEXT, policy TEXT, PRIMARY KEY (date, policy)) WITHOUT ROWID;
"""
_TRACKER: Final = """
CREATE TABLE IF NOT EXISTS tracker_states (policy TEXT PRIMARY KEY, date TEXT NOT NULL, state BLOB NOT NULL);
"""
_RUNNING: Final = """
CREATE TABLE IF NOT EXISTS running_sums (policy TEXT, horizon TEXT, cell TEXT, state BLOB NOT NULL,
                                         PRIMARY KEY (policy, horizon, cell)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS closed_horizons (policy TEXT, horizon TEXT, status TEXT NOT NULL,
                                            PRIMARY KEY (policy, horizon)) WITHOUT ROWID;
"""
SCHEMA: Final = """
CREATE TABLE policies (name TEXT PRIMARY KEY, policy_id TEXT NOT NULL, canonical BLOB NOT NULL);
CREATE TABLE successors (name TEXT PRIMARY KEY, from_date TEXT NOT NULL, successor TEXT NOT NULL);
CREATE TABLE releases (release_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE costs (date TEXT, policy TEXT, place TEXT, epsilon INTEGER NOT NULL,
                    PRIMARY KEY (date, policy, place)) WITHOUT ROWID;
CREATE TABLE days (date TEXT PRIMARY KEY, sequence INTEGER NOT NULL, day_limit INTEGER);
CREATE TABLE spent (date TEXT, policy TEXT, cap INTEGER NOT NULL, commits INTEGER NOT NULL, releases INTEGER NOT NULL,
                    epsilon INTEGER NOT NULL, PRIMARY KEY (date, policy));
CREATE TABLE fineness (date TEXT, policy TEXT, fineness INTEGER, charges INTEGER NOT NULL,
                       PRIMARY KEY (date, policy, fineness)) WITHOUT ROWID;
CREATE TABLE reservations (date TEXT, policy TEXT, query TEXT, places INTEGER NOT NULL, epsilon INTEGER NOT NULL,
                           PRIMARY KEY (date, policy, query)) WITHOUT ROWID;
CREATE TABLE total (spent INTEGER NOT NULL, total_limit INTEGER);
INSERT INTO total VALUES (0, NULL);
"""
ADDED: Final = _USERS + _TRACKER + _RUNNING
"""Tables that an older file lacks until `create_or_check` adds them."""

PRAGMAS: Final = ("synchronous = EXTRA",)  # FULL, and a deleted journal does not return after a power cut


def create_or_check(database: sqlite3.Connection, path: Path) -> None:
    """Create missing tables. Raises HatcastError if the file is not a ledger, or of another version.

    A file of the previous version does not contain the users of its HATs: `unknown_users` lists its dates.
    """
    with sqlite.transaction(database):
        application, version = sqlite.identity(database) or (_APPLICATION_ID, None)
        if application != _APPLICATION_ID:
            raise HatcastError(f"{path}: is not a ledger of hatcast; name another file as the ledger")
        if version is None:
            sqlite.execute_all(database, SCHEMA + _USERS)
        elif version == _WITHOUT_USERS:
            sqlite.execute_all(database, _USERS)
            database.execute("INSERT INTO unknown_users SELECT DISTINCT date, policy FROM spent WHERE commits > 0")
        elif version != _VERSION:
            raise HatcastError(f"{path}: was written by another version of hatcast: use that version")
        sqlite.execute_all(database, _TRACKER + _RUNNING)  # a file of this version may be older than both
        if version != _VERSION:
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_VERSION}")


def check_readable(database: sqlite3.Connection, path: Path) -> None:
    """Raise HatcastError if the file is not a ledger, or of a version whose charges this one cannot read."""
    application, version = sqlite.identity(database) or (None, None)
    if application != _APPLICATION_ID:
        raise HatcastError(f"{path}: is not a ledger of hatcast; name another file as the ledger")
    if version not in (_WITHOUT_USERS, _VERSION):
        raise HatcastError(f"{path}: was written by another version of hatcast: use that version")


@contextmanager
def transaction(database: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Run the block as one transaction; roll back if it raises. Raises HatcastError if the file cannot be written."""
    try:
        with sqlite.transaction(database):
            yield
    except sqlite3.OperationalError as error:
        raise unusable_error(path, error) from None


def damaged_error(path: Path) -> HatcastError:
    """Return the error for a file that SQLite cannot read. Never to name another one: it has none of the charges."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(sqlite.MAGIC) and int.from_bytes(head[-4:], "big") == _APPLICATION_ID:
        return HatcastError(
            f"{path}: is a damaged ledger: restore its last backup (docs/batch.md); do not go on with a new file, which"
            " has none of its charges: its days would be released and paid for again"
        )
    return HatcastError(
        f"{path}: is not a ledger of hatcast, or damaged: name its file, or, if it was one, restore its last backup"
        " (docs/batch.md); a new file has none of its charges"
    )


def unusable_error(path: Path, error: sqlite3.OperationalError) -> HatcastError:
    """Return the error for a file that SQLite cannot use."""
    if sqlite.is_damaged(error):  # such as "no such column", where the schema is damaged
        return damaged_error(path)
    if sqlite.is_locked(error):
        return HatcastError(f"{path}: is in use by another `hatcast batch`; wait until it has ended")
    return HatcastError(f"{path}: cannot be used as a ledger ({error}); name a file in a folder that you may write to")
