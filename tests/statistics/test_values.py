"""The noise of each of several values, as drawn by the system. This file cries wolf less than once in 10^6 runs."""

import math
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from hatcast.stream.estimators.baseline import ESTIMATOR
from hatcast.stream.estimators.values import Axis, ValuesForm
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from tests.support import as_vectors, plain_parameters

DRAWS = 4_000
FALSE_ALARM = 1e-7  # of one comparison; there are four
USERS, EPSILON = 10, 1.0
WIDTHS, GRIDS = (65_000, 4_200_000), ("0.001", "1")


def plausible(magnitudes: NDArray[np.float64], scale: float) -> bool:
    """|X| of a Laplace X is exponential, and 2 / scale times the sum of n of them is chi-squared with 2 n."""
    statistic = 2 * float(magnitudes.sum()) / scale
    freedom = 2 * len(magnitudes)
    return float(chi2.ppf(FALSE_ALARM / 2, freedom)) < statistic < float(chi2.isf(FALSE_ALARM / 2, freedom))


def test_each_axis_has_noise_for_its_width_times_the_number_of_values() -> None:
    """Ten users with one reading each: W / 10 and a step, times 2, over epsilon. Half of that is told apart."""
    whole = plain_parameters(ESTIMATOR)
    axes = tuple(
        Axis(0, type(whole)(width, Grid(Decimal(grid)), EPSILON / len(WIDTHS)))
        for width, grid in zip(WIDTHS, GRIDS, strict=True)
    )
    form, noise = ValuesForm(ESTIMATOR, axes), SystemNoise()
    users = as_vectors([1] * USERS, [[30_000, 660_000]] * USERS)
    drawn = [form.estimate(users, noise) or () for _ in range(DRAWS)]
    for at, (width, axis, middle) in enumerate(zip(WIDTHS, axes, (30_000, 660), strict=True)):
        steps = math.floor(width / USERS / axis.parameters.grid.milli) + 1
        scale = len(WIDTHS) * steps / EPSILON
        assert all(math.isclose(each[at].scale, scale) for each in drawn)
        magnitudes = np.abs(np.array([each[at].raw - middle for each in drawn], np.float64))
        assert plausible(magnitudes, scale)
        assert not plausible(magnitudes, scale / len(WIDTHS)), "a forgotten factor d passes"
    signs = np.array([[math.copysign(1, each[0].raw - 30_000), math.copysign(1, each[1].raw - 660)] for each in drawn])
    # Independent noise: a product of signs is +1 or -1 with equal chance; six deviations come once in 10^8.
    assert abs(float(signs.prod(axis=1).sum())) < 6 * math.sqrt(DRAWS)
