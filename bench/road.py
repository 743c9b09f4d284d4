"""A city whose road speeds are known: recorded counts, repeated, with simulated speeds.

The variances are those found by maximum likelihood on two days of Capital Metro. The road's speed of a HAT is a sum of
parts for city, cell, hour, day, cell and day, cell and hour, a slow wandering of each cell, the count features, and the
HAT itself. A bus adds deviations of its day, of the HAT and of its readings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.plan.counts import CountedDays, SlotCounts
from hatcast.stream.tracker.counts import HatCounts, features_of
from hatcast.stream.tracker.tracker import HatUsers

UPPER_BOUND: Final = 65.0  # km/h
_LEAST: Final = 0.5  # km/h: a bus that stands is not a reading
_CITY: Final = 32.0
_FEATURES: Final = (-3.4, -1.4)
_CENTRE: Final = 0.4  # of ln(readings / users)
_CELL, _HOUR, _DAY, _CELL_DAY, _CELL_HOUR, _WANDERING, _HAT = 32.0, 0.5, 2.0, 0.24, 0.3, 0.3, 0.3
_BUS, _BUS_HAT, _READING = 14.0, 60.0, 119.0
_KEPT: Final = 0.7  # of a cell's wandering, from hour to hour
_HOUR_LAG: Final = 3.0  # hours
_HOURS: Final = 24

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedSlot:
    """One slot. number: hours since the first midnight; road: float64 [H], km/h, within [0, U]."""

    number: int
    hour: int
    hats: list[HatUsers]
    road: Floats


class City:
    """A simulated city, the same for the same seed."""

    def __init__(self, counts: CountedDays, days: int, seed: int) -> None:
        self._counts = counts
        self._random = random = np.random.default_rng(seed)
        cells = counts.cells
        lag = np.abs(np.subtract.outer(np.arange(_HOURS), np.arange(_HOURS)))
        smooth = np.linalg.cholesky(np.exp(-np.minimum(lag, _HOURS - lag) / _HOUR_LAG) + 1e-9 * np.eye(_HOURS))
        self._cell = random.normal(0, _CELL**0.5, cells)
        self._hour = smooth @ random.normal(0, _HOUR**0.5, _HOURS)
        self._day = random.normal(0, _DAY**0.5, days)
        self._cell_day = random.normal(0, _CELL_DAY**0.5, (cells, days))
        self._cell_hour = smooth @ random.normal(0, _CELL_HOUR**0.5, (_HOURS, cells))
        wandering = np.empty((days * _HOURS, cells))
        at = random.normal(0, _WANDERING**0.5, cells)
        for hour in range(len(wandering)):
            at = _KEPT * at + random.normal(0, (_WANDERING * (1 - _KEPT**2)) ** 0.5, cells)
            wandering[hour] = at
        self._wandering = wandering

    def days(self) -> Iterator[list[SimulatedSlot]]:
        """Yield the slots of each day. To be called once."""
        for day in range(len(self._day)):
            slots = self._counts.days[day % len(self._counts.days)]
            buses = 1 + max(int(hat.buses.max()) for slot in slots for hat in slot.hats)
            of_day = self._random.normal(0, _BUS**0.5, buses)
            yield [self._slot(day, slot, of_day) for slot in slots]

    def _slot(self, day: int, slot: SlotCounts, of_day: Floats) -> SimulatedSlot:
        number = day * _HOURS + slot.hour
        counts = sorted(slot.hats, key=lambda hat: hat.cell)
        speeds = self._speeds(day, slot.hour, counts, self._wandering[number])
        hats = [self._hat(hat, speed, of_day) for hat, speed in zip(counts, speeds.tolist(), strict=True)]
        return SimulatedSlot(number, slot.hour, hats, np.clip(speeds, 0, UPPER_BOUND))

    def _speeds(self, day: int, hour: int, hats: Sequence[HatCounts], wandering: Floats) -> Floats:
        cells = np.array([hat.cell for hat in hats])
        features = np.array([features_of(len(hat.buses), int(hat.readings.sum()), _CENTRE) for hat in hats])
        of_cells = self._cell + self._cell_day[:, day] + self._cell_hour[hour] + wandering
        own = self._random.normal(0, _HAT**0.5, len(hats))
        return np.asarray(_CITY + self._hour[hour] + self._day[day] + of_cells[cells] + features @ _FEATURES + own)

    def _hat(self, hat: HatCounts, speed: float, of_day: Floats) -> HatUsers:
        spread = np.sqrt(_BUS_HAT + _READING / hat.readings)
        means = speed + of_day[hat.buses] + spread * self._random.normal(0, 1, len(hat.buses))
        sums = np.rint(np.clip(means, _LEAST, UPPER_BOUND) * hat.readings * 1000).astype(np.int64)
        return HatUsers(f"{hat.cell:05}", hat.buses.astype(np.uint64), hat.readings, sums)
