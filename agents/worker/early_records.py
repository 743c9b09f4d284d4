"""Early records: records dated too far ahead of this machine's clock, for which their partitions wait.

A record dated more than `policy.max_ahead` ahead is not folded yet: it would close slots that are still open. It is not
dropped either: the broker accepted it, and its outcome must not depend on the reader's clock. It stays unread in the
log until the clock allows it.    [docs/specification/fold.md, Records ahead of the clock]
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms

log = structlog.get_logger()

# Between looks at the clock, which may be set at any time. Also the shortest wait: if a clock is steadily behind, the
# next record has to wait as well, and this limits how often its partition is started again.
LOOK_S: Final = 1.0
# The wait ends after this time without an early record. Sources send heartbeat records every 10 s, so a clock that is
# steadily behind meets the next early record before.
CALM_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class EarlyRecord:
    """The first record of a partition that this machine's clock does not allow yet.

    timestamp_ms   its Kafka timestamp (ms UTC)
    max_ahead_ms   how far ahead of the clock it may be
    """

    offset: int
    timestamp_ms: int
    max_ahead_ms: int

    def is_allowed(self) -> bool:
        """Return True if this machine's clock allows it by now."""
        return self.timestamp_ms <= now_ms() + self.max_ahead_ms

    def seconds(self) -> float:
        """Return how far it is ahead of this machine's clock; 0 if it is not."""
        return max(0, self.timestamp_ms - now_ms()) / 1000

    def problem(self, topic: str, partition: int) -> str:
        """Return the message: what waits, why, and the fix. Of the record it has only offset and timestamp."""
        return (
            f"{topic} partition {partition} waits at offset {self.offset}: {self._why()}."
            " Correct this machine's clock (NTP), and the worker continues by itself."
            " If the record's timestamp is wrong: set message.timestamp.after.max.ms on the topic, delete this"
            f" partition's records before offset {self.offset + 1} with kafka-delete-records.sh, and start the workers"
            " again with --accept-gap"
        )

    def dump_problem(self, topic: str, partition: int) -> str:
        """Return the message: a dump is folded only up to this record, why, and the fix."""
        return (
            f"{topic} partition {partition} is folded up to offset {self.offset} only: {self._why()}."
            " A worker waits here for its clock too: correct this machine's clock (NTP), or run this again later"
        )

    def _why(self) -> str:
        return (
            f"the record there is dated {_utc(self.timestamp_ms)}, more than policy.max_ahead"
            f" ({self.max_ahead_ms / 1000:g} s) ahead of this machine's clock, {_utc(now_ms())}"
        )


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


def _utc(moment_ms: int) -> str:
    """Return ISO 8601 to the millisecond; for a timestamp beyond the year 9999 its number."""
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
