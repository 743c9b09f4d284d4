"""Privacy against those who see only the blend, and the erratum on its sensitivity."""

import math
from fractions import Fraction
from itertools import product

import pytest
from scipy.stats import norm

from hatcast.lab.evaluate.lemmas import BadCoalition, GaussianNoise, amplified
from hatcast.stream.hybrid import HYBRID_ESTIMATORS
from hatcast.stream.mechanisms.gaussian import deviation_for, epsilon_for_delta

NOISE = GaussianNoise(65.0, 1.0, 1e-7)
CENTRAL, LOCAL = 50, 950
SETTING = NOISE.setting(CENTRAL, LOCAL, (65 / 6) ** 2)
WEIGHTS = [float(HYBRID_ESTIMATORS[name].weight(SETTING)) for name in ("kvh", "pwh", "tcm_only", "lm_only")]


def delta_of(deviation: float, epsilon: float) -> float:
    """Of Gaussian noise on a move by 1, exactly.    [Balle and Wang 2018, Theorem 8]"""
    return float(
        norm.cdf(1 / (2 * deviation) - epsilon * deviation)
        - math.exp(epsilon) * norm.cdf(-1 / (2 * deviation) - epsilon * deviation)
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-7, 1e-3])
def test_gaussian_noise_is_calibrated_exactly_and_narrower_than_by_the_old_bound(epsilon: float, delta: float) -> None:
    found = deviation_for(epsilon, delta)
    assert delta * (1 - 1e-3) < delta_of(found, epsilon) <= delta * (1 + 1e-9)
    assert found < math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert epsilon_for_delta(found, delta) == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("deviation", [0.5, 5.0, 300.0])
def test_epsilon_of_is_rounded_upwards(deviation: float) -> None:
    found = epsilon_for_delta(deviation, 1e-6)
    assert delta_of(deviation, found) <= 1e-6 * (1 + 1e-9)
    assert delta_of(deviation, found * (1 - 1e-4)) > 1e-6


def test_with_noise_for_next_to_nothing_epsilon_is_told_as_a_millionth() -> None:
    assert epsilon_for_delta(1e9, 1e-3) == 1e-6


def test_both_groups_have_the_noise_of_their_own_sensitivity() -> None:
    deviation = deviation_for(1.0, 1e-7)
    assert math.sqrt(SETTING.central_noise) == pytest.approx(deviation * 65 / CENTRAL)
    assert math.sqrt(SETTING.local_noise) == pytest.approx(deviation * 65)


@pytest.mark.parametrize("weight", [*WEIGHTS, 0.01, CENTRAL / (CENTRAL + LOCAL), 0.5])
def test_the_sensitivity_is_the_most_that_one_user_moves_the_blend(weight: float) -> None:
    """Erratum: it is (U / n) max(w / c, (1 - w) / (1 - c)); the published case split takes the lesser."""
    found = amplified(NOISE, SETTING, weight, 0).sensitivity
    w, values = Fraction(weight), [Fraction(0)] * (CENTRAL + LOCAL)

    def blend(moved: int) -> Fraction:
        after = values.copy()
        after[moved] += 65
        return w * sum(after[:CENTRAL], Fraction(0)) / CENTRAL + (1 - w) * sum(after[CENTRAL:], Fraction(0)) / LOCAL

    moves = [float(blend(0)), float(blend(CENTRAL))]
    assert found == pytest.approx(max(moves))
    share, users = CENTRAL / (CENTRAL + LOCAL), CENTRAL + LOCAL
    printed = 65 / users * (weight / share if weight <= share else (1 - weight) / (1 - share))
    assert printed == pytest.approx(min(moves))


def test_the_printed_sensitivity_would_claim_too_small_an_epsilon() -> None:
    found = amplified(NOISE, SETTING, WEIGHTS[0], 0)
    printed = 65 * (1 - WEIGHTS[0]) / LOCAL
    assert epsilon_for_delta(found.deviation / printed, NOISE.delta) < found.epsilon / 2


@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_larger_coalition_leaves_less_amplification_and_never_more_than_the_noise_itself(weight: float) -> None:
    found = [amplified(NOISE, SETTING, weight, each).epsilon for each in (0, 100, 500, LOCAL - 1, LOCAL)]
    assert found == sorted(found)
    assert all(0 < each <= NOISE.epsilon for each in found)


def test_noise_of_both_groups_counts_but_for_the_coalitions() -> None:
    weight, coalition = 0.5, 150
    found = amplified(NOISE, SETTING, weight, coalition).deviation
    central, local = math.sqrt(SETTING.central_noise), math.sqrt(SETTING.local_noise)
    assert found**2 == pytest.approx((0.5 * central) ** 2 + (LOCAL - coalition) * (0.5 / LOCAL * local) ** 2)


def test_without_any_noise_left_nothing_is_amplified() -> None:
    assert amplified(NOISE, SETTING, 0.0, LOCAL).epsilon == NOISE.epsilon


@pytest.mark.parametrize("coalition", [-1, LOCAL + 1])
def test_a_coalition_that_cannot_be_is_refused(coalition: int) -> None:
    with pytest.raises(BadCoalition, match="max_coalition"):
        amplified(NOISE, SETTING, 0.5, coalition)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (-1.0, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_gaussian_noise_needs_a_delta(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        deviation_for(epsilon, delta)


def test_laplace_noise_gains_nothing_from_a_second_one() -> None:
    """The density of a sum of two of scale 1 is (1 + |x|) exp(-|x|) / 4: far out a move by 1 still costs 1."""

    def loss(x: float) -> float:
        return math.log((1 + x) / (2 + x)) + 1

    assert [loss(x) for x in (0.0, 10.0, 1e3)] == sorted(loss(x) for x in (0.0, 10.0, 1e3))
    assert loss(1e6) == pytest.approx(1, abs=1e-5)


def test_more_local_users_amplify_more() -> None:
    """As in the paper's Figure 7: the smaller the central share, the more noise helps everybody."""
    found = []
    for central, users in product((10, 100, 1_000), (10_000,)):
        setting = NOISE.setting(central, users - central, (65 / 6) ** 2)
        weight = float(HYBRID_ESTIMATORS["kvh"].weight(setting))
        found.append(amplified(NOISE, setting, weight, 0).epsilon)
    assert found == sorted(found)
    assert found[0] < 0.2
