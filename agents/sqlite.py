"""SQLite files that only one process uses at a time: locks, versions and transactions."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

MAGIC: Final = b"SQLite format 3\0"  # the first bytes of every file

_TYPES: Final = {"TEXT": "text", "INTEGER": "integer", "BLOB": "blob"}  # of a column -> of its values
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
        with _decoded_errors():
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
    with _decoded_errors():
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


def check_structure(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the file's structure is damaged. It reads the whole file."""
    with _decoded_errors():
        ((answer,), *_) = database.execute("PRAGMA quick_check(1)").fetchall()
    if answer != "ok":
        raise damaged()


def check_schema(database: sqlite3.Connection, required: str) -> None:
    """Raise sqlite3.DatabaseError unless tables and indexes are as these statements create them.

    A schema is text, which `check_structure` does not check: damage may rename a column, or drop a key. Other tables
    may be there too.
    """
    with closing(sqlite3.connect(":memory:")) as made:
        execute_all(made, required)
        if _definitions(made).items() - _definitions(database).items():
            raise damaged()


def _definitions(database: sqlite3.Connection) -> dict[str, str]:
    """Return name -> statement of all tables and indexes, except those that SQLite makes itself."""
    with _decoded_errors():
        rows = database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if any(not isinstance(text, str) for row in rows for text in row):  # damage may turn a text into bytes or a number
        raise damaged()
    return {name: " ".join(sql.split()) for name, sql in rows}


def check_types(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if a value has another type than its column. It reads the whole file."""
    with _decoded_errors():
        tables = [str(name) for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if any(database.execute(_wrong_types(database, table)).fetchone() for table in tables):
            raise damaged()


def _wrong_types(database: sqlite3.Connection, table: str) -> str:
    """Return the selection of a row of a table with a value of another type than its column's."""
    columns = database.execute("SELECT name, type, [notnull] FROM pragma_table_info(?)", (table,)).fetchall()
    wrong = [
        f"typeof({_quoted(name)}) NOT IN ('{_TYPES.get(kind)}', '{_TYPES.get(kind) if required else 'null'}')"
        for name, kind, required in columns
    ]
    return f"SELECT 1 FROM {_quoted(table)} WHERE {' OR '.join(wrong) or 'true'} LIMIT 1"  # noqa: S608 - quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _decoded_errors() -> Iterator[None]:
    """Raise sqlite3.DatabaseError in place of an error whose text quotes bytes of the file that are not UTF-8."""
    try:
        yield
    except UnicodeDecodeError:
        raise damaged() from None


def damaged() -> sqlite3.DatabaseError:
    """Return the error for a file that is damaged."""
    error = sqlite3.DatabaseError("the file is damaged")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether another process has locked the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_foreign(error: sqlite3.Error) -> bool:
    """Return whether the file is not a SQLite file."""
    return _code(error) == sqlite3.SQLITE_NOTADB


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether structure, schema or values of the file are damaged."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)


def _code(error: sqlite3.Error) -> int:
    """Return an error's primary code. Python's own errors have none: a text is not UTF-8, and they quote it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
