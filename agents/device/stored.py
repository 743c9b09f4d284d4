"""Types of a device's state file."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored report or answer; every attempt sends the same bytes.

    id         key on the topic
    sent_ms    time (ms UTC) at which it was first due, wall clock or recorded
    closes_ms  time (ms UTC) from which the operator rejects it: a watermark for a report, the wall clock for an answer
    """

    number: int
    id: str
    body: bytes
    sent_ms: int
    closes_ms: int


@dataclass(frozen=True, slots=True)
class VehicleHat:
    """HAT of one vehicle: it is reported once."""

    vehicle: str
    date: str
    slot: str
    cell: str


class Marks(Protocol):
    """Store of the delivered records of an outbox."""

    def mark_sent(self, numbers: Iterable[int]) -> None:
        """Mark records as acknowledged by the broker."""
        ...

    def mark_expired(self, numbers: Iterable[int]) -> None:
        """Mark records as too late to be sent."""
        ...
