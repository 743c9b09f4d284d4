"""SQLite database of a ledger file: tables, version, checks, transactions, and backups."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal

from hatcast.agents import sqlite
from hatcast.agents.ledger.sqlite import SCHEMA as ROWS
from hatcast.agents.recordings.pinned import SCHEMA as READ_AS
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger.checks import check_rows
from hatcast.stream.ledger.view import DamagedRow

_APPLICATION_ID: Final = 0x68636C64  # "hcld": distinguishes the file from other databases
_VERSION: Final = 5
_HEAD_BYTES: Final = 72  # of a SQLite file; the last four are the application id
# No STRICT and no RETURNING: SQLite has them only since 2021, and Python uses the system's SQLite.
SCHEMA: Final = (
    ROWS
    + """
CREATE TABLE policies (name TEXT PRIMARY KEY, policy_id TEXT NOT NULL, canonical BLOB NOT NULL);
CREATE TABLE user_key (fingerprint TEXT NOT NULL, key BLOB);
CREATE TABLE entered (date TEXT, policy TEXT, place TEXT, vehicles BLOB NOT NULL, devices BLOB NOT NULL,
                      digest BLOB NOT NULL, PRIMARY KEY (date, policy, place)) WITHOUT ROWID;
"""
    + READ_AS
)
PRAGMAS: Final = ("synchronous = EXTRA",)  # FULL, and a deleted journal does not return after a power cut


def create_or_check(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file. Raises HatcastError if the file is not a ledger, or of another version."""
    with sqlite.transaction(database):
        if sqlite.identity(database) is None:
            sqlite.execute_all(database, SCHEMA)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
    check_readable(database, path)


def check_readable(database: sqlite3.Connection, path: Path) -> None:
    """Raise HatcastError if the file is not a ledger, or of another version."""
    application, version = sqlite.identity(database) or (None, None)
    if application != _APPLICATION_ID:
        raise HatcastError(f"{path}: is not a ledger of hatcast; name another file as the ledger")
    if version != _VERSION:
        raise HatcastError(f"{path}: was written by another version of hatcast: use that version")


def check_contents(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the file is damaged. It reads the whole file: 0.8 s for 100 MB.

    SQLite notices damage of its own structures only, and has no checksum of the values. What is checked besides is what
    every ledger satisfies. A value that another valid one has replaced is not noticed: docs/limits.md.
    """
    sqlite.check_structure(database)
    sqlite.check_schema(database, SCHEMA)
    sqlite.check_types(database)
    run = database.execute
    counted = run(
        "SELECT key, count(*), min(instr(value, CAST(field AS BLOB))) FROM ledger"
        " WHERE key >= 'releases:' AND key < 'releases;' GROUP BY key"
    ).fetchall()
    if any(not place for *_, place in counted):  # of the release_id in its record
        raise sqlite.damaged()
    found: dict[str, dict[str, bytes]] = {}
    for others in ("key < 'releases:'", "key >= 'releases;'"):  # two ranges: no record is read
        for key, field, value in run(f"SELECT key, field, value FROM ledger WHERE {others}"):  # noqa: S608 - constants
            found.setdefault(key, {})[field] = value
    records = {key: number for key, number, _ in counted}
    try:
        check_rows(found, records)
    except DamagedRow:
        raise sqlite.damaged() from None
    for policy_id, canonical in run("SELECT policy_id, canonical FROM policies"):
        if policy_id != f"b2:{blake2b(canonical, digest_size=16).hexdigest()}":
            raise sqlite.damaged()


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


def back_up(path: Path, copy: Path) -> int:
    """Copy a ledger file; return the number of its local dates. `copy` may be an older backup of it.

    The copy is made by SQLite's backup interface, and replaces the older one only when it is complete, checked and on
    the disk; it is readable by its owner only.

    Raises HatcastError: the ledger is missing, in use, damaged or not a ledger; the copy cannot be written, or has
    charges that the ledger does not have.
    """
    if not path.is_file():
        raise HatcastError(f"{path}: no such file; `hatcast batch --ledger` creates it")
    if copy.exists() and copy.samefile(path):
        raise HatcastError(f"--backup: {copy} is the ledger itself; name another file, best on another disk")
    with opened(path, "rw") as ledger:  # not read-only: after a crash SQLite has to roll back what was not committed
        dates = _sequences(ledger)
        if copy.exists():  # it may be the only one with its charges
            with opened(copy, "rw") as older:
                newer = [date for date, sequence in _sequences(older).items() if sequence > dates.get(date, 0)]
            if newer:
                raise HatcastError(
                    f"--backup: {copy} has charges of {min(newer)} that {path} does not have: restore {copy}, or name"
                    " another file to keep both"
                )
        part = copy.with_name(copy.name + ".part")
        try:
            _write(ledger, path, part)
            part.replace(copy)
            _sync(copy.parent)
        except OSError as error:
            raise HatcastError(f"--backup: {copy} cannot be written ({error.strerror}); name another file") from None
        finally:
            part.unlink(missing_ok=True)
    return len(dates)


@contextmanager
def opened(path: Path, mode: Literal["ro", "rw"]) -> Iterator[sqlite3.Connection]:
    """Open a ledger and check it. Raises HatcastError."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=0.0)) as database:
            check_readable(database, path)
            check_contents(database)
            yield database
    except sqlite3.OperationalError as error:
        raise unusable_error(path, error) from None
    except sqlite3.DatabaseError:
        raise damaged_error(path) from None


def _sequences(ledger: sqlite3.Connection) -> dict[str, int]:
    """Return local date -> number of changes of its ledger."""
    days = ledger.execute("SELECT substr(key, 8), value FROM ledger WHERE key LIKE 'ledger:%' AND field = 'sequence'")
    return {date: int(sequence) for date, sequence in days}


def _write(ledger: sqlite3.Connection, path: Path, part: Path) -> None:
    with suppress(FileNotFoundError):
        part.unlink()
    part.touch(mode=0o600)
    with closing(sqlite3.connect(part, isolation_level=None)) as written:
        try:
            ledger.backup(written)
        except sqlite3.OperationalError as error:
            if sqlite.is_locked(error):
                raise
            raise HatcastError(f"--backup: {part} cannot be written ({error}); name another file") from None
        ((answer,), *_) = written.execute("PRAGMA integrity_check(1)").fetchall()
    if answer != "ok":
        raise damaged_error(path)
    _sync(part)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
