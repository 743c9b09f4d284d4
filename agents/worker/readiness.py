"""Readiness of a worker, for `/readyz` and `/metrics`.

Computed from what its loops have seen, without a request: so it is cheap, and answers even if Redis or Kafka hang.
"""

from dataclasses import dataclass
from typing import Final

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.server import READY
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.worker.ingest import Ingest

_INTERVALS: Final = 5  # checkpoint intervals that may pass without a good checkpoint
_SLOW_S: Final = 1.0  # for an answer of Redis: a checkpoint and a release need several
_LEAST_S: Final = 5.0  # shorter limits are raised to this: a large state takes seconds to write


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of one topic's ingest and the ledger recovery."""

    ingest: Ingest
    recovery: LedgerRecovery
    checkpoint_interval_s: float
    session_timeout_s: float

    def parts(self) -> dict[str, str]:
        """Return part -> `READY`, or the reason why it is not.

        The texts contain only counts of partitions, seconds, a record's offset and timestamp, and the number of a slot
        of a Redis Cluster, which follows from public names.
        """
        consumer = self.ingest.consumer
        assigned = consumer.assigned()
        loaded = len(assigned & self.ingest.partitions.keys())
        return {
            "redis": self.ingest.redis_problem() or self._redis(),
            "ledger": READY if self.recovery.is_recovered or not assigned else "the ledger is not recovered yet",
            "group": self._group(),
            "partitions": READY if loaded == len(assigned) else f"{loaded} of {len(assigned)} loaded",
            "checkpoint": self._recent("checkpoint", self.ingest.stored_s),
            "clock": self.ingest.early_records.problem() or READY,
            "transactions": self.ingest.open_transactions.problem() or READY,
        }

    def _redis(self) -> str:
        least_s = min(self.ingest.answers_s, default=0.0)  # of the last three, so that no single pause counts
        state = self._recent("answer", self.ingest.answered_s)
        return state if state != READY or least_s < _SLOW_S else f"an answer takes {least_s:.1f} s or more"

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
        if answered_ms is None:  # no partition, or the agent waits for Redis and its queue is full
            return READY
        silent_s = (now_ms() - answered_ms) / 1000
        if not answered_ms:
            return "no answer from Kafka yet"
        return READY if silent_s <= self.session_timeout_s else _no("answer from Kafka", silent_s)


def _no(what: str, seconds: float) -> str:
    return f"no {what} for {seconds:.0f} s"
