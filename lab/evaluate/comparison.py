"""Mean absolute error of each contender at each epsilon, over many runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from hatcast.lab.evaluate.contenders import Contender
from hatcast.lab.evaluate.estimates import RunBatch, raw
from hatcast.lab.evaluate.simulation import Draws, Floats
from hatcast.lab.evaluate.values import Means
from hatcast.stream.estimators.grouping import Counts

_ELEMENTS: Final = 1_000_000  # users x coordinates x runs of a batch: about 8 MB per array


@dataclass(frozen=True, slots=True, eq=False)
class Hat:
    """Users of one HAT. counts: [L] largest first; means: drawn for each run; dimensions, unit: of a reading."""

    counts: Counts
    means: Means
    upper_bound_milli: int
    dimensions: int = 1
    unit: str = "km/h"


@dataclass(frozen=True, slots=True)
class Error:
    """Mean absolute error of `raw` against the mean of all readings, and its standard error; in l1 for vectors.

    suppressed   share of runs whose HAT was suppressed by noise; the error is over the others, NaN if there are none
    """

    mae: float
    standard_error: float
    suppressed: float = 0.0

    @classmethod
    def of(cls, deviations: Floats) -> Self:
        """Summarize the deviations [runs], NaN where suppressed."""
        released = deviations[~np.isnan(deviations)]
        number = len(released)
        mae = float(released.mean()) if number else math.nan
        spread = float(released.std(ddof=1)) if number > 1 else 0.0
        return cls(mae, spread / max(number, 1) ** 0.5, 1 - number / len(deviations))


Errors = dict[str, dict[float, Error]]
"""By contender and epsilon."""


def compare(
    hat: Hat,
    contenders: Sequence[Contender],
    epsilons: Sequence[float],
    runs: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Errors:
    """Compare all contenders over the same runs. Calls `progress` with the number of runs done since the last call."""
    draws = Draws(seed)
    resolved = [
        each.resolve(hat.counts, hat.upper_bound_milli, epsilon, hat.dimensions)
        for each in contenders
        for epsilon in epsilons
    ]
    deviations: list[list[Floats]] = [[] for _ in resolved]
    size = max(1, min(runs, _ELEMENTS // (len(hat.counts) * hat.dimensions)))
    for start in range(0, runs, size):
        number = min(size, runs - start)
        batch = RunBatch(hat.counts, hat.means(draws, number), hat.upper_bound_milli)
        for own_deviations, each in zip(deviations, resolved, strict=True):
            coordinates = np.abs(raw(batch, each, draws) - batch.target) / 1000
            own_deviations.append(coordinates.reshape(number, -1).sum(axis=1))
        progress(number)
    errors: Errors = {each.name: {} for each in contenders}
    for each, own_deviations in zip(resolved, deviations, strict=True):
        errors[each.contender.name][each.parameters.epsilon] = Error.of(np.concatenate(own_deviations))
    return errors
