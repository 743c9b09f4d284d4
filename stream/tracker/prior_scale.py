"""Scale of a guessed prior: learnt from the released numbers of settled dates.

The prior of a value other than speeds is that of speeds, stretched to the value's range. A value such as a
concentration of dust differs by much less than its range allows: then queries clip too far out, their noise is too
large, and intervals say too little. So all standard deviations of such a prior are multiplied by 2^(n/4), for a whole
number n that the tracker chooses at the end of each date.    [docs/specification/tracker.md, section 1]
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.tracker.prior import LEAST_SCALE, MOST_SCALE, SCALES_OF_A_DOUBLING, factor_of
from hatcast.stream.tracker.query import ResidualQuery

SCALES: Final = MOST_SCALE - LEAST_SCALE + 1  # number of them
_SCALES: Final = np.arange(LEAST_SCALE, MOST_SCALE + 1)
_FACTORS: Final[NDArray[np.float64]] = 2.0 ** (_SCALES / SCALES_OF_A_DOUBLING)
_WINDOW: Final = 200.0  # queries; older ones fade exponentially: one scale is too simple for more to be evidence
_DEVIATIONS: Final = 3.0  # of an innovation, at most: one that is farther out counts as that far
_STEP: Final = 4  # by which n falls in a day: what is clipped too near looks as if it were near
_QUANTILES: Final = np.array((0.65, 0.98))  # of the posterior: a scale between them stays
# Of ln(factor) before any query. A range says at most how much a value differs: the 0.97 quantile is 0, 1.881 standard
# deviations above the mean. A range of most values says about how much.
_OF_RANGE: Final = -((np.log(_FACTORS) / 1.2 + 1.881) ** 2) / 2
_OF_USUAL: Final = -((np.log(_FACTORS) / 0.4) ** 2) / 2


class Evidence:
    """Logarithm of the likelihood of each scale, from the innovations of queries of one cell.

    At another scale the noise of an innovation is the same, and so is what is known of the shared parts; the rest of
    its variance is multiplied by the square of the factor between both scales. A query clips at z standard deviations
    of its own scale, so at a smaller one more of each difference is kept. Pulses count as nothing: most of their
    variance is of the shared parts.

    sums     float64 [37]  over recent queries
    is_new   whether there was one since the last choice
    """

    def __init__(self, sums: Sequence[float] | NDArray[np.float64] = (0.0,) * SCALES) -> None:
        """sums: as they were before."""
        self.sums = np.array(sums, np.float64)
        self.is_new = False

    def add(self, innovation: float, query: ResidualQuery) -> None:
        """Add the innovation of a query."""
        if not query.members.is_of_one_cell:
            return
        gain, factors = query.gain, _FACTORS / factor_of(query.prior_scale)
        kept = np.array([math.erf(query.clip / factor / math.sqrt(2)) for factor in factors.tolist()]) / query.kept
        shared = float(gain.row @ gain.shared) * gain.variance
        expected = query.noise + kept**2 * (shared + factors**2 * (gain.variance - query.noise - shared))
        squared = min(innovation**2, _DEVIATIONS**2 * gain.variance)
        self.is_new = True
        self.sums *= 1 - 1 / _WINDOW
        self.sums -= (np.log(expected) + squared / expected) / 2


def next_scale(evidence: Sequence[Evidence], prior_scale: int, *, is_usual: bool) -> int:
    """Return the scale of the next date: of those between two quantiles, the nearest to this date's.

    So it falls only to where it is almost surely wide enough, and rises only if it is probably too narrow: clips say
    little of how much too narrow. It stays if there was no query since the last choice.

    evidence      of each sequence of released numbers: a simulation has several, and takes their mean
    prior_scale   of the date before
    is_usual      as in `Variances`
    """
    if not any(each.is_new for each in evidence):
        return prior_scale
    for each in evidence:
        each.is_new = False
    sums = np.mean([each.sums for each in evidence], axis=0) + (_OF_USUAL if is_usual else _OF_RANGE)
    shares = np.exp(sums - sums.max()).cumsum()
    low, high = (int(scale) for scale in _SCALES[np.searchsorted(shares, _QUANTILES * shares[-1])])
    return max(min(max(prior_scale, low), high), prior_scale - _STEP)
