"""The noise of a private selection, as drawn, at a stated rate. This file cries wolf less than once in 10^6 runs."""

import math
from fractions import Fraction

import numpy as np
from scipy.stats import binom

from hatcast.lab.survey.counts import busy_cells, noisy_counts
from hatcast.stream.mechanisms.system import SystemNoise

DRAWS = 4_000
FALSE_ALARM = 1e-7  # of one comparison; there are six that must hold
CAP, EPSILON, DAYS, USERS = 12, 0.5, 4, Fraction(10)


def chance_above(count: int, scale: float) -> float:
    """P(count + X > N D) of the discrete Laplace X."""
    p, x = math.exp(-1 / scale), int(USERS * DAYS) - count
    at_most = p**-x / (1 + p) if x < 0 else 1 - p ** (x + 1) / (1 + p)
    return 1 - at_most


def is_plausible(kept: int, chance: float) -> bool:
    return bool(binom.isf(1 - FALSE_ALARM, DRAWS, chance) <= kept <= binom.isf(FALSE_ALARM, DRAWS, chance))


def test_a_candidate_is_kept_as_often_as_laplace_noise_of_k_over_epsilon_makes_it() -> None:
    """Candidates far below the bound, as many as there are without a reading, and above it: one number each."""
    for count in (0, 30, 60):
        counts = np.full((DRAWS, 1), count, np.int64)
        noisy = noisy_counts(counts, CAP, DAYS, EPSILON, SystemNoise())
        assert noisy.scale * DAYS == CAP / EPSILON
        kept = len(busy_cells(range(DRAWS), noisy.counts, USERS, DAYS))
        assert is_plausible(kept, chance_above(count, CAP / EPSILON))
        assert not is_plausible(kept, chance_above(count, 0.7 * CAP / EPSILON)), "the test has no power"
        assert len(set(noisy.counts.ravel().tolist())) > 100, "each candidate has noise of its own"
