"""Constants of the speed model.    [docs/specification/tracker.md, section 1]

The constants were found on two days of one city (2016-11-24 and 25). Anything found later must come from released
numbers: a constant that follows from unreleased speeds would tell of them.
"""

from dataclasses import dataclass, fields
from typing import Self

from hatcast.stream.policy.tracker_keys import REFERENCE_BOUND


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
    cell_drift: float = 0.002
    future: float = 15.0

    @classmethod
    def of(cls, upper_bound: float) -> Self:
        """Return the variances for values in [0, upper_bound]: they grow with its square."""
        factor = (upper_bound / REFERENCE_BOUND) ** 2
        default = cls()
        return cls(*(factor * getattr(default, each.name) for each in fields(cls)))
