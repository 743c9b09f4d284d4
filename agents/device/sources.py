"""Sources of a device's readings, and filters for its own vehicle."""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import BinaryIO, Final

from hatcast.agents.clock import now_ms
from hatcast.agents.device.closing import Arrived
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import canonical_vehicle

QUEUE_READINGS: Final = 10_000  # live readings; the source waits when the queue is full
_LINE_BYTES: Final = 1 << 16


class FleetFilter:
    """Accepts the readings of some vehicles; None: of all."""

    def __init__(self, vehicles: frozenset[str] | None) -> None:
        """Args: `vehicles`, canonical ids."""
        self._vehicles = vehicles

    def __call__(self, reading: Reading) -> bool:
        """Return whether the reading is of one of the vehicles."""
        return self._vehicles is None or canonical_vehicle(reading.vehicle) in self._vehicles


class SingleVehicleFilter:
    """Accepts the readings of the first vehicle seen; raises an error for any other."""

    def __init__(self, source: str) -> None:
        """Args: `source`, its name in the error message."""
        self._source = source
        self._vehicle: str | None = None

    def __call__(self, reading: Reading) -> bool:
        """Return whether the reading has a vehicle id. Raises HatcastError if it is another vehicle's."""
        vehicle = canonical_vehicle(reading.vehicle)
        if vehicle is None:
            return False
        if self._vehicle is None:
            self._vehicle = vehicle
        if vehicle != self._vehicle:
            raise HatcastError(
                f"{self._source} has readings of several vehicles: name this device's with --vehicle, or run many"
                " devices with --fleet"
            )
        return True


def vehicles_in(records: Iterable[tuple[int, Recorded]]) -> set[str]:
    """Return the canonical ids of the vehicles in a recording."""
    sent = {recorded.reading.vehicle for _, recorded in records if recorded.reading is not None}
    return {vehicle for each in sent if (vehicle := canonical_vehicle(each)) is not None}


def read_lines(stream: BinaryIO, decode: Callable[[bytes], Reading | None]) -> "queue.Queue[Arrived]":
    """Queue the readings of a stream's lines with their arrival times; skip undecodable lines.

    A daemon thread reads the stream; it ends with the process.
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
