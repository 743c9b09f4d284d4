"""Notice the death of a worker at once, by a locked file, where another worker runs or starts on its machine.

A killed worker cannot leave its consumer group. Until its session ends nobody reads its partitions, and a worker that
joins meanwhile, such as the one that a supervisor starts in its place, waits with the whole group for the dead one. So
each worker locks a file with its member id (agents/kafka/member_files.py), and removes the members whose process is
dead: before it joins, and each second. Only that time depends on it: the death of a worker without a file is noticed at
the end of its session, and a living member that was removed would join again. [docs/decisions/0068]
"""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import admin_client
from hatcast.agents.kafka.member_files import (
    MemberFile,
    dead_members,
    delete_old_files,
    group_prefix,
    member_folder,
)
from hatcast.stream.errors import HatcastError
from hatcast.stream.units import DAY_MS

log = structlog.get_logger()

_LOOK_S: Final = 1.0  # between looks at the files of the other members: a look takes 0.1 ms
_PATIENCE_S: Final = 2.0  # for a broker, each second again


class Membership:
    """The file of one worker in one group, and those of the others on its machine."""

    def __init__(self, settings: Settings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._prefix = group_prefix(settings.kafka.bootstrap_servers, group)
        self._folder: Path | None = None  # None: not started, or there is no folder to use
        self._file: MemberFile | None = None
        self._failing_since_s: float | None = None

    async def start(self) -> None:
        """Create the worker's file, and remove the dead members of its group. Call it before the worker joins."""
        try:
            self._folder = member_folder()
            delete_old_files(self._folder, now_ms() - DAY_MS)
            self._file = MemberFile.create(self._folder, self._prefix)
        except OSError as error:
            self._give_up(error)
        await self._remove_dead()

    def joined(self, member_id: str) -> None:
        """Write the worker's id in the group. Call it after each rebalance, which may give it another one."""
        if self._file is not None and self._folder is not None:
            try:
                self._file.write(member_id)
            except OSError as error:
                self._give_up(error)

    async def run(self, stopping: asyncio.Event) -> None:
        """Remove dead members, until the worker stops."""
        while self._folder is not None and await pause(_LOOK_S, stopping):
            await self._remove_dead()

    def close(self) -> None:
        """Delete the file. Call it after the worker has left its group."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _remove_dead(self) -> None:
        """Remove the members whose process is dead. What fails is tried again, until their sessions have ended."""
        if self._folder is None:
            return
        try:
            with dead_members(self._folder, self._prefix) as dead:
                if dead and await self._is_removed(dead):
                    for path in dead.values():
                        path.unlink(missing_ok=True)
        except OSError as error:
            self._give_up(error)

    async def _is_removed(self, dead: Iterable[str]) -> bool:
        """Remove members from the group; return False if it is to be tried again."""
        now_s = monotonic_s()
        try:
            await asyncio.to_thread(_remove, self._settings, self._group, dead)
        except HatcastError:  # of brokers that are away; the consumer logs that too
            since_s = self._failing_since_s = self._failing_since_s or now_s
            return now_s - since_s > self._settings.session_timeout_s
        self._failing_since_s = None
        log.info("removed killed workers from the group", group=self._group)
        return True

    def _give_up(self, error: OSError) -> None:
        self._folder = None
        log.warning(
            "no member file: if this worker is killed, its partitions wait for the end of its session",
            folder=tempfile.gettempdir(),
            why=(error.strerror or str(error)).lower(),
        )


def _remove(settings: Settings, group: str, members: Iterable[str]) -> None:
    """Remove members from a group; those that are not in it any more are ignored. Raises HatcastError."""
    from kafka.admin import MemberToRemove

    with admin_client(settings, _PATIENCE_S) as admin:
        admin.remove_group_members(group, [MemberToRemove(member_id=member) for member in members])
