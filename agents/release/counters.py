"""What a worker counts of its fold and of its releases, for `/metrics`."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.declarations import CLOSING_SECONDS, RELEASES
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.ledger import Committed


class _Status(msgspec.Struct):
    status: str


_STATUS: Final = msgspec.json.Decoder(_Status)


def count_outcomes(counter: Counter, before: Mapping[str, int], stored: Mapping[str, int]) -> Mapping[str, int]:
    """Count what a checkpoint has stored: outcome -> records of a partition, before it and now, which is returned."""
    for outcome, records in stored.items():
        if records > before.get(outcome, 0):
            METERS.count(counter, records - before.get(outcome, 0), outcome=outcome)
    return stored


def count_published(kind: str, records: Iterable[Committed]) -> None:
    """Count releases (`kind` "hat") or answers ("query") that Kafka has acknowledged."""
    for record in records:
        METERS.count(RELEASES, kind=kind, status=_STATUS.decode(record.record).status)


class Closing:
    """When this process first saw that slots are final: how long they take from there to their publication."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def saw(self, slots: Iterable[str]) -> None:
        """These slots (`date/slot`) are final, and not all of theirs is published."""
        now_s = monotonic_s()
        for slot in slots:
            self._since_s.setdefault(slot, now_s)

    def only(self, slots: Iterable[str], asked_s: float) -> None:
        """As `saw`; and no others, as of `asked_s` (monotonic seconds): what others saw since then stays."""
        final = set(slots)
        self.saw(final)
        self._since_s = {slot: since for slot, since in self._since_s.items() if slot in final or since >= asked_s}

    def published(self, slots: Iterable[str]) -> None:
        """A HAT of each of these slots is published, as often as it is named."""
        now_s = monotonic_s()
        for slot in slots:
            METERS.observe(CLOSING_SECONDS, now_s - self._since_s.get(slot, now_s))

    def oldest_s(self) -> float:
        """How long the slot that was seen first has waited; 0 where none waits."""
        return monotonic_s() - min(self._since_s.values()) if self._since_s else 0.0
