"""The two ends of a local report: what a device sends, and what the operator takes.    [H Def 3.10; estimators.md 6]"""

from decimal import Decimal
from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.gaussian import scale_bound

_SCALES: Final = 40  # of noise beyond [0, U]: an honest device is further away once in e**40 reports
_PLACES: Final = 40  # digits before or after the point; no more are needed, and 1E-999999999 is a long number


def report(mean: Fraction, parameters: HybridParameters, noise: Noise) -> int:
    """What a device sends of its own mean in one HAT, in steps: the mean cut to [0, U], on the grid, with noise.

    mean   milli-units, private; nothing else of the user leaves the device
    Guarantee (replace, against everybody, the operator included): `parameters.local_epsilon`, with Gaussian noise
    together with `parameters.delta`. Two means within [0, U]
    are U apart at most, so their nearest steps `local_distance` = floor(U / grid) + 1 at most (see Grid.distance),
    which is what the noise is made for. That there is a report, of this HAT, is not hidden.
    """
    grid, upper = parameters.grid, Fraction(parameters.upper_bound_milli)
    steps = grid.nearest(min(max(mean, Fraction(0)), upper))
    return parameters.noisy(noise, steps, parameters.local_distance, parameters.local_epsilon).value


def accepts(value: Decimal, epsilon: float, parameters: HybridParameters) -> bool:
    """Whether the operator takes a report.

    value     km/h: a multiple of the grid, at most `report_bound` away from 0. One device cannot move a mean by more
    epsilon   the device's own claim, equal to the policy's: weights and intervals stand on it
    It reads nothing but the report, which is private already. What else a broken or lying device can do: send a wrong
    value, of this size; no operator can see that.
    """
    if epsilon != parameters.local_epsilon or not _is_short(value):
        return False
    steps = Fraction(value) * 1000 / parameters.grid.milli
    return abs(steps) <= report_bound(parameters) and steps.denominator == 1


def report_bound(parameters: HybridParameters) -> int:
    """The most steps that an accepted report can be away from 0. The same on every machine, so that devices agree.

    Laplace: U + 40 U / epsilon, down to the grid. Gaussian: U + sqrt(80) s, up to the grid, with an s that is never
    below that of the noise. X has E exp(t X) <= exp(t^2 s^2 / 2) [Canonne, Kamath, Steinke 2020], and so P(X > x) <=
    exp(-x^2 / 2 s^2): it is above sqrt(80) s once in e**40 reports or less often.
    """
    if parameters.delta is not None:
        scale = scale_bound(parameters.local_distance, parameters.local_epsilon, parameters.delta)
        return parameters.local_distance + int((2 * _SCALES * scale * scale).sqrt()) + 1
    beyond = _SCALES / Fraction(parameters.local_epsilon)
    return parameters.grid.floor(parameters.upper_bound_milli * (1 + beyond))


def steps_of(value: Decimal, parameters: HybridParameters) -> int:
    """An accepted report in steps. Raises ValueError for one that is not on the grid."""
    steps = Fraction(value) * 1000 / parameters.grid.milli
    if steps.denominator != 1:
        raise ValueError("a report is a multiple of the grid")
    return steps.numerator


def _is_short(value: Decimal) -> bool:
    """Whether it can be computed with at once."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and abs(exponent) <= _PLACES and len(digits) <= 2 * _PLACES
