"""Time of the last answer of Kafka to the map, and of the newest record.

Both are needed to tell an unreachable broker from a quiet topic: a broker answers every fetch within half a second,
also when the topic has no new record.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from hatcast.agents.monitoring.server import READY

TIMEOUT_MS: Final = 15_000  # a change of partition leaders takes less


class Freshness:
    """Answers of the brokers, partition by partition, and the timestamp of the newest record."""

    def __init__(self, started_ms: int) -> None:
        """Args: `started_ms`, when reading began: a partition that never answered is silent since then."""
        self._started_ms = started_ms
        self._answered_ms = [started_ms]
        self._newest_ms: int | None = None

    def answered(self, partitions_ms: Sequence[int | None]) -> None:
        """Store when each partition's broker last answered (ms UTC); None if it never did."""
        self._answered_ms = [self._started_ms if each is None else each for each in partitions_ms]

    def record(self, written_ms: int) -> None:
        """Store that a record was read; `written_ms` is its Kafka timestamp."""
        self._newest_ms = max(written_ms, self._newest_ms or 0)

    @property
    def has_record(self) -> bool:
        """Whether a record was read."""
        return self._newest_ms is not None

    def live(self, now_ms: int) -> bool:
        """Return whether every partition was answered for within `TIMEOUT_MS`."""
        return not self._silent(now_ms)

    def part(self, now_ms: int) -> str:
        """Return the readiness of Kafka: "ok", or since when which partitions are silent."""
        silent = self._silent(now_ms)
        if not silent:
            return READY
        since = f"since {_instant(min(silent))}"
        if len(silent) == len(self._answered_ms):
            return f"no Kafka broker answers {since}"
        return f"no Kafka broker answers for {len(silent)} of {len(self._answered_ms)} partitions {since}"

    def view(self, now_ms: int) -> bytes:
        """Render the state as JSON. `answered_at` is that of the partition that has been silent for longest."""
        answered_ms = min(self._answered_ms, default=self._started_ms)
        newest_ms = self._newest_ms
        return msgspec.json.encode(
            {
                "live": self.live(now_ms),
                "kafka": self.part(now_ms),
                "answered_at": _instant(min(answered_ms, now_ms)),
                "newest_record_at": None if newest_ms is None else _instant(min(newest_ms, now_ms)),
                "now": _instant(now_ms),
            }
        )

    def _silent(self, now_ms: int) -> list[int]:
        return [each for each in self._answered_ms if now_ms - each >= TIMEOUT_MS]


def _instant(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}Z"
