"""Files that show which members of a consumer group are dead: each is locked while its process lives.

The kernel releases a lock (`flock`) when its process ends, however it ends. So a process that can lock a member's file
knows that the member is dead: no clock and no timeout decides. A process that is stopped (SIGSTOP) or swapped out keeps
its lock. [docs/decisions/0068]
"""

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

_ID_BYTES: Final = 1_000  # of a member id: longer ones are not a member's


def member_folder() -> Path:
    """Return the folder of this user's member files, in the temporary directory; make it if needed.

    Raises OSError, also if others could write to it: its files name the members that are removed from groups.
    """
    folder = Path(tempfile.gettempdir()) / f"hatcast-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(errno.EACCES, "not a folder of this user alone", str(folder))
    return folder


def group_prefix(servers: str, group: str) -> str:
    """Return how the names of the files of a group's members begin. servers: `kafka.bootstrap_servers`."""
    return hashlib.blake2b(f"{servers}\n{group}".encode(), digest_size=8).hexdigest() + "-"


class MemberFile:
    """The locked file of one member. It is never there without its lock."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, folder: Path, prefix: str) -> Self:
        """Create a locked file without a member id. Raises OSError."""
        name = uuid.uuid4().hex
        unlocked = folder / f".{name}"
        descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = unlocked.rename(folder / f"{prefix}{name}")
        except OSError:
            os.close(descriptor)
            unlocked.unlink(missing_ok=True)
            raise
        return cls(path, descriptor)

    @property
    def is_there(self) -> bool:
        """Whether the file still exists under its name: a cleaner of temporary files may delete it."""
        return os.fstat(self._descriptor).st_nlink > 0

    def write(self, member_id: str) -> None:
        """Replace the member id. Raises OSError."""
        encoded = member_id.encode()
        os.pwrite(self._descriptor, encoded, 0)
        os.ftruncate(self._descriptor, len(encoded))

    def close(self) -> None:
        """Delete the file, after the member has left its group."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


@contextmanager
def dead_members(folder: Path, prefix: str) -> Iterator[dict[str, Path]]:
    """Lock the files of a group's dead members, until the end of the block; yield member id -> file.

    Each is locked by one process at a time, so two workers do not remove the same member. The file of a process that
    was killed before it had an id is deleted. Raises OSError.
    """
    locked: list[int] = []
    try:
        found = {}
        for path in sorted(folder.glob(f"{prefix}*")):
            descriptor = _lock(path)
            if descriptor is None:
                continue
            locked.append(descriptor)
            member_id = os.read(descriptor, _ID_BYTES).decode(errors="replace")
            if member_id.isprintable() and member_id:
                found[member_id] = path
            else:
                path.unlink(missing_ok=True)
        yield found
    finally:
        for descriptor in locked:
            os.close(descriptor)


def delete_old_files(folder: Path, before_ms: int) -> None:
    """Delete the files of dead members of all groups that were last written before a time (ms UTC).

    What cannot be deleted stays. Raises OSError if the folder cannot be read.
    """
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime_ns < before_ms * 1_000_000 and (descriptor := _lock(path)) is not None:
                path.unlink(missing_ok=True)
                os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Lock a file; return its descriptor, None if its process lives or another one has deleted it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
