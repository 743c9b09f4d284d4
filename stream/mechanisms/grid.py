"""The public grid: what is published is a multiple of it.    [estimators.md, section 4, Noise and grid]

Values are exact fractions of milli-units (38.5 km/h = 38500) until they are rounded to steps, once.
"""

import math
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from typing import Final

MILLI: Final = 1000
MAX_FINENESS: Final = 10  # noise of a scale of 2**10 steps and more differs from the continuous one by less than 1e-6
_NO_TAIL: Final = 0.01  # below this scale 0 comes with a chance of 1 - 2 exp(-100)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of `step` km/h, such as Decimal("0.001"). Raises ValueError unless it is above 0."""

    step: Decimal
    milli: Fraction = field(init=False, repr=False)
    """one step in milli-units"""
    digits: int = field(init=False, repr=False)
    """after the point, of every number on the grid"""
    units: int = field(init=False, repr=False)
    """of the last digit, in one step"""

    def __post_init__(self) -> None:
        if not (self.step.is_finite() and self.step > 0):
            raise ValueError("a grid's step is above 0")
        exponent = self.step.normalize().as_tuple().exponent
        object.__setattr__(self, "milli", Fraction(self.step) * MILLI)
        object.__setattr__(self, "digits", max(0, -exponent) if isinstance(exponent, int) else 0)
        object.__setattr__(self, "units", int(Fraction(self.step) * 10**self.digits))

    def nearest(self, value: Fraction) -> int:
        """The step nearest to a value in milli-units, the even one of two."""
        return round(value / self.milli)

    def floor(self, value: int | Fraction) -> int:
        """The greatest step that is not above a value in milli-units."""
        return math.floor(value / self.milli)

    def distance(self, sensitivity: Fraction, dimensions: int = 1) -> int:
        """How many steps apart two values can be rounded that are `sensitivity` (milli-units) apart; 0 for 0.

        dimensions   d, of vectors rounded coordinate by coordinate; both distances are then sums over coordinates (l1)

        In steps: rounding moves a coordinate by half a step at most, so ||round(x) - round(y)|| is at most
        ||x - y|| + d (1/2 + 1/2). It is an integer, so it is at most floor(||x - y||) + d. No less would do: where each
        coordinate lies on its own border of two steps, any move at all takes all d of them a step further.
        """
        return self.floor(sensitivity) + dimensions if sensitivity else 0

    def text(self, steps: int) -> str:
        """A number of steps in km/h, with the grid's digits: 21314 -> "21.314"."""
        return _text(steps * self.units, self.digits)

    def scale_text(self, scale: float) -> str:
        """A scale (steps) in km/h with the grid's digits, nearest, but never 0 where noise was drawn."""
        units = round(Fraction(scale) * self.units)
        return _text(max(units, 1) if scale else 0, self.digits)

    def fineness(self, published: float) -> int:
        """`fineness` of a scale that was published so, in km/h; it may have been rounded up by half of its last digit.

        Of 0, no noise, it is MAX_FINENESS: what depends on nobody is as fine as one likes.
        """
        if published == 0:
            return MAX_FINENESS
        return fineness((2 * round(published * 10**self.digits) - 1) // (2 * self.units))


def fineness(scale: int) -> int:
    """The greatest f, from 0 to MAX_FINENESS, for which a scale of so many steps is at least 2**f; 0 below 1."""
    return min(max(scale.bit_length() - 1, 0), MAX_FINENESS) if scale > 0 else 0


def _text(units: int, digits: int) -> str:
    whole, rest = divmod(abs(units), 10**digits)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}" if digits else f"{sign}{whole}"


def quantile95(scale: float) -> int:
    """The smallest q with P(|X| <= q) >= 0.95 for the discrete Laplace X of this scale, in steps; 0 for scale 0."""
    return tail_quantile(20, scale)


def tail_quantile(draws: int, scale: float) -> int:
    """The smallest q with P(|X| > q) <= 1 / draws for the discrete Laplace X of this scale, in steps; 0 for scale 0.

    draws   2 or more
    With p = exp(-1/scale): P(|X| > q) = 2 p^(q+1) / (1 + p), so q = ceil(scale ln(2 draws / (1 + p))) - 1. In 60
    digits; where they leave it open, the larger q.
    """
    if scale < _NO_TAIL:
        return 0
    with localcontext(Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        exact = Decimal(scale)
        q = exact * (Decimal(2 * draws) / (1 + (-1 / exact).exp())).ln() - 1
        return max(0, int((q + Decimal("1e-30")).to_integral_value(rounding=ROUND_CEILING)))


def clip(steps: int, top: int) -> int:
    """The nearest step within [0, top]."""
    return min(max(steps, 0), top)
