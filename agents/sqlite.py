"""SQLite files that only one process uses at a time: locks, versions and transactions."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

MAGIC: Final = b"SQLite format 3\0"
"""The first bytes of every file"""

_held: Final = Counter[tuple[int, int]]()  # device and inode of the files that threads of this process have locked
_reading: Final = Lock()


@contextmanager
def open_locked(path: Path, *pragmas: str, wait_s: float = 0.0) -> Iterator[sqlite3.Connection]:
    """Open a file that no other process can open until the end; a new one is readable by its owner only.

    wait_s   how long to wait for another process that has locked it
    """
    with suppress(OSError):  # SQLite reports what is wrong with the path
        path.touch(mode=0o600, exist_ok=False)
    with _counted(path), closing(sqlite3.connect(path, timeout=wait_s, isolation_level=None)) as database:
        for pragma in ("locking_mode = EXCLUSIVE", *pragmas):
            database.execute(f"PRAGMA {pragma}")
        yield database


def read_magic(path: Path) -> bytes:
    """Return the first bytes of any file, as many as `MAGIC` has. Raises OSError.

    A file that a thread of this process has locked is not opened: to close it would release the lock, since POSIX
    locks belong to the process.
    """
    with _reading:
        if _held[_inode(path)]:
            return MAGIC
        with path.open("rb") as file:
            return file.read(len(MAGIC))


@contextmanager
def _counted(path: Path) -> Iterator[None]:
    """Count a file as locked by this process."""
    try:
        inode = _inode(path)
    except OSError:  # as above
        yield
        return
    with _reading:
        _held[inode] += 1
    try:
        yield
    finally:
        with _reading:
            _held[inode] -= 1


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def identity(database: sqlite3.Connection) -> tuple[int, int] | None:
    """Return (application_id, user_version) of a file; None if it is new."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return (application, version) if application or version or tables else None


def execute_all(database: sqlite3.Connection, statements: str) -> None:
    """Execute statements that each end with a semicolon. `executescript` would commit first."""
    for statement in statements.split(";")[:-1]:
        database.execute(statement)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one transaction, which it may commit itself; roll back if it raises."""
    database.execute("BEGIN EXCLUSIVE")
    try:
        yield
        if database.in_transaction:
            database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether another process has locked the file."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # the primary code
