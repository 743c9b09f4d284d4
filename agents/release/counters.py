"""Counters of a worker's fold and releases, for `/metrics`."""

from collections.abc import Iterable, Mapping

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.declarations import CLOSING_SECONDS, RELEASES
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.ledger.proposals import Committed
from hatcast.stream.records.projections import HEAD


def count_outcomes(counter: Counter, before: Mapping[str, int], stored: Mapping[str, int]) -> Mapping[str, int]:
    """Count the records that a checkpoint has added. Return `stored`.

    before, stored   outcome -> records of a partition, before the checkpoint and with it
    """
    for outcome, records in stored.items():
        if records > before.get(outcome, 0):
            METERS.count(counter, records - before.get(outcome, 0), outcome=outcome)
    return stored


def count_published(kind: str, records: Iterable[Committed]) -> None:
    """Count releases (`kind` "hat") or answers ("query") that Kafka has acknowledged."""
    for record in records:
        METERS.count(RELEASES, kind=kind, status=HEAD.decode(record.record).status)


class ClosingDelays:
    """Delays from the time when this process first saw a slot final to its publication. A slot is named `date/slot`."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def add(self, slots: Iterable[str]) -> None:
        """Add slots that are final and not yet published as a whole."""
        now_s = monotonic_s()
        for slot in slots:
            self._since_s.setdefault(slot, now_s)

    def replace(self, slots: Iterable[str], read_s: float) -> None:
        """Replace all slots by those read at `read_s` (monotonic seconds); slots added since then remain."""
        final = set(slots)
        self.add(final)
        self._since_s = {slot: since for slot, since in self._since_s.items() if slot in final or since >= read_s}

    def published(self, slots: Iterable[str]) -> None:
        """Observe the delays of published HATs: one slot for each HAT."""
        now_s = monotonic_s()
        for slot in slots:
            METERS.observe(CLOSING_SECONDS, now_s - self._since_s.get(slot, now_s))

    def oldest_s(self) -> float:
        """Return how long the oldest slot has waited; 0 if none waits."""
        return monotonic_s() - min(self._since_s.values()) if self._since_s else 0.0
