"""Rules of the fold that the Python programs share: decode, checks, cell, slot, step, and a user's sums in a HAT."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import h3.api.basic_int as h3
import msgspec

from bench.stopwatch import Stopwatch

UPPER_BOUND_KMH: Final = 65
REJECT_ABOVE_KMH: Final = 150
INTERVAL_S: Final = 10
RESOLUTION: Final = 7


class _Location(msgspec.Struct):
    coordinates: tuple[float, float]


class _Record(msgspec.Struct):
    license_plate: str
    speed: int
    observation: str = msgspec.field(name="observationDateTime")
    location: _Location


_decode: Final = msgspec.json.Decoder(_Record).decode


@dataclass(frozen=True, slots=True)
class Reading:
    """A valid reading. hat: `cell/date/slot`; step: of `INTERVAL_S` in the hour; speed: clipped, km/h."""

    plate: str
    hat: str
    time: datetime
    step: int
    speed: int


def read(value: bytes) -> Reading | str:
    """Return a record's reading, or the outcome of a record without one."""
    try:
        record = _decode(value)
    except msgspec.DecodeError:
        return "undecodable"
    longitude, latitude = record.location.coordinates
    if latitude == longitude == 0:
        return "bad_place"
    if record.speed > REJECT_ABOVE_KMH:
        return "bad_value"
    if record.speed == 0:
        return "zero"
    time = datetime.fromisoformat(record.observation)
    hat = f"{h3.latlng_to_cell(latitude, longitude, RESOLUTION):x}/{record.observation[:10]}/{time.hour:02}:00"
    step = (time.minute * 60 + time.second) // INTERVAL_S
    return Reading(record.license_plate, hat, time, step, min(record.speed, UPPER_BOUND_KMH))


@dataclass(frozen=True, slots=True)
class Task:
    """A program's task: fold the `records` records of a topic of the workload, and write the result as JSON."""

    servers: str
    topic: str
    records: int
    result: Path

    @classmethod
    def given(cls) -> "Task":
        """Parse the command line: bootstrap servers, topic, records, result."""
        servers, topic, records, result = sys.argv[1:]
        return cls(servers, topic, int(records), Path(result))


class Tally:
    """Outcomes of records, with a stopwatch from the first to the last."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._left = task.records
        self._outcomes: dict[str, int] = {}
        self._stopwatch = Stopwatch()

    def start(self) -> None:
        """Start the stopwatch, at the first record."""
        self._stopwatch.start()

    def add(self, outcome: str) -> bool:
        """Count a record; return True if it was the last one."""
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        self._left -= 1
        if not self._left:
            self._stopwatch.stop()
        return not self._left

    def write(self, rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Write the result. rows: each user's HAT, readings, sum and maximum (km/h)."""
        hats: dict[str, tuple[int, int, int, int]] = {}
        for hat, count, total, maximum in rows:
            users, readings, milli, most = hats.get(hat, (0, 0, 0, 0))
            hats[hat] = users + 1, readings + count, milli + 1000 * total, max(most, 1000 * maximum)
        found = self._stopwatch.result() | {"outcomes": self._outcomes, "hats": hats}
        self._task.result.write_text(json.dumps(found))
