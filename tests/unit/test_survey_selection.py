"""What a selection draws, and the file that it writes."""

from fractions import Fraction

import numpy as np
import pytest

from hatcast.lab.survey.counts import busy_cells, noisy_counts
from hatcast.stream.mechanisms import UnsafeNoise
from hatcast.stream.mechanisms.system import SystemNoise
from tests.support import Scripted

CELLS = [0x87608B0D2FFFFFF, 0x87608B0D3FFFFFF]


def test_every_number_of_every_candidate_gets_noise_for_a_distance_of_k_and_all_of_epsilon() -> None:
    noise = Scripted([5, -3, 0, 1])
    noisy = noisy_counts(np.array([[0, 7], [0, 0]], np.int64), 89, 31, 0.5, noise)
    assert noise.asked == [(0, 89, 0.5), (7, 89, 0.5), (0, 89, 0.5), (0, 89, 0.5)]
    assert noisy.counts.tolist() == [[5, 4], [0, 1]]
    assert noisy.scale == pytest.approx(89 / (31 * 0.5))


def test_noise_alone_decides_below_0_too() -> None:
    noisy = noisy_counts(np.array([[100], [0]], np.int64), 1, 1, 1.0, Scripted([-150, 11]))
    assert busy_cells(CELLS, noisy.counts, Fraction(10), 1) == [CELLS[1]]


def test_a_mean_that_is_just_the_bound_is_not_above_it() -> None:
    counts = np.array([[310, 311], [311, 311]], np.int64)
    assert busy_cells(CELLS, counts, Fraction(10), 31) == [CELLS[1]]


def test_noise_that_does_not_fit_is_refused_whatever_was_counted() -> None:
    with pytest.raises(UnsafeNoise):
        noisy_counts(np.zeros((1, 1), np.int64), 65_535, 31, 1e-12, SystemNoise())
