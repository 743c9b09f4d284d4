"""Public counts of one date, as the model and the schedule see them.    [docs/specification/tracker.md, section 1]"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.tracker.prior import Variances

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_USERS_CENTRE: Final = 2.0  # of ln(users): near its mean in one city


@dataclass(frozen=True, slots=True, eq=False)
class HatCounts:
    """Public counts of one HAT."""

    cell: int  # number of its cell, from 0
    hour: int  # hour of the local clock in which its slot starts, 0 to 23
    buses: Integers  # int64 [L], 1 or more  numbers of its buses on this date, from 0, each once
    readings: Integers  # int64 [L]  of each bus, 1 or more


@dataclass(frozen=True, slots=True, eq=False)
class ModelHat:
    """One HAT of a day, as the model sees it."""

    cell: int
    hour: int
    features: Floats  # float64 [2]  ln(readings / users) less its mean in the slot, and ln(users), centred
    variance: float  # of the HAT's own deviation, which has the sampling of its buses, before any release
    road_share: float  # of `variance`, what is not sampling
    users: int  # number of its buses; its contributions are those from number `first` on
    first: int

    @property
    def end(self) -> int:
        """Number after its last contribution."""
        return self.first + self.users


def features_of(users: float, readings: float, centre: float) -> Floats:
    """Return the model's features of a HAT, float64 [2]. centre: as `centre_of` returns it."""
    return np.log((readings / users, users)) - (centre, _USERS_CENTRE)


def centre_of(slot: Iterable[tuple[int, int]]) -> float:
    """Return the centre of ln(readings / users): its mean over the HATs of a slot. slot: users and readings.

    How often buses send is a matter of the feed, and changes with it: only differences between the HATs of one slot
    tell of speeds. 0 without HATs.
    """
    logarithms = [math.log(readings / users) for users, readings in slot]
    return math.fsum(logarithms) / max(len(logarithms), 1)


class DayCounts:
    """Public counts of one date. HATs are added hour by hour; a contribution is one bus in one HAT.

    Under `replace` the users of a HAT and their numbers of readings are public. All that a tracker decides on the date
    is a function of these and of what was fixed before it; only `query.noiseless_sum` reads the private means of buses.

    hats       in the order in which they were added
    of_cell    numbers of each cell's HATs, ascending
    cells      int64 [H]  number of each HAT's cell
    own        float64 [H]  `ModelHat.variance`
    hat        int64 [N]  number of each contribution's HAT
    bus        int64 [N]  number of its bus
    readings   float64 [N]
    weight     float64 [N]  the bus's share of the HAT's readings
    variance   float64 [N]  of the bus's mean around the HAT's
    """

    def __init__(self, variances: Variances) -> None:
        self._variances = variances
        self.hats: list[ModelHat] = []
        self.of_cell: dict[int, list[int]] = {}
        self.cells = np.empty(0, np.int64)
        self.own = np.empty(0)
        self.hat = np.empty(0, np.int64)
        self.bus = np.empty(0, np.int64)
        self.readings, self.weight, self.variance = np.empty((3, 0))

    def add(self, counts: Sequence[HatCounts]) -> range:
        """Add the HATs of a slot. Return their numbers."""
        centre = centre_of((len(each.buses), int(each.readings.sum())) for each in counts)
        before, at = len(self.hats), len(self.hat)
        columns: list[tuple[Integers, Integers, Floats, Floats, Floats]] = []
        for each in counts:
            hat, column = self._hat_of(each, at, centre)
            self.of_cell.setdefault(hat.cell, []).append(len(self.hats))
            self.hats.append(hat)
            columns.append(column)
            at = hat.end
        if columns:
            added = self.hats[before:]
            self.cells = np.concatenate((self.cells, [hat.cell for hat in added]))
            self.own = np.concatenate((self.own, [hat.variance for hat in added]))
            hat_column, bus, readings, weight, variance = (np.concatenate(each) for each in zip(*columns, strict=True))
            self.hat = np.concatenate((self.hat, hat_column))
            self.bus = np.concatenate((self.bus, bus))
            self.readings = np.concatenate((self.readings, readings))
            self.weight = np.concatenate((self.weight, weight))
            self.variance = np.concatenate((self.variance, variance))
        return range(before, len(self.hats))

    def _hat_of(
        self, counts: HatCounts, first: int, centre: float
    ) -> tuple[ModelHat, tuple[Integers, Integers, Floats, Floats, Floats]]:
        users, variances = len(counts.buses), self._variances
        readings = counts.readings.astype(np.float64)
        total = float(readings.sum())
        weight = readings / total
        variance = variances.bus + variances.bus_hat + variances.reading / readings
        own = variances.hat + float(weight @ (weight * variance))
        hat = ModelHat(
            counts.cell, counts.hour, features_of(users, total, centre), own, variances.hat / own, users, first
        )
        return hat, (np.full(users, len(self.hats)), counts.buses, readings, weight, variance)
