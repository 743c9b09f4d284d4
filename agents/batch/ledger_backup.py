"""Backups of a ledger file: one consistent copy, checked before it replaces an older one."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hatcast.agents import sqlite
from hatcast.agents.batch.ledger_database import check_contents, check_readable, damaged_error, unusable_error
from hatcast.stream.errors import HatcastError


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
    with _opened(path) as ledger:
        dates = _sequences(ledger)
        if copy.exists():
            _check_older(copy, path, dates)
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
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger that nothing writes to meanwhile. Raises HatcastError."""
    try:
        # Not read-only: after a crash SQLite has to roll back what was not committed.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=0.0)) as database:
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


def _check_older(copy: Path, path: Path, dates: dict[str, int]) -> None:
    """Raise HatcastError if a copy is not an older state of the ledger: it may be the only one with its charges."""
    with _opened(copy) as older:
        newer = [date for date, sequence in _sequences(older).items() if sequence > dates.get(date, 0)]
    if newer:
        raise HatcastError(
            f"--backup: {copy} has charges of {min(newer)} that {path} does not have: restore {copy}, or name another"
            " file to keep both"
        )


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
