"""Weighted mean of a window for each cell, with its interval.    [docs/specification/continual.md, sections 2 and 3]

For weights w of a cell's slots, W their sum, a the standard deviations of the common parts of the errors and b the
variances of the own parts, the error of sum(w v) / W has a variance of at most

    (sum(w a) / W)^2 + sum(w^2 b) / W^2

by Cauchy-Schwarz for the common parts, whatever their correlation, and by independence for the own parts.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from hatcast.stream.running.inputs import Inputs
from hatcast.stream.tracker.model import Floats, Integers
from hatcast.stream.tracker.observations import DEVIATIONS

# Quantile of a sum by its excess kurtosis k: z + (z^3 - 3 z) k / 24 (Cornish-Fisher). The next term is negative. No sum
# of Laplace noise has a larger quantile than the noise alone.
_PER_KURTOSIS: Final = (DEVIATIONS**3 - 3 * DEVIATIONS) / 24
_LAPLACE: Final = math.log(20) / math.sqrt(2)


class WindowMeans(NamedTuple):
    """Means of the cells that have a slot in a window.

    cells        int64 [C]  their numbers, ascending
    slots        int64 [C]  number of slots
    means, sd    float64 [C]  above the policy's lower bound, in its unit; not clipped
    half_widths  float64 [C]  of 95 % intervals
    """

    cells: Integers
    slots: Integers
    means: Floats
    sd: Floats
    half_widths: Floats


def window_means(window: Iterable[Inputs], cells: int) -> WindowMeans:
    """Return the mean of each cell over the slots of a window, in their order. cells: number of cells."""
    slots = np.zeros(cells, np.int64)
    weight, value, common, own, fourth = sums = np.zeros((5, cells))
    for inputs in window:
        at, w = inputs.cells, inputs.weights.astype(np.float64)
        slots[at] += 1
        weight[at] += w
        value[at] += w * inputs.values
        common[at] += w * inputs.common
        own[at] += w**2 * inputs.own
        fourth[at] += w**4 * inputs.fourth
    present = np.flatnonzero(slots)
    weight, value, common, own, fourth = sums[:, present]
    variance = (common**2 + own) / weight**2
    sd = np.sqrt(variance)
    excess = fourth / weight**4 / variance**2
    half_widths = np.minimum(DEVIATIONS + _PER_KURTOSIS * excess, _LAPLACE) * sd
    return WindowMeans(present, slots[present], value / weight, sd, half_widths)
