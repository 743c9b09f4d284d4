"""The public grid: every published value is a multiple of its step.    [docs/specification/estimators.md, section 4]

Values are exact fractions of milli-units (38.5 km/h = 38500) until they are rounded to steps, once.
"""

import math
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

MILLI: Final = 1000
MAX_FINENESS: Final = 10  # from a scale of 2**10 steps on, noise differs from continuous noise by less than 1e-6
_ROUNDINGS: Final = 1e-12  # of a quantile in floats, relative to the scale: a bound with room
_NO_TAIL: Final = 0.01  # below this scale, noise is 0 with probability 1 - 2 exp(-100)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of a value, which starts at the value's lower bound.

    Raises ValueError unless the step is above 0 and `lower` is a multiple of it.
    """

    step: Decimal  # in the value's unit, such as Decimal("0.001")
    lower: int = 0  # milli-units, a multiple of the step: values are computed as distances from it; `text` adds it
    milli: Fraction = field(init=False, repr=False)  # one step in milli-units
    digits: int = field(init=False, repr=False)  # after the point, of every number on the grid
    units: int = field(init=False, repr=False)  # of the last digit, in one step
    origin: int = field(init=False, repr=False)  # `lower` in steps

    def __post_init__(self) -> None:
        if not (self.step.is_finite() and self.step > 0):
            raise ValueError("the grid step must be above 0")
        milli, digits, units = _step_parts(self.step)
        object.__setattr__(self, "milli", milli)
        object.__setattr__(self, "digits", digits)
        object.__setattr__(self, "units", units)
        origin, rest = divmod(self.lower * milli.denominator, milli.numerator)
        if rest:
            raise ValueError("the lower bound must be a multiple of the grid step")
        object.__setattr__(self, "origin", origin)

    def nearest(self, value: Fraction) -> int:
        """Return the step nearest to a value in milli-units; of two, the even one."""
        return round(value / self.milli)

    def floor(self, value: int | Fraction) -> int:
        """Return the largest step that is not above a value in milli-units."""
        return math.floor(value / self.milli)

    def distance(self, sensitivity: Fraction, dimensions: int = 1) -> int:
        """Return the sensitivity in steps after rounding: floor(sensitivity / step) + d; 0 for sensitivity 0.

        sensitivity  milli-units, in l1 (a sum over coordinates)
        dimensions   d, of vectors that are rounded coordinate by coordinate

        Rounding moves a coordinate by at most half a step, so in steps ||round(x) - round(y)|| is at most
        ||x - y|| + d (1/2 + 1/2). It is an integer, so it is at most floor(||x - y||) + d. The bound is reached: if
        each coordinate lies halfway between two steps, the smallest change moves all d of them by a step.
        """
        return self.floor(sensitivity) + dimensions if sensitivity else 0

    def text(self, steps: int) -> str:
        """Format a value, `steps` above `lower`, in its unit and with the grid's digits: 21314 -> "21.314"."""
        return _text((steps + self.origin) * self.units, self.digits)

    def steps_above_lower(self, value: Decimal | Fraction | float) -> Fraction:
        """Return a value (in its unit) as steps above `lower`: the inverse of `text`, exact also between two steps."""
        return Fraction(value) * MILLI / self.milli - self.origin

    def json(self, steps: int) -> msgspec.Raw:
        """Encode a value, as `text` formats it."""
        return msgspec.Raw(self.text(steps).encode())

    def scale_json(self, scale: float) -> msgspec.Raw:
        """Encode a scale, as `scale_text` formats it."""
        return msgspec.Raw(self.scale_text(scale).encode())

    def scale_text(self, scale: float) -> str:
        """Format a scale (steps) in the value's unit, with the grid's digits, but never as 0 if noise was drawn."""
        units = round(Fraction(scale) * self.units)
        return _text(max(units, 1) if scale else 0, self.digits)

    def fineness(self, published: float) -> int:
        """Return the `fineness` of a published scale, which may be rounded up by half of its last digit.

        published   in the value's unit
        Scale 0 (no noise drawn) has MAX_FINENESS, because the value depends on no user's data.
        """
        if published == 0:
            return MAX_FINENESS
        return fineness((2 * round(published * 10**self.digits) - 1) // (2 * self.units))


@lru_cache(maxsize=64)  # a policy has few grids, and each release makes them anew
def _step_parts(step: Decimal) -> tuple[Fraction, int, int]:
    """Return a step in milli-units, the digits after its point, and the step in units of the last digit."""
    exponent = step.normalize().as_tuple().exponent
    digits = max(0, -exponent) if isinstance(exponent, int) else 0
    return Fraction(step) * MILLI, digits, int(Fraction(step) * 10**digits)


def fineness(scale: int) -> int:
    """Return floor(log2(scale)) of a scale in steps, limited to [0, MAX_FINENESS]."""
    return min(max(scale.bit_length() - 1, 0), MAX_FINENESS) if scale > 0 else 0


def _text(units: int, digits: int) -> str:
    whole, rest = divmod(abs(units), 10**digits)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}" if digits else f"{sign}{whole}"


def quantile95(scale: float) -> int:
    """Return the smallest q with P(|X| <= q) >= 0.95 for discrete Laplace X, in steps; 0 for scale 0."""
    return tail_quantile(20, scale)


def tail_quantile(draws: int, scale: float) -> int:
    """Return the smallest q with P(|X| > q) <= 1 / draws for discrete Laplace X, in steps; 0 for scale 0.

    draws   2 or more
    With p = exp(-1/scale): P(|X| > q) = 2 p^(q+1) / (1 + p), so q = ceil(scale ln(2 draws / (1 + p))) - 1. Floats
    decide unless the number before rounding is too close to an integer for them: the few roundings are off by less
    than 1e-15 of the scale times the logarithm, which is below 50. Then 60 digits; if they do not decide, the larger q.
    """
    if scale < _NO_TAIL:
        return 0
    near = scale * math.log(2 * draws / (1 + math.exp(-1 / scale))) - 1
    slack = _ROUNDINGS * (scale + 1)
    if math.floor(near - slack) == math.floor(near + slack):
        return max(0, math.floor(near) + 1)
    with localcontext(Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        exact = Decimal(scale)
        q = exact * (Decimal(2 * draws) / (1 + (-1 / exact).exp())).ln() - 1
        return max(0, int((q + Decimal("1e-30")).to_integral_value(rounding=ROUND_CEILING)))


def clip(steps: int, top: int) -> int:
    """Clip a number of steps to [0, top]."""
    return min(max(steps, 0), top)
