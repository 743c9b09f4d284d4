"""Deterministic recording of a city's buses over several days, as canonical records."""

from pathlib import Path
from typing import Final

import numpy as np

VEHICLES: Final = 3_000
START_MS: Final = 1_641_094_200_000  # 2022-01-02T09:00+05:30
DAY_MS: Final = 86_400_000
HOURS_MS: Final = 12 * 3_600_000
_BOX: Final = ((21.05, 21.30), (72.70, 72.95))
_STEP: Final = 0.002  # degrees


def write_recording(path: Path, readings: int, days: int) -> None:
    """Write the recording: all buses in turn, from 9 to 21 o'clock each day."""
    random = np.random.default_rng(1)
    steps = -(-readings // (days * VEHICLES))
    place = [low + (high - low) * random.random(VEHICLES) for low, high in _BOX]
    with path.open("wb") as file:
        for day in range(days):
            for step in range(steps):
                place = [
                    np.clip(at + random.normal(0, _STEP, VEHICLES), *ends) for at, ends in zip(place, _BOX, strict=True)
                ]
                time = START_MS + day * DAY_MS + step * HOURS_MS // steps
                rows = zip(*(at.tolist() for at in place), random.integers(0, 60, VEHICLES).tolist(), strict=True)
                file.write(
                    b"".join(
                        b'{"vehicle":"GJ05BX%04d","time":%d,"lat":%.6f,"lon":%.6f,"speed":%d}\n' % (bus, time, *row)
                        for bus, row in enumerate(rows)
                    )
                )
