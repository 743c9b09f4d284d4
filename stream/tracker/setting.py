"""Constants of the speed model, and the keys of a tracker policy.    [docs/specification/tracker.md, sections 1 and 3]

The constants were found on two days of one city (2016-11-24 and 25). Anything found later must come from released
numbers: a constant that follows from unreleased speeds would tell of them.
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, Self

import numpy as np

REFERENCE_BOUND: Final = 65.0  # km/h: the upper bound for which the constants below hold


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the parts of a HAT's mean, in squared units of the policy's value (km/h).

    city, hour, coefficient, cell   prior, of one part each
    hat        of a HAT around the sum of its parts, without the sampling of its buses
    bus        of a bus within a day
    bus_hat    of a bus in one HAT around its day
    reading    of one reading around its bus in the HAT
    city_drift, cell_drift   added in an hour
    future     of a HAT of the next day around city + cell: its hour, features and sampling
    """

    city: float = 144.0
    hour: float = 2.0
    coefficient: float = 4.0
    cell: float = 32.0
    hat: float = 2.0
    bus: float = 14.0
    bus_hat: float = 60.0
    reading: float = 119.0
    city_drift: float = 0.08
    cell_drift: float = 0.01
    future: float = 15.0

    @classmethod
    def of(cls, upper_bound: float) -> Self:
        """Return the variances for values in [0, upper_bound]: they grow with its square."""
        factor = (upper_bound / REFERENCE_BOUND) ** 2
        default = cls()
        return cls(*(factor * getattr(default, each.name) for each in fields(cls)))


class Objective(StrEnum):
    """What is made accurate: HATs nearly alike, HATs by their number of buses, or half of each."""

    CELLS = "cells"
    BUSES = "buses"
    MIX = "mix"


@dataclass(frozen=True, slots=True)
class TrackerKeys:
    """Keys of a tracker policy.

    daily_limit   epsilon that a bus can lose on one day, in 1e-9
    share         of it, for queries at the close of an hour; the rest is for the settlement
    objective     of the settlement
    price         summed standard deviation (km/h) that one unit of a bus's epsilon must save in the settlement; at
                  first, because it falls
    watch         cells that are queried first
    watch_share   of a bus's limit, for queries of watched cells
    """

    daily_limit: int
    share: float = 0.3
    objective: Objective = Objective.CELLS
    price: float = 1.5
    watch: frozenset[str] = frozenset()
    watch_share: float = 0.0


_LIMITS: Final = (2.0, 5.0, 10.0, 20.0, 40.0)
_PRICES: Final = (5.0, 1.5, 0.8, 0.6, 0.3)


def default_price(epsilon: float, upper_bound: float = REFERENCE_BOUND) -> float:
    """Return the price for a daily limit of `epsilon`, in the unit of values in [0, upper_bound]."""
    reference = math.exp(float(np.interp(math.log(epsilon), np.log(_LIMITS), np.log(_PRICES))))
    return reference * upper_bound / REFERENCE_BOUND
