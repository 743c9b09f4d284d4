"""Laws of Gaussian noise on integers: its own delta, summed term by term, is never above what is promised."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from opendp.domains import atom_domain
from opendp.measurements import make_gaussian
from opendp.metrics import absolute_distance
from scipy.stats import norm

from hatcast.stream.mechanisms import MAX_SCALE, MAX_VALUE, Noise, UnsafeNoise, system
from hatcast.stream.mechanisms.gaussian import (
    composed_epsilon,
    delta_for_epsilon,
    deviation_for,
    discretization_loss,
    epsilon_for_delta,
    quantile95,
    scale_bound,
    smallest_scale,
    variance,
)
from hatcast.stream.mechanisms.system import SystemNoise

DELTA = 1e-8
distances = st.integers(1, 20) | st.integers(1, 300)
epsilons = st.sampled_from([0.1, 0.5, 1.0, 3.0])
deltas = st.sampled_from([DELTA, 1e-3])
scales = st.floats(0.05, 40)
few = settings(max_examples=40, deadline=None)


def chances(scale: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Integers up to 40 scales away, and the discrete Gaussian's chances of them."""
    numbers = np.arange(-math.ceil(40 * scale) - 2, math.ceil(40 * scale) + 3)
    terms = np.exp(-0.5 * (numbers / scale) ** 2)
    return numbers, terms / terms.sum()


def exact_delta(distance: int, scale: float, epsilon: float) -> float:
    """Of the discrete noise: the sum of what is more than exp(epsilon) times as likely.    [CKS 2020, Theorem 7]"""
    numbers, found = chances(scale)
    more = numbers > epsilon * scale**2 / distance - distance / 2
    losses = distance * (distance + 2 * numbers[more]) / (2 * scale**2)
    return math.fsum(found[more] * -np.expm1(epsilon - losses))


@few
@given(distances, epsilons, deltas)
@example(1, 3.0, 1e-3)
def test_noise_of_the_smallest_scale_keeps_its_promise_for_every_move_up_to_the_distance(
    distance: int, epsilon: float, delta: float
) -> None:
    scale = smallest_scale(distance, epsilon, delta)
    for move in {1, distance // 2 + 1, distance}:
        assert exact_delta(move, scale, epsilon) <= delta
    assert scale >= deviation_for(epsilon, delta) * distance
    assert scale <= float(scale_bound(distance, epsilon, delta))


def test_the_sum_is_dp_accountings_own_for_the_discrete_noise() -> None:
    from dp_accounting.pld.privacy_loss_mechanism import DiscreteGaussianPrivacyLoss

    for distance, scale in ((1, 5.0), (7, 30.0)):
        theirs = DiscreteGaussianPrivacyLoss(scale, distance).get_delta_for_epsilon(1.0)
        assert exact_delta(distance, scale, 1.0) == pytest.approx(theirs, rel=1e-6)


def test_the_deviation_of_continuous_noise_would_at_times_cost_more_than_delta() -> None:
    """The mutant: dp-accounting's calibration as it is."""
    for epsilon in (0.5, 1.0, 3.0):
        found = [exact_delta(d, deviation_for(epsilon, DELTA) * d, epsilon) > DELTA for d in range(1, 12)]
        assert any(found)


def test_what_the_proof_adds_is_small_where_the_grid_is_fine() -> None:
    for distance, most in ((1, 0.07), (217, 4e-4), (65_001, 2e-6), (10**8, 1e-8)):
        assert 1 <= smallest_scale(distance, 1.0, DELTA) / (deviation_for(1.0, DELTA) * distance) <= 1 + most
    assert smallest_scale(217, 1.0, DELTA) < 0.85 * float(scale_bound(217, 1.0, DELTA)), (
        "by the other proof it is wider"
    )


@given(scales)
@example(0.05)
def test_discrete_and_continuous_noise_drawn_as_quantiles_of_one_number_are_at_most_2_apart(scale: float) -> None:
    """The lemma's two inequalities; by symmetry they are all there is."""
    numbers, found = chances(scale)
    above = np.cumsum(found[::-1])[::-1]  # P(X >= k)
    positive = (numbers >= 1) & (numbers <= 30 * scale)
    continuous = norm.sf(numbers[positive] / scale), norm.sf((numbers[positive] - 1) / scale)
    later = norm.sf((numbers[positive] + 1) / scale)
    assert np.all(above[positive] <= continuous[1] * (1 + 1e-9))
    assert np.all(above[positive] >= later * (1 - 1e-9))


@few
@given(st.floats(0.02, 3), st.floats(-2, 5))
def test_delta_is_dp_accountings_for_continuous_noise_and_never_less(ratio: float, epsilon: float) -> None:
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    theirs = GaussianPrivacyLoss(1 / ratio).get_delta_for_epsilon(epsilon)
    assert theirs <= delta_for_epsilon(epsilon, ratio) * (1 + 1e-12) + 1e-12
    assert delta_for_epsilon(epsilon, ratio) <= theirs + 2e-9
    if epsilon > 0 and theirs > 1e-12:
        assert epsilon_for_delta(1 / ratio, delta_for_epsilon(epsilon, ratio)) == pytest.approx(
            epsilon, rel=1e-4, abs=1e-5
        )


def test_delta_of_losses_beyond_floats_is_still_a_bound() -> None:
    assert delta_for_epsilon(1e9, 1.0) >= 0
    assert delta_for_epsilon(1e6, math.sqrt(2e6)) >= 0.3


@pytest.mark.parametrize(("distance", "number"), [(1, 3), (6, 20)])
def test_many_noises_come_to_no_more_than_the_composed_figure(distance: int, number: int) -> None:
    """Their losses sum up exactly: those of one are multiples of d / s^2, so distributions are plain convolutions."""
    scale = smallest_scale(distance, 1.0, DELTA)
    numbers, found = chances(scale)
    summed = np.ones(1)
    for _ in range(number):
        summed = np.convolve(summed, found)
    sums = np.arange(len(summed)) + number * numbers[0]
    losses = distance * (number * distance + 2 * sums) / (2 * scale**2)
    ratio = distance / scale
    epsilon = composed_epsilon(ratio, discretization_loss(ratio, scale), number, 1e-6)
    for claimed, holds in ((epsilon, True), (epsilon - number * discretization_loss(ratio, scale) - 0.2, False)):
        above = losses > claimed
        assert (math.fsum(summed[above] * -np.expm1(claimed - losses[above])) <= 1e-6) == holds


@given(scales)
def test_the_variance_and_the_quantile_are_those_of_the_sum(scale: float) -> None:
    numbers, found = chances(scale)
    assert variance(scale) == pytest.approx(float(numbers**2 @ found), rel=1e-9, abs=1e-300)
    q = quantile95(scale)
    assert found[np.abs(numbers) <= q].sum() >= 0.95
    assert found[np.abs(numbers) <= q - 2].sum() < 0.95


# The system's draws


def claimed(distance: int, scale: float) -> float:
    """OpenDP's own bound, r^2 / 2."""
    return float(make_gaussian(atom_domain(T="i64"), absolute_distance(T="i64"), scale).map(distance))  # type: ignore[no-untyped-call]  # OpenDP leaves it untyped


@few
@given(st.integers(1, 2**40) | st.integers(1, 20), epsilons, deltas)
def test_opendp_confirms_the_scale_that_is_drawn_with(distance: int, epsilon: float, delta: float) -> None:
    scale = SystemNoise().gaussian(0, distance, epsilon, delta).scale
    ratio = math.sqrt(2 * claimed(distance, scale))
    assert delta_for_epsilon(epsilon - discretization_loss(ratio, scale), ratio) <= delta


@given(st.integers(-MAX_VALUE, MAX_VALUE))
def test_without_distance_nothing_is_drawn(value: int) -> None:
    found = SystemNoise().gaussian(value, 0, 1.0, DELTA)
    assert (found.value, found.scale) == (value, 0.0)


@pytest.mark.parametrize(
    ("value", "distance", "epsilon", "delta"),
    [
        *((MAX_VALUE + 1, 1, 1.0, DELTA), (-MAX_VALUE - 1, 1, 1.0, DELTA)),
        *((0, -1, 1.0, DELTA), (0, MAX_VALUE + 1, 1.0, DELTA), (0, 1, 0.5 / MAX_SCALE, DELTA)),
        *((0, 1, each, DELTA) for each in (0.0, -1.0, math.nan, math.inf, 5e-324)),
        *((0, 1, 1.0, each) for each in (0.0, -1e-6, 1.0, math.nan, 1e-101)),
    ],
)
def test_what_could_saturate_or_promises_nothing_is_refused(
    value: int, distance: int, epsilon: float, delta: float
) -> None:
    with pytest.raises(UnsafeNoise):
        SystemNoise().gaussian(value, distance, epsilon, delta)


def test_the_widest_noise_stays_within_64_bits() -> None:
    noise, distance = SystemNoise(), 2**47
    drawn = [noise.gaussian(MAX_VALUE, distance, 1.0, DELTA) for _ in range(100)]
    assert all(MAX_SCALE / 2 < each.scale <= MAX_SCALE and abs(each.value) < 2**62 for each in drawn)


def test_two_systems_do_not_draw_alike() -> None:
    def draws(noise: Noise) -> list[int]:
        return [noise.gaussian(0, 2**40, 1.0, DELTA).value for _ in range(8)]

    assert len({tuple(draws(SystemNoise())) for _ in range(4)}) == 4


def test_a_library_that_does_not_confirm_the_scale_is_never_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unconfirmed:
        def map(self, distance: int) -> float:
            return {1: math.nan, 2: math.inf, 3: 1.001 * claimed(3, smallest_scale(3, 1.0, DELTA))}[distance]

        def __call__(self, value: int) -> int:
            raise AssertionError

    monkeypatch.setattr(system, "make_gaussian", lambda *_: Unconfirmed())
    for distance in (1, 2, 3):
        with pytest.raises(UnsafeNoise, match="does not confirm"):
            SystemNoise().gaussian(0, distance, 1.0, DELTA)
