"""Prior means and variances of the model, for each kind of value.    [docs/specification/tracker.md, section 1]"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Final, Literal, Self

import msgspec

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import REFERENCE_BOUND, TIMETABLE_PRIOR, reference_width

SCALES_OF_A_DOUBLING: Final = 4  # half a step is within what the coverage of an interval allows
LEAST_SCALE: Final = -32
MOST_SCALE: Final = 4  # standard deviations from 1/256 to 2 times those of a guessed prior
PriorScale = Annotated[int, msgspec.Meta(ge=LEAST_SCALE, le=MOST_SCALE)]  # n of a stored state
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the parts of a HAT's mean, in squared units of the policy's value (km/h)."""

    # city, hour, coefficient, cell, day: prior, of one part each; the day's is new on each date
    city: float = 144.0
    hour: float = 2.0
    coefficient: float = 1.0
    cell: float = 32.0
    scheduled: float = TIMETABLE_PRIOR.variance  # prior, of a cell with a scheduled speed
    day: float = 2.0
    hat: float = 2.0  # of a HAT around the sum of its parts, without the sampling of its buses
    bus: float = 14.0  # of a bus within a day
    bus_hat: float = 60.0  # of a bus in one HAT around its day
    reading: float = 119.0  # of one reading around its bus in the HAT
    # city_drift, cell_drift: added in an hour
    city_drift: float = 0.002
    cell_drift: float = 0.002
    future: float = 15.0  # of a HAT of the next day around city + cell: its hour, features and sampling
    # is_guess: whether nothing is known of the value but its range: the scale of these variances is learnt then
    # is_usual: whether that is the range in which most values are, which says more of how much they differ
    is_guess: bool = False
    is_usual: bool = False

    def scaled(self, factor: float) -> Self:
        """Return the variances of a value that is `factor` times as large."""
        numbers = (each.name for each in fields(self) if not each.name.startswith("is_"))
        return replace(self, **{name: factor**2 * getattr(self, name) for name in numbers})

    def at(self, prior_scale: int) -> Self:
        """Return the variances at a scale of the prior: all but the city's, whose level the range leaves open."""
        return replace(self.scaled(factor_of(prior_scale)), city=self.city)


def factor_of(prior_scale: int) -> float:
    """Return the factor of all standard deviations of a guessed prior at a scale: 2^(n/4)."""
    return float(2.0 ** (prior_scale / SCALES_OF_A_DOUBLING))


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of the model's parts, in the policy's unit above its lower bound."""

    width: float  # of the value's range: values are in [0, width]
    reference_width: float  # of the range to which the constants are stretched
    city: float  # mean of the city
    coefficients: tuple[float, float]  # means of the features' coefficients
    variances: Variances  # at a scale of 0

    @classmethod
    def of(
        cls,
        upper_bound: float,
        *,
        speed: Literal["journey"] | None = None,
        value: str | None = None,
        lower: float = 0.0,
        usual: tuple[float, float] | None = None,
    ) -> Self:
        """Return the prior of a value in [lower, lower + upper_bound].

        speed   None: that while moving
        value   name of a value other than a speed: of it nothing is known but its range, in which 0 is a usual value
        usual   range of such a value in which about 95 of 100 of its readings are; None: any
        """
        if value is not None:
            first, last = (lower, lower + upper_bound) if usual is None else usual
            middle = 0.0 if usual is None and first < 0 < last else (first + last) / 2
            width = reference_width(upper_bound, usual)
            variances = _MOVING[2].scaled(width / REFERENCE_BOUND)
            variances = replace(variances, is_guess=True, is_usual=usual is not None)
            return cls(upper_bound, width, middle - lower, (0.0, 0.0), variances)
        factor = upper_bound / REFERENCE_BOUND
        city, (of_readings, of_users), variances = _MOVING if speed is None else _JOURNEY
        coefficients = (factor * of_readings, factor * of_users)
        return cls(upper_bound, upper_bound, factor * city, coefficients, variances.scaled(factor))

    @classmethod
    def of_policy(cls, policy: Policy) -> Self:
        """Return the prior of a policy's value."""
        bound, lower, given = policy.upper_bound / _MILLI, policy.lower / _MILLI, policy.released_value.usual
        usual = None if given is None else (given[0] / _MILLI, given[1] / _MILLI)
        return cls.of(bound, speed=policy.speed, value=policy.value_name, lower=lower, usual=usual)


# For an upper bound of 65 km/h. Those of the speed while moving were found on two days of one city (2016-11-24, 25),
# those of a journey on five (these two, 26, 27, and 2017-03-21). Anything found later must come from released numbers:
# a constant that follows from unreleased speeds would tell of them. Where buses send more and are more, they are
# slower; a bus that stands sends more, and that is most of what is known of a journey.
_MOVING: Final = (REFERENCE_BOUND / 2, (-3.0, -0.7), Variances())
_JOURNEY: Final = (20.0, (-10.0, 0.0), Variances(reading=245.0))
