"""One early record: dated too far ahead of this machine's clock. Its partition waits: see early_records.py."""

from dataclasses import dataclass
from datetime import UTC, datetime

from hatcast.agents.clock import now_ms


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


def _utc(moment_ms: int) -> str:
    """Return ISO 8601 to the millisecond; for a timestamp beyond the year 9999 its number."""
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
