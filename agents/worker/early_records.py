"""Early records: records dated too far ahead of this machine's clock, for which their partitions wait.

A record dated more than `policy.max_ahead` ahead is not folded yet: it would close slots that are still open. It is not
dropped either: the broker accepted it, and its outcome must not depend on the reader's clock. It stays unread in the
log until the clock allows it.    [docs/specification/fold.md, Records ahead of the clock]
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.worker.early_record import EarlyRecord

log = structlog.get_logger()

# Between looks at the clock, which may be set at any time. Also the shortest wait: if a clock is steadily behind, the
# next record has to wait as well, and this limits how often its partition is started again.
LOOK_S: Final = 1.0
# The wait ends after this time without an early record. Sources send heartbeat records every 10 s, so a clock that is
# steadily behind meets the next early record before.
CALM_S: Final = 15.0


@dataclass(slots=True)
class _Wait:
    """A partition's wait. Times in monotonic seconds.

    last_s   when its record was last too early
    """

    record: EarlyRecord
    since_s: float
    last_s: float


class EarlyRecords:
    """Partitions of one topic that wait for this machine's clock. Logs each wait when it begins and when it ends."""

    def __init__(self, topic: str) -> None:
        """Args: `topic`, for messages."""
        self._topic = topic
        self._waits: dict[int, _Wait] = {}

    def add(self, partition: int, record: EarlyRecord) -> None:
        """Add a partition, or update its record."""
        now_s = monotonic_s()
        wait = self._waits.get(partition)
        if wait is None:
            self._waits[partition] = _Wait(record, now_s, now_s)
            log.error(record.problem(self._topic, partition))
        else:
            wait.record, wait.last_s = record, now_s

    async def until_allowed(self, partition: int, record: EarlyRecord, is_needed: Callable[[], bool]) -> None:
        """Wait until the clock allows the record, or `is_needed()` is False. Looks every `LOOK_S`."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not is_needed() or record.is_allowed():
                return
            self.add(partition, record)

    def keep_only(self, partitions: frozenset[int]) -> None:
        """Remove all other partitions, without a log line: other workers own them now."""
        for partition in self._waits.keys() - partitions:
            del self._waits[partition]

    def waiting(self) -> Mapping[int, EarlyRecord]:
        """Return partition -> the record that it waits for, or waited for within the last `CALM_S`. Log ended waits."""
        now_s = monotonic_s()
        for partition, wait in list(self._waits.items()):
            if now_s - wait.last_s > CALM_S:
                del self._waits[partition]
                log.info(
                    "no record is dated too far ahead any more",
                    topic=self._topic,
                    partition=partition,
                    after_s=round(wait.last_s - wait.since_s, 1),
                )
        return {partition: wait.record for partition, wait in self._waits.items()}

    def problem(self) -> str | None:
        """Return the message about the record furthest ahead, and the number of other waits; None if none waits."""
        waiting = self.waiting()
        if not waiting:
            return None
        partition = max(waiting, key=lambda each: waiting[each].timestamp_ms)
        others = f" ({len(waiting) - 1} more of its partitions wait)" if len(waiting) > 1 else ""
        return waiting[partition].problem(self._topic, partition) + others
