"""Relative improvement R over the central share and epsilon, by the lemmas.    [H, Figures 2b and 8a]"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hatcast.lab.evaluate.hybrid import Case
from hatcast.lab.evaluate.mean_squared_error import error_of, improvement
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.hybrid import HybridEstimator

SHARES: Final = (0.001, 0.1)
EPSILONS: Final = (0.1, 10.0)
_POINTS: Final = 41  # along each side


@dataclass(frozen=True, slots=True, eq=False)
class Heatmap:
    """R of one estimator. shares [C], epsilons [E], improvements [E, C]: NaN where one group is empty."""

    estimator: str
    sigma: float
    shares: Floats
    epsilons: Floats
    improvements: Floats


def heatmaps(case: Case, estimators: Sequence[HybridEstimator]) -> list[Heatmap]:
    """Return a heatmap of each estimator, with the users, deviations and gap of the case."""
    shares, epsilons = np.geomspace(*SHARES, _POINTS), np.geomspace(*EPSILONS, _POINTS)
    found = []
    for each in estimators:
        improvements = np.full((_POINTS, _POINTS), np.nan)
        for row, epsilon in enumerate(epsilons.tolist()):
            for column, share in enumerate(shares.tolist()):
                here = replace(case, share=share, epsilon=epsilon)
                if here.has_both_groups:
                    improvements[row, column] = float(improvement(error_of(each, here.setting), here.setting))
        found.append(Heatmap(each.name, case.sigma, shares, epsilons, improvements))
    return found
