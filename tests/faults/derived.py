"""A feed that derives speeds: a replay of positions goes on while everything breaks, and sends what `batch` derives."""

import random
from collections.abc import Iterator
from typing import Final

from tests.faults.facts import Totals
from tests.faults.generate import FIRST_MS, OPEN_MS, PARTITIONS, end_of
from tests.integration.harness import Pipeline
from tests.services import Record

READ_AS: Final = ("--format", "jsonl", "--derive-speed")
_STEP_MS: Final = 60_000  # from one position of a bus to its next
_LOST: Final = 0.05  # positions that nobody hears of: over two of them in a row no speed is derived
_FAULT_S: Final = 5.0  # a fault takes, about
_SPAN_KM: Final = 10.0  # a bus goes so far, and back
_SECONDS: Final = 600.0


class DerivedFeed:
    """The one producer of a run: `hatcast feed replay`. It has to outlast whatever happens to Kafka."""

    def __init__(self, pipeline: Pipeline, seed: int, readings: int, faults: int) -> None:
        self._pipeline = pipeline
        self._file = pipeline.folder / "positions.jsonl"
        with self._file.open("wb") as file:
            file.writelines(_positions(random.Random(seed), readings))
        speedup = OPEN_MS / 1000 / (_FAULT_S * max(1, faults))
        self._process = pipeline.start("feed", "replay", self._file, *READ_AS, "--no-end", "--speedup", speedup)

    def allow(self, share: float) -> None:
        """It has a pace of its own."""

    def finish(self) -> None:
        """Wait until all is sent, and send the last ticks."""
        code = self._process.wait(_SECONDS)
        assert code == 0, f"the replay ended with {code}: {self._process.log_tail()}"
        ticks = [Record(b"", None, partition, end_of(1)) for partition in range(PARTITIONS)]
        self._pipeline.kafka.produce(self._pipeline.settings.topics.telemetry, ticks)

    def hats(self) -> dict[str, Totals]:
        """`cell/date/slot` -> what one process makes of the same positions."""
        options = (*READ_AS, "--contributions", "--json")
        folded = self._pipeline.run("batch", self._file, *options, timeout=_SECONDS)
        return {hat: tuple(totals) for hat, totals in folded.json["hats"].items()}


def _positions(chance: random.Random, readings: int) -> Iterator[bytes]:
    """Of buses at 10 to 39 km/h, in the order of their times, up to the end of the log."""
    steps = (end_of(1) - FIRST_MS) // _STEP_MS
    buses = max(20, readings * 10 // (9 * steps))
    for step in range(steps):
        for bus in range(buses):
            if chance.random() >= _LOST:
                time = FIRST_MS + step * _STEP_MS + bus * _STEP_MS // buses
                gone = (10 + bus % 30) * (time - FIRST_MS) / 3_600_000 % (2 * _SPAN_KM)
                latitude, longitude = 21.0 + min(gone, 2 * _SPAN_KM - gone) / 111.2, 72.7 + 0.05 * (bus % 3)
                yield b'{"vehicle":"bus %d","time":%d,"lat":%.6f,"lon":%.2f}\n' % (bus, time, latitude, longitude)
