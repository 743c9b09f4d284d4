"""Where a device's readings come from, and which of them are its own."""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import BinaryIO, Final

from hatcast.agents.clock import now_ms
from hatcast.agents.device.live import Arrived
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading, canonical_vehicle

QUEUE_READINGS: Final = 10_000  # live ones that wait at most; then the source waits
_LINE_BYTES: Final = 1 << 16
_KNOWN: Final = 100_000  # ids as sent; a full table is emptied


class Fleet:
    """Takes the readings of some vehicles; None: of all."""

    def __init__(self, vehicles: frozenset[str] | None) -> None:
        """Args: canonical ids."""
        self._vehicles = vehicles
        self._known: dict[str, bool] = {}

    def __call__(self, reading: Reading) -> bool:
        """Whether it is one of theirs."""
        if self._vehicles is None:
            return True
        known = self._known.get(reading.vehicle)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[reading.vehicle] = canonical_vehicle(reading.vehicle) in self._vehicles
        return known


class Own:
    """Takes the readings of one vehicle that was not named: a second one is refused."""

    def __init__(self, source: str) -> None:
        """Args: `source`, as a refusal names it."""
        self._source = source
        self._vehicle: str | None = None

    def __call__(self, reading: Reading) -> bool:
        """Whether it has an id. Raises HatcastError for one of another vehicle."""
        vehicle = canonical_vehicle(reading.vehicle)
        if vehicle is None:
            return False
        if self._vehicle is None:
            self._vehicle = vehicle
        if vehicle != self._vehicle:
            raise HatcastError(
                f"{self._source} has readings of several vehicles: name the device's own with --vehicle, or try many"
                " devices with --fleet"
            )
        return True


def vehicles_in(records: Iterable[tuple[int, Recorded]]) -> set[str]:
    """The canonical ids in a recording."""
    sent = {recorded.reading.vehicle for _, recorded in records if recorded.reading is not None}
    return {vehicle for each in sent if (vehicle := canonical_vehicle(each)) is not None}


def read_lines(stream: BinaryIO, decode: Callable[[bytes], Reading | None]) -> "queue.Queue[Arrived]":
    """Lines as they come, each with its time of arrival; what cannot be decoded is left out.

    A thread of its own waits for them, and ends with the process.
    """
    arrived: queue.Queue[Arrived] = queue.Queue(QUEUE_READINGS)

    def read() -> None:
        while line := stream.readline(_LINE_BYTES):
            reading = decode(line.rstrip(b"\r\n"))
            if reading is not None:
                arrived.put((now_ms(), reading))
        arrived.put(None)

    threading.Thread(target=read, daemon=True, name="readings").start()
    return arrived
