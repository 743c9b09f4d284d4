"""Open transactions: partitions of which nothing more can be read until somebody's transaction has ended.

A consumer of committed records reads up to the last stable offset, the first record of the oldest open transaction. A
producer of telemetry that hangs inside one, or died where the broker never ends it, holds up its partition, and with it
every slot of all.
"""

from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.batches.consumer import BatchConsumer

log = structlog.get_logger()

PATIENCE_S: Final = 60.0  # Kafka's default for how long a transaction may take


class OpenTransactions:
    """Partitions of one topic that wait for an open transaction. Logs each wait once."""

    def __init__(self, topic: str, consumer: BatchConsumer) -> None:
        """Args: `topic`, for messages."""
        self._topic = topic
        self._consumer = consumer
        self._logged: dict[int, int] = {}  # partition -> last stable offset

    def look(self) -> None:
        """Log waits that have become too long, and those that have ended."""
        waits = self._waits()
        for partition, (offset, since_s) in waits.items():
            if self._logged.get(partition) != offset:
                log.error(self._text(partition, offset, since_s))
        for partition in self._logged.keys() - waits.keys():
            log.info("partition is read on: the transaction has ended", topic=self._topic, partition=partition)
        self._logged = {partition: offset for partition, (offset, _) in waits.items()}

    def problem(self) -> str | None:
        """Return the longest wait, for `/readyz`; None if none is too long."""
        waits = self._waits()
        if not waits:
            return None
        longest = min(waits, key=lambda partition: waits[partition][1])
        others = f" ({len(waits) - 1} more of its partitions wait)" if len(waits) > 1 else ""
        return self._text(longest, *waits[longest]) + others

    def _waits(self) -> dict[int, tuple[int, float]]:
        until_s = monotonic_s() - PATIENCE_S
        return {partition: wait for partition, wait in self._consumer.blocked().items() if wait[1] <= until_s}

    def _text(self, partition: int, offset: int, since_s: float) -> str:
        return (
            f"{self._topic} partition {partition} waits at offset {offset} for {monotonic_s() - since_s:.0f} s: a"
            " producer has not ended its transaction; end it by kafka-transactions.sh (docs/runbook.md)"
        )
