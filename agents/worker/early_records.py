"""Records dated ahead of this machine's clock: their partitions wait for it, and the worker says why.

A record dated more than `policy.max_ahead` ahead is not folded yet: it would close slots that are still open. Nor is it
dropped: the broker accepted it, and what becomes of it must not depend on the clock of whoever reads it. It stays
unread in the log until the clock allows it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms

log = structlog.get_logger()

# Between looks at the clock, which may be set at any time. Also the least wait: where a clock is steadily behind, the
# next record has to wait as well, and its partition is not started again more often than this.
LOOK_S: Final = 1.0
# Without such a record for so long, the wait is over. Feeds send heartbeat records every 10 s, so a clock that is
# steadily behind meets the next one before.
CALM_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """The first record of a partition that the clock does not allow yet.

    timestamp_ms   its Kafka timestamp (ms UTC)
    max_ahead_ms   how far ahead of the clock it may be
    """

    offset: int
    timestamp_ms: int
    max_ahead_ms: int

    def is_allowed(self) -> bool:
        """Whether this machine's clock allows it by now."""
        return self.timestamp_ms <= now_ms() + self.max_ahead_ms

    def seconds(self) -> float:
        """How far it is ahead of this machine's clock; 0 once it is not."""
        return max(0, self.timestamp_ms - now_ms()) / 1000

    def problem(self, topic: str, partition: int) -> str:
        """What waits, why, and what to do about it. Nothing in it but the record's place and timestamp."""
        return (
            f"{topic} partition {partition} waits at offset {self.offset}: {self._why()}."
            " Correct this machine's clock (NTP), and the worker goes on by itself."
            " If the record's timestamp is wrong: set message.timestamp.after.max.ms on the topic, delete this"
            f" partition's records before offset {self.offset + 1} with kafka-delete-records.sh, and start the workers"
            " again with --accept-gap"
        )

    def stops(self, topic: str, partition: int) -> str:
        """Why a dump is folded up to this record only."""
        return (
            f"{topic} partition {partition} is folded up to offset {self.offset} only: {self._why()}."
            " A worker waits for its clock here, too: correct this machine's clock (NTP), or run this again later"
        )

    def _why(self) -> str:
        return (
            f"the record there is dated {_utc(self.timestamp_ms)}, more than policy.max_ahead"
            f" ({self.max_ahead_ms / 1000:g} s) ahead of this machine's clock, {_utc(now_ms())}"
        )


@dataclass(slots=True)
class _Wait:
    """A partition's wait: its record, and when it began and was seen last (monotonic seconds)."""

    ahead: Ahead
    since_s: float
    seen_s: float


class EarlyRecords:
    """The partitions of one topic that wait for this machine's clock. Logs each wait once, and once when it is over."""

    def __init__(self, topic: str) -> None:
        """Args: `topic`, for messages."""
        self.topic = topic
        self._waits: dict[int, _Wait] = {}

    def meet(self, partition: int, ahead: Ahead) -> None:
        """A partition has met a record that the clock does not allow."""
        now_s = monotonic_s()
        wait = self._waits.get(partition)
        if wait is None:
            self._waits[partition] = _Wait(ahead, now_s, now_s)
            log.error(ahead.problem(self.topic, partition))
        else:
            wait.ahead, wait.seen_s = ahead, now_s

    async def until_allowed(self, partition: int, ahead: Ahead, wanted: Callable[[], bool]) -> None:
        """Return once the clock allows the record, or `wanted()` is false. Looks at the clock every `LOOK_S`."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not wanted() or ahead.is_allowed():
                return
            self.meet(partition, ahead)

    def keep_only(self, partitions: frozenset[int]) -> None:
        """Forget the waits of other partitions: they are another worker's now."""
        for partition in self._waits.keys() - partitions:
            del self._waits[partition]

    def waiting(self) -> Mapping[int, Ahead]:
        """Partition -> the record that it waits for, or waited for within the last `CALM_S`."""
        now_s = monotonic_s()
        for partition, wait in list(self._waits.items()):
            if now_s - wait.seen_s > CALM_S:
                del self._waits[partition]
                log.info(
                    "no record is dated too far ahead any more",
                    topic=self.topic,
                    partition=partition,
                    after_s=round(wait.seen_s - wait.since_s, 1),
                )
        return {partition: wait.ahead for partition, wait in self._waits.items()}

    def problem(self) -> str | None:
        """What the partitions wait for, of the record furthest ahead; None: none waits."""
        waiting = self.waiting()
        if not waiting:
            return None
        partition = max(waiting, key=lambda each: waiting[each].timestamp_ms)
        others = f" ({len(waiting) - 1} more of its partitions wait)" if len(waiting) > 1 else ""
        return waiting[partition].problem(self.topic, partition) + others


def _utc(moment_ms: int) -> str:
    """ISO 8601 to the millisecond; a timestamp beyond the year 9999 as its number."""
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
