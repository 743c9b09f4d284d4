"""Exact law of a private list on small counts: the probability of each list, for all neighbours.

A list is a function of the noisy counts. It is tabulated by the code under audit: for each combination of noisy counts
around the threshold, where the last one on either side stands for all beyond. What the code requests of the noise gives
the probability of each combination.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.audit.transcript import Integers, Leak
from hatcast.lab.survey.run import Selection
from hatcast.stream.mechanisms import LaplaceNoise, Noise, Noisy

SelectFrom = Callable[[Integers, list[int], int, tuple[Fraction, int], float, Noise], Selection]
_CELLS: Final = 2
_SLOTS: Final = 2
_MOST: Final = 2  # users of a cell and slot
_THRESHOLD: Final = 1
_NOISY: Final = tuple(range(_THRESHOLD - 2, _THRESHOLD + 4))

Floats = NDArray[np.float64]


class _Answers:
    """Noise with given answers, which keeps its requests: (value, distance, epsilon)."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        self._answers = iter(answers)
        self.requests: list[tuple[int, int, float]] = []

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`."""
        self.requests.append((value, distance, epsilon))
        return Noisy(next(self._answers), distance / epsilon)


def losses_of_lists(cap: int, epsilon: float, select_from: SelectFrom) -> tuple[float, int]:
    """Return the largest log ratio of the probabilities of a list, and the number of neighbours. Raises Leak.

    Counts are of two cells and two slots; neighbours differ by 1 in up to `cap` of them.

    select_from   the code under audit
    """
    numbers, cells = _CELLS * _SLOTS, [*range(_CELLS)]

    def selected(counts: tuple[int, ...], noise: LaplaceNoise) -> tuple[int, ...]:
        table = np.array(counts, np.int64).reshape(_CELLS, _SLOTS)
        # The annotation of `select_from` has all of `Noise`: a list needs Laplace noise alone.
        chosen = select_from(table, cells, cap, (Fraction(_THRESHOLD), 1), epsilon, noise)  # type: ignore[arg-type]
        return tuple(chosen.selected)

    tables: dict[tuple[int, ...], Floats] = {}
    for at in product(range(len(_NOISY)), repeat=numbers):
        chosen = selected((0,) * numbers, _Answers(tuple(_NOISY[each] for each in at)))
        tables.setdefault(chosen, np.zeros((len(_NOISY),) * numbers))[at] = 1.0

    def law(counts: tuple[int, ...]) -> Floats:
        noise = _Answers(counts)
        selected(counts, noise)
        if [value for value, _, _ in noise.requests] != [*counts]:
            raise Leak("a count is published without noise, or gets it twice")
        masses = [_masses(value, asked / distance) for value, distance, asked in noise.requests]
        return np.array([_probability(table, masses) for table in tables.values()])

    laws = {counts: np.log(law(counts)) for counts in product(range(_MOST + 2), repeat=numbers)}
    found = [float(np.abs(laws[one] - laws[other]).max()) for one, other in _neighbours(numbers, min(cap, numbers))]
    return max(found), len(found)


def _neighbours(numbers: int, cap: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for counts in product(range(_MOST + 1), repeat=numbers):
        for entered in product((0, 1), repeat=numbers):
            if 0 < sum(entered) <= cap:
                yield counts, tuple(count + more for count, more in zip(counts, entered, strict=True))


def _masses(value: int, rate: float) -> Floats:
    """Return the probability of each noisy count, discrete Laplace around `value`, with both tails at the ends."""
    p = np.exp(-rate)
    found = (1 - p) / (1 + p) * p ** np.abs(np.array(_NOISY, np.float64) - value)
    low, high = value - _NOISY[0], _NOISY[-1] - value
    found[0] = p**low / (1 + p) if low >= 0 else 1 - p ** (1 - low) / (1 + p)
    found[-1] = p**high / (1 + p) if high >= 0 else 1 - p ** (1 - high) / (1 + p)
    return np.asarray(found)


def _probability(table: Floats, masses: list[Floats]) -> float:
    for each in reversed(masses):
        table = table @ each
    return float(table)
