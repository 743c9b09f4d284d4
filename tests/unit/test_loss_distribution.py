"""Privacy loss distributions: those of the two mechanisms, and compositions of different ones.

Oracles: plain convolutions, and dp-accounting, which is not installed with hatcast.
"""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.accounting import LossDistribution
from tests.support import examples

DELTA = 1e-6
epsilons = st.floats(0.01, 10.0)
steps = st.integers(1, 300)


def delta_of(found: LossDistribution, epsilon: float) -> float:
    losses = found.interval * (found.first + np.arange(len(found.probabilities)))
    above = losses > epsilon
    return found.infinite + float(found.probabilities[above] @ -np.expm1(epsilon - losses[above]))


@given(epsilon=epsilons, fraction=st.floats(0.3, 400.0))
def test_laplace_noise_has_its_exact_delta_on_the_grid_and_no_smaller_one_between(
    epsilon: float, fraction: float
) -> None:
    interval = epsilon / fraction
    found = LossDistribution.laplace(epsilon, interval)
    assert found.probabilities.min() >= 0
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)
    for index in range(len(found.probabilities)):
        x = (found.first + index) * interval
        exact = 0.0 if x >= epsilon else -math.expm1((x - epsilon) / 2) if x > -epsilon else -math.expm1(x)
        assert delta_of(found, x) == pytest.approx(exact, abs=1e-9)
    for x in np.linspace(-epsilon, epsilon, 40):
        assert delta_of(found, float(x)) >= -math.expm1((x - epsilon) / 2) - 1e-12


@given(epsilon=epsilons, intervals=steps)
def test_removing_a_user_costs_as_much_as_adding_one(epsilon: float, intervals: int) -> None:
    for make in (LossDistribution.pure, LossDistribution.laplace):
        found = make(epsilon, epsilon / intervals)
        losses = found.interval * (found.first + np.arange(len(found.probabilities)))
        assert found.probabilities[::-1] == pytest.approx(found.probabilities * np.exp(-losses), rel=1e-6, abs=1e-12)


def convolved(parts: Mapping[tuple[bool, float], int], interval: float) -> LossDistribution:
    """The composition by sums of products, without transforms: no probability is rounded down to nothing."""
    probabilities, first = np.ones(1), 0
    for (laplace, epsilon), number in parts.items():
        one = (LossDistribution.laplace if laplace else LossDistribution.pure)(epsilon, interval)
        for _ in range(number):
            probabilities, first = np.convolve(probabilities, one.probabilities), first + one.first
    return LossDistribution(interval, first, probabilities)


@settings(deadline=None, max_examples=examples(40))
@given(
    parts=st.dictionaries(st.tuples(st.booleans(), st.floats(0.02, 2.0)), st.integers(1, 12), min_size=1, max_size=4),
    log_delta=st.floats(-10.0, -2.0),
)
def test_the_composition_of_different_mechanisms_is_that_of_plain_convolutions(
    parts: dict[tuple[bool, float], int], log_delta: float
) -> None:
    interval, delta = 2.0 / 64, 10.0**log_delta
    exact = convolved(parts, interval).epsilon_for(delta)
    found = [
        (LossDistribution.laplace if laplace else LossDistribution.pure)(epsilon, interval).repeated(number)
        for (laplace, epsilon), number in parts.items()
    ]
    total = found[0]
    for each in found[1:]:
        total = total.composed(each)
    # What is cut off, and what the transforms' floating point may hide, is far below 1e-12.
    assert exact - 1e-6 <= total.epsilon_for(delta) <= convolved(parts, interval).epsilon_for(delta - 1e-12) + 1e-6


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize(("epsilon", "number"), [(0.01, 1), (0.1, 500), (1.0, 5), (1.0, 89), (5.0, 12)])
def test_it_agrees_with_dp_accounting(epsilon: float, number: int, delta: float) -> None:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = math.ldexp(epsilon, -9)
    theirs = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=interval).self_compose(number)
    ours = LossDistribution.laplace(epsilon, interval).repeated(number).epsilon_for(delta)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)
    pure = common.DifferentialPrivacyParameters(epsilon, 0.0)
    theirs = pld.from_privacy_parameters(pure, value_discretization_interval=interval).self_compose(number)
    ours = LossDistribution.pure(epsilon, interval).repeated(number).epsilon_for(delta)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)


def test_no_epsilon_satisfies_a_delta_below_the_chance_of_an_infinite_loss() -> None:
    assert math.isinf(LossDistribution(0.1, 0, np.array([0.5]), infinite=0.5).epsilon_for(DELTA))


def test_no_loss_above_zero_costs_nothing() -> None:
    assert LossDistribution(0.1, -3, np.array([0.5, 0.5])).epsilon_for(DELTA) == 0.0
