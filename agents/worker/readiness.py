"""What has to hold before a worker is ready, as `/readyz` and `/metrics` tell it.

From what its loops have seen: nobody is asked, so it costs nothing, and is known at once where Redis or Kafka hang.
"""

from dataclasses import dataclass
from typing import Final

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.server import READY
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.worker.ingest import Ingest

_INTERVALS: Final = 5  # checkpoint intervals that may pass without a good checkpoint
_LEAST_S: Final = 5.0  # of these: a large state takes seconds to write


@dataclass(frozen=True, slots=True)
class Readiness:
    """What has to hold before a worker is ready, read from its parts."""

    ingest: Ingest
    recovery: LedgerRecovery
    checkpoint_interval_s: float
    session_timeout_s: float

    def parts(self) -> dict[str, str]:
        """Part -> `READY`, or what is missing.

        The texts hold counts of partitions, seconds, and a record's offset and timestamp, and no more.
        """
        consumer = self.ingest.consumer
        assigned = consumer.assigned()
        loaded = len(assigned & self.ingest.held.keys())
        return {
            "redis": self._recent("answer", self.ingest.answered_s),
            "ledger": READY if self.recovery.is_recovered or not assigned else "the ledger is not recovered yet",
            "group": self._group(),
            "partitions": READY if loaded == len(assigned) else f"{loaded} of {len(assigned)} loaded",
            "checkpoint": self._recent("checkpoint", self.ingest.stored_s),
            "clock": self.ingest.waits.problem() or READY,
        }

    def _recent(self, what: str, last_s: float | None) -> str:
        if last_s is None:
            return f"no {what} yet"
        ago_s = monotonic_s() - last_s
        return READY if ago_s <= max(_INTERVALS * self.checkpoint_interval_s, _LEAST_S) else _no(what, ago_s)

    def _group(self) -> str:
        consumer = self.ingest.consumer
        if not consumer.in_group():
            return "not in the consumer group"
        answered_ms = consumer.answered_ms()
        if answered_ms is None:  # more workers than partitions, or the agent waits for Redis
            return READY
        silent_s = (now_ms() - answered_ms) / 1000
        if not answered_ms:
            return "no answer from Kafka yet"
        return READY if silent_s <= self.session_timeout_s else _no("answer from Kafka", silent_s)


def _no(what: str, seconds: float) -> str:
    return f"no {what} for {seconds:.0f} s"
