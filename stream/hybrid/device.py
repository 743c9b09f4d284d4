"""Local reports: the noisy mean that a device sends, and the check by the operator.    [H Def 3.10]

See docs/specification/estimators.md, section 6.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.gaussian import scale_bound
from hatcast.stream.units import is_short

_SCALES: Final = 40  # accepted noise beyond [0, U], in scales: an honest device exceeds it once in e**40 reports


def report(mean: Fraction, parameters: HybridParameters, noise: Noise) -> int:
    """Return a device's report of its own mean in one HAT, in steps: clipped to [0, U], on the grid, with noise.

    mean   milli-units, private; nothing else of the user leaves the device
    Guarantee (replace, against everyone including the operator): `parameters.local_epsilon`, with Gaussian noise at
    `parameters.delta`. Two means within [0, U] are at most U apart, so their nearest steps at most `local_distance` =
    floor(U / grid) + 1 (see Grid.distance), for which the noise is drawn. The existence of the report and its HAT are
    not hidden.
    """
    grid, upper = parameters.grid, Fraction(parameters.upper_bound_milli)
    steps = grid.nearest(min(max(mean, Fraction(0)), upper))
    return parameters.noisy(noise, steps, parameters.local_distance, parameters.local_epsilon).value


def accepts(value: Decimal, epsilon: float, parameters: HybridParameters) -> bool:
    """Return whether the operator accepts a report.

    value     in the policy's unit; must be on the grid and at most `report_bound` from the lower bound, which bounds a
              device's influence
    epsilon   the device's claim; must equal the policy's, which weights and intervals are computed from
    The check reads the report only, which is private already. It cannot detect a wrong value within these limits from a
    faulty or dishonest device.
    """
    if epsilon != parameters.local_epsilon or not is_short(value):
        return False
    steps = parameters.grid.steps_above_lower(value)
    return abs(steps) <= report_bound(parameters) and steps.denominator == 1


def report_bound(parameters: HybridParameters) -> int:
    """Return the largest distance of an accepted report from the lower bound, in steps: equal on every machine.

    Laplace: U + 40 U / epsilon, rounded down to the grid. Gaussian: U + sqrt(80) s, rounded up to the grid, with an s
    of at least that of the noise. X has E exp(t X) <= exp(t^2 s^2 / 2) [Canonne, Kamath, Steinke 2020], and so
    P(X > x) <= exp(-x^2 / 2 s^2): it exceeds sqrt(80) s at most once in e**40 reports.
    """
    if parameters.delta is not None:
        scale = scale_bound(parameters.local_distance, parameters.local_epsilon, parameters.delta)
        return parameters.local_distance + int((2 * _SCALES * scale * scale).sqrt()) + 1
    beyond = _SCALES / Fraction(parameters.local_epsilon)
    return parameters.grid.floor(parameters.upper_bound_milli * (1 + beyond))


def steps_of(value: Decimal, parameters: HybridParameters) -> int:
    """Convert an accepted report (in the policy's unit) to steps. Raises ValueError if it is not on the grid."""
    steps = parameters.grid.steps_above_lower(value)
    if steps.denominator != 1:
        raise ValueError("a report must be a multiple of the grid")
    return steps.numerator
