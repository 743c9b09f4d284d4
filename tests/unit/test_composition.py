"""The reported (epsilon, delta): never too small, never above the sum, and as small as the noise that was drawn allows.

The oracle composes the very mechanisms exactly: their losses are multiples of one step, so that distributions of sums
are plain convolutions, without Fourier transforms and without rounding a loss.
"""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hatcast.stream.accounting import NOISES, ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.units import NANO

DELTA = 1e-6
HALF = Fraction(1, 2)


def noise_alone(fineness: int) -> ChargeSplit:
    return ChargeSplit((Fraction(1),), (), fineness)


def equal(epsilon: float, number: int, spending: ChargeSplit | None = None) -> float:
    """The figure of equal charges, spent so."""
    level = round(epsilon * NANO)
    return composed_epsilon({level: number}, DELTA, None if spending is None else KnownCharges(level, number, spending))


# The exact figure.

Losses = NDArray[np.float64]
"""[2 n + 1] chances of the losses -n, ..., n, in steps"""


def laplace_losses(distance: int, epsilon: float) -> Losses:
    """Of discrete Laplace noise of scale distance / epsilon, for a move by `distance`; a step is epsilon / distance."""
    p = math.exp(-epsilon / distance)
    chances = np.zeros(2 * distance + 1)
    chances[2 * distance] = 1 / (1 + p)  # all numbers up to 0
    for k in range(1, distance):
        chances[2 * (distance - k)] = (1 - p) / (1 + p) * p**k
    chances[0] = p**distance / (1 + p)  # all from `distance` on
    return chances


def pure_losses(steps: int, epsilon: float) -> Losses:
    """Of randomised response; `steps` make epsilon."""
    chances = np.zeros(2 * steps + 1)
    chances[-1] = math.exp(epsilon) / (1 + math.exp(epsilon))
    chances[0] = 1 - chances[-1]
    return chances


def exact_epsilon(parts: list[Losses], step: float, delta: float) -> float:
    """The least epsilon for which the sum of all losses keeps delta."""
    total = np.ones(1)
    for part in parts:
        total = np.convolve(total, part)
    losses = step * (np.arange(len(total)) - len(total) // 2)

    def exceeds(epsilon: float) -> bool:
        above = losses > epsilon
        return float(np.sum(total[above] * -np.expm1(epsilon - losses[above]))) > delta

    low, high = 0.0, float(losses[-1])
    if not exceeds(low):
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


# For discrete Laplace noise.


@pytest.mark.parametrize("number", [1, 7, 30])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("distance", [4, 9, 40, 160])
def test_the_figure_of_laplace_noise_lies_just_above_the_exact_one(distance: int, epsilon: float, number: int) -> None:
    fineness = int(math.log2(distance / epsilon))
    exact = exact_epsilon([laplace_losses(distance, epsilon)] * number, epsilon / distance, DELTA)
    found = equal(epsilon, number, noise_alone(fineness))
    assert exact <= found <= number * epsilon
    if fineness >= 3:  # what the continuous noise that stands for it costs more, and a millionth for rounding losses
        assert found <= exact + number * 0.25 ** (fineness + 1) + 2e-5 * exact + 1e-9


@pytest.mark.parametrize(("distance", "number"), [(20, 5), (400, 20)])
def test_it_agrees_with_composing_the_very_noise_one_by_one(distance: int, number: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_discrete_laplace_mechanism(1 / distance, distance, value_discretization_interval=1 / 400)
    direct = one
    for _ in range(number - 1):
        direct = direct.compose(one)
    fineness = int(math.log2(distance))
    found = equal(1.0, number, noise_alone(fineness))
    slack = number * 0.25 ** (fineness + 1)
    assert direct.get_epsilon_for_delta(DELTA) - 1e-4 <= found <= direct.get_epsilon_for_delta(DELTA) + slack + 1e-4


@pytest.mark.parametrize("shift", [1, 13, 39, 40])
def test_a_smaller_move_under_the_same_noise_or_wider_noise_costs_no_more(shift: int) -> None:
    found = equal(1.0, 12, noise_alone(int(math.log2(40))))
    smaller = laplace_losses(shift, shift / 40)
    assert exact_epsilon([smaller] * 12, 1 / 40, DELTA) <= found
    wider = laplace_losses(40, 40 / (40 + shift))
    assert exact_epsilon([wider] * 12, 1 / (40 + shift), DELTA) <= found


def test_the_hockey_stick_divergence_of_discrete_noise_is_the_one_that_is_proved() -> None:
    # docs/proofs.md: 1 - exp(-(e - x)/2) cosh(e (s - s*)) / cosh(e / 2d), and the bound without its first cosh.
    for distance, e in ((1, 0.5), (2, 1.0), (9, 3.0), (50, 1.0)):
        losses = laplace_losses(distance, e)
        values = e / distance * (np.arange(len(losses)) - distance)
        for x in np.linspace(-0.999 * e, 0.999 * e, 61):
            exact = float(np.sum(losses * np.maximum(0, -np.expm1(x - values))))
            middle = (1 - x / e) / 2
            s = (math.floor(distance * middle) + 0.5) / distance
            flat = math.exp(-(e - x) / 2) / math.cosh(e / (2 * distance))
            assert exact == pytest.approx(1 - flat * math.cosh(e * (s - middle)), abs=1e-12)
            assert 1 - math.exp(-(e - x) / 2) - 1e-12 <= exact <= 1 - flat + 1e-12


def test_noise_much_finer_than_its_scale_composes_as_the_continuous_one() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    continuous = pld.from_laplace_mechanism(1.0, value_discretization_interval=1e-4).self_compose(89)
    assert equal(1.0, 89, noise_alone(10)) == pytest.approx(continuous.get_epsilon_for_delta(DELTA), rel=1e-5)


def test_for_coarse_noise_nothing_is_gained_and_nothing_is_claimed() -> None:
    assert equal(1.0, 40, noise_alone(2)) == equal(1.0, 40)


# With private selections before the noise.


@pytest.mark.parametrize("number", [1, 8, 25])
@pytest.mark.parametrize("selections", [(HALF,), (HALF / 2, HALF / 2)])
def test_selections_count_as_randomised_response_beside_the_noise(
    selections: tuple[Fraction, ...], number: int
) -> None:
    distance, epsilon = 32, 1.5
    step = epsilon / 2 / distance
    parts = [laplace_losses(distance, epsilon / 2)]
    parts += [pure_losses(int(2 * distance * share), epsilon * float(share)) for share in selections]
    fineness = int(math.log2(1 / step))
    found = equal(epsilon, number, ChargeSplit((HALF,), selections, fineness))
    exact = exact_epsilon(parts * number, step, DELTA)
    assert exact <= found <= exact + number * 0.25 ** (fineness + 1) + 1e-4 * exact
    assert number == 1 or found < equal(epsilon, number)


# Whatever the mechanisms were.


def binomial_epsilon(epsilon: float, number: int, delta: float) -> float:
    """Randomised response, composed: the number of truths is binomial."""
    logs = [
        math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1) + k * epsilon
        for k in range(number + 1)
    ]
    chances = np.exp(np.array(logs) - number * math.log1p(math.exp(epsilon)))
    losses = epsilon * (2 * np.arange(number + 1) - number)
    low, high = 0.0, number * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        above = losses > middle
        exceeds = float(np.sum(chances[above] * -np.expm1(middle - losses[above]))) > delta
        low, high = (middle, high) if exceeds else (low, middle)
    return high


@pytest.mark.parametrize(("epsilon", "number"), [(1.0, 1), (1.0, 89), (0.1, 1000), (0.02, 5000), (5.0, 200)])
def test_the_figure_of_unknown_mechanisms_is_that_of_randomised_response(epsilon: float, number: int) -> None:
    exact = binomial_epsilon(epsilon, number, DELTA)
    found = equal(epsilon, number)
    assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-4) + 1e-9


epsilons = st.sampled_from([NANO // 10, NANO // 2, NANO, 3 * NANO])
levels_of_a_day = st.dictionaries(epsilons, st.integers(1, 40), min_size=1, max_size=2)
spendings = st.sampled_from([noise_alone(0), noise_alone(9), ChargeSplit((HALF,), (HALF,), 10)])
few = settings(max_examples=15, deadline=None)


@few
@given(levels_of_a_day, st.sampled_from([1e-9, 1e-6, 1e-3]), spendings)
def test_the_composed_epsilon_is_never_above_the_plain_sum(
    levels: dict[int, int], delta: float, spending: ChargeSplit
) -> None:
    level, count = max(levels.items())
    found = composed_epsilon(levels, delta, KnownCharges(level, count, spending))
    plain = sum(level * count for level, count in levels.items()) / NANO
    assert 0 <= found <= composed_epsilon(levels, delta) <= plain


@few
@given(levels_of_a_day, epsilons)
def test_the_composed_epsilon_does_not_fall_when_more_is_spent(levels: dict[int, int], more: int) -> None:
    after = Counter(levels) + Counter({more: 1})
    slack = 1e-5 * sum(level * count for level, count in levels.items()) / NANO  # of rounding losses up
    assert composed_epsilon(levels, DELTA) <= composed_epsilon(after, DELTA) + slack
    assert composed_epsilon(levels, 1e-3) <= composed_epsilon(levels, DELTA) + slack


def test_charges_of_two_policies_compose_like_their_responses_one_by_one() -> None:
    one, other = 0.3, 0.7
    parts = [pure_losses(3, one)] * 9 + [pure_losses(7, other)] * 4
    exact = exact_epsilon(parts, 0.1, DELTA)
    assert exact <= composed_epsilon({round(one * NANO): 9, round(other * NANO): 4}, DELTA) <= exact * 1.003


def test_what_is_known_of_one_policys_charges_counts_beside_those_of_another() -> None:
    other, distance = 0.5, 16
    parts = [laplace_losses(distance, 1.0)] * 10 + [pure_losses(distance // 2, other)] * 6
    exact = exact_epsilon(parts, 1 / distance, DELTA)
    levels = {NANO: 10, round(other * NANO): 6}
    found = composed_epsilon(levels, DELTA, KnownCharges(NANO, 10, noise_alone(4)))
    assert exact <= found <= exact + 10 * 0.25**5 + 1e-4 * exact
    assert found < composed_epsilon(levels, DELTA)


def test_of_equal_charges_only_those_that_are_known_gain() -> None:
    known = [
        composed_epsilon({NANO: 30}, DELTA, KnownCharges(NANO, count, noise_alone(9))) for count in (0, 10, 20, 30)
    ]
    assert known == sorted(known, reverse=True)
    assert known[0] == equal(1.0, 30)
    assert known[3] == equal(1.0, 30, noise_alone(9))


def test_nothing_spent_composes_to_nothing() -> None:
    assert composed_epsilon({}, DELTA) == composed_epsilon({NANO: 0}, DELTA) == 0


def test_a_delta_that_floating_point_cannot_tell_from_0_gives_the_plain_sum() -> None:
    assert composed_epsilon({NANO: 89}, 1e-12, KnownCharges(NANO, 89, noise_alone(10))) == 89.0


def test_the_figures_of_the_papers_day() -> None:
    # K = 89 HATs at epsilon 1: 89 as pure epsilon alone, and what 1e-6 buys.
    assert equal(1.0, 89) == pytest.approx(75.89, abs=0.01)
    assert equal(1.0, 89, noise_alone(9)) == pytest.approx(65.28, abs=0.01)
    assert equal(1.0, 89, ChargeSplit((HALF,), (HALF,), 9)) == pytest.approx(48.33, abs=0.01)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_spends_all_of_epsilon_on_noise_and_selections(name: str) -> None:
    shares = ESTIMATORS[name].shares
    assert sum(shares.values()) == 1
    assert NOISES & shares.keys()
