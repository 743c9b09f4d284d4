"""Notice the death of a worker at once, by a locked file, where another worker runs or starts on its machine.

A killed worker cannot leave its consumer group. Until its session ends nobody reads its partitions, and a worker that
joins meanwhile, such as the one that a supervisor starts in its place, waits with the whole group for the dead one. So
each worker locks a file with its member id (agents/kafka/member_files.py), and removes the members whose process is
dead: before it joins, and twice a second. Only that time depends on it: the death of a worker without a file is noticed
at the end of its session, and a living member that was removed would join again. [docs/decisions/0068]
"""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.kafka.groups import remove_members
from hatcast.agents.kafka.member_files import (
    MemberFile,
    dead_members,
    delete_old_files,
    group_prefix,
    member_folder,
)
from hatcast.stream.units import DAY_MS

log = structlog.get_logger()

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
