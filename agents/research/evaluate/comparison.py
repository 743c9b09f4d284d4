"""The mean absolute error of each contender at each epsilon, over many runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from hatcast.agents.research.evaluate.contenders import Contender
from hatcast.agents.research.evaluate.estimates import Lot, raw
from hatcast.agents.research.evaluate.simulation import Draws, Floats
from hatcast.agents.research.evaluate.values import Means
from hatcast.stream.estimators.grouping import Counts

_ELEMENTS: Final = 1_000_000  # users times coordinates times runs at once: some 8 MB a table


@dataclass(frozen=True, slots=True, eq=False)
class Hat:
    """The users of one HAT. counts [L] largest first; means: of each run; dimensions: of a reading."""

    counts: Counts
    means: Means
    upper_bound_milli: int
    dimensions: int = 1


@dataclass(frozen=True, slots=True)
class Error:
    """Mean absolute error (of vectors: in l1) of `raw` against the mean of all readings, its standard error; km/h.

    suppressed   share of the runs in which noise alone suppressed the HAT; the error is of the other runs, NaN for none
    """

    mae: float
    standard_error: float
    suppressed: float = 0.0

    @classmethod
    def of(cls, off: Floats) -> Self:
        """off [runs], NaN where suppressed."""
        released = off[~np.isnan(off)]
        number = len(released)
        mae = float(released.mean()) if number else math.nan
        spread = float(released.std(ddof=1)) if number > 1 else 0.0
        return cls(mae, spread / max(number, 1) ** 0.5, 1 - number / len(off))


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
    """All of them over the same runs. `progress` is told how many runs were done."""
    draws = Draws(seed)
    settled = [
        each.settled(hat.counts, hat.upper_bound_milli, epsilon, hat.dimensions)
        for each in contenders
        for epsilon in epsilons
    ]
    lots: list[list[Floats]] = [[] for _ in settled]
    size = max(1, min(runs, _ELEMENTS // (len(hat.counts) * hat.dimensions)))
    for start in range(0, runs, size):
        number = min(size, runs - start)
        lot = Lot(hat.counts, hat.means(draws, number), hat.upper_bound_milli)
        for errors, each in zip(lots, settled, strict=True):
            off = np.abs(raw(lot, each, draws) - lot.target) / 1000
            errors.append(off.reshape(number, -1).sum(axis=1))
        progress(number)
    found: Errors = {each.name: {} for each in contenders}
    for each, lot_errors in zip(settled, lots, strict=True):
        found[each.contender.name][each.parameters.epsilon] = Error.of(np.concatenate(lot_errors))
    return found
