"""Notice the death of a worker at once, by a locked file, where another worker runs or starts on its machine.

A killed worker cannot leave its consumer group. Until its session ends nobody reads its partitions, and a worker that
joins meanwhile, such as the one that a supervisor starts in its place, waits with the whole group for the dead one. So
each worker locks a file with its member id (agents/worker/membership.py), and removes the members whose process is
dead: before it joins, and twice a second. Only that time depends on it: the death of a worker without a file is noticed
at the end of its session, and a living member that was removed would join again. [docs/decisions/0059]
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import structlog

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.groups import remove_members
from hatcast.stream.units import DAY_MS

log = structlog.get_logger()

# Files that show which members of a consumer group are dead: each is locked while its process lives.
#
# The kernel releases a lock (`flock`) when its process ends, however it ends. So a process that can lock a member's
# file knows that the member is dead: no clock and no timeout decides. A process that is stopped (SIGSTOP) or swapped
# out keeps its lock. [docs/decisions/0059]
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


_LOOK_S: Final = 0.5  # between looks at the files of the other members: a look takes 0.1 ms
_JOINING_S: Final = 0.05  # the same while the worker has no id in the group yet
_RETRY_S: Final = 2.0  # after a look at which they could not be removed


class Membership:
    """The file of one worker in one group, and those of the others on its machine."""

    def __init__(
        self, group: str, client: dict[str, Any], session_timeout_s: float, member_id: Callable[[], str | None]
    ) -> None:
        """Args:
        client:    aiokafka's connection options
        member_id: returns the worker's id in the group, which a rebalance may change; None without one
        """
        self._group = group
        self._client = client
        self._session_timeout_s = session_timeout_s
        self._member_id = member_id
        self._prefix = group_prefix(str(client["bootstrap_servers"]), group)
        self._folder: Path | None = None  # None: not started, or there is no folder to use
        self._file: MemberFile | None = None
        self._written: str | None = None
        self._failing_since_s: float | None = None
        self._has_warned = False

    async def start(self) -> None:
        """Create the worker's file, and remove the dead members of its group. Call it before the worker joins."""
        try:
            self._folder = folder = member_folder()
            delete_old_files(folder, now_ms() - DAY_MS)
            self._file = MemberFile.create(folder, self._prefix)
            await self._remove_dead(folder)
        except OSError as error:
            self._warn(error)

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep the file, and remove dead members, until the worker stops. What fails is tried again."""
        while self._folder is not None and await pause(self._pause_s, stopping):
            try:
                self._keep_file(self._folder)
                await self._remove_dead(self._folder)
            except OSError as error:
                self._warn(error)

    @property
    def _pause_s(self) -> float:
        if self._failing_since_s is not None:
            return _RETRY_S
        return _JOINING_S if self._written is None else _LOOK_S

    def close(self) -> None:
        """Delete the file. Call it after the worker has left its group."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep_file(self, folder: Path) -> None:
        """Recreate a deleted file, and write a changed member id. Raises OSError."""
        if self._file is None or not self._file.is_there:
            self.close()
            self._file, self._written = MemberFile.create(folder, self._prefix), None
        member_id = self._member_id()
        if member_id is not None and member_id != self._written:
            self._file.write(member_id)
            self._written = member_id

    async def _remove_dead(self, folder: Path) -> None:
        """Remove the members whose process is dead. Raises OSError.

        If that fails because Kafka is away, which the consumer logs, it is tried again until their sessions have ended.
        """
        with dead_members(folder, self._prefix) as dead:
            if await self._try_to_remove(dead):
                self._failing_since_s = None
                for path in dead.values():
                    path.unlink(missing_ok=True)

    async def _try_to_remove(self, dead: Collection[str]) -> bool:
        """Remove members from the group, if there are any; return False if the removal has to be tried again."""
        if not dead:
            return True
        try:
            await remove_members(self._group, dead, self._client)
        except KafkaError:
            now_s = monotonic_s()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
            return now_s - self._failing_since_s > self._session_timeout_s
        log.info("removed killed workers from the group", group=self._group)
        return True

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            log.warning(
                "no member file: if this worker is killed, its partitions may wait for the end of its session",
                why=(error.strerror or "unknown").lower(),
                file=error.filename,
            )
        self._has_warned = True
