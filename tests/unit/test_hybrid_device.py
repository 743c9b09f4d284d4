"""What a device sends, and what the operator takes."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.hybrid import HybridParameters, accepts, report, report_bound, steps_of
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from tests.support import GRIDS, UPPER_BOUND, Scripted

PLAIN = HybridParameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, 0.5)
DELTA = 1e-8
GAUSSIAN = replace(PLAIN, delta=DELTA)
both_noises = st.sampled_from([PLAIN, GAUSSIAN])
grids = st.builds(
    lambda parameters, text: replace(parameters, grid=Grid(Decimal(text))), both_noises, st.sampled_from(GRIDS)
)
means = st.fractions(-10, 2 * UPPER_BOUND, max_denominator=1000)


@given(parameters=grids, one=means, other=means)
@example(parameters=PLAIN, one=Fraction(0), other=Fraction(2 * UPPER_BOUND))  # unclipped they are twice as far apart
@example(parameters=PLAIN, one=Fraction(-UPPER_BOUND), other=Fraction(UPPER_BOUND))
def test_two_means_ask_for_the_same_noise_and_are_no_further_apart_than_it_is_for(
    parameters: HybridParameters, one: Fraction, other: Fraction
) -> None:
    noise = Scripted([0, 0])
    for mean in (one, other):
        report(mean, parameters, noise)
    (value, distance, epsilon), (then, *same) = noise.asked
    assert same == [distance, epsilon]
    assert epsilon == parameters.local_epsilon
    assert abs(then - value) <= distance == parameters.local_distance
    assert noise.deltas == ([] if parameters.delta is None else [DELTA, DELTA])


def test_a_bound_between_two_steps_needs_the_widened_distance() -> None:
    """The mutant: floor(U / grid) without the 1. A bound of 1.5 steps is rounded to 2."""
    parameters = replace(PLAIN, upper_bound_milli=1_500, grid=Grid(Decimal(1)))
    noise = Scripted([0, 0])
    found = [report(Fraction(mean), parameters, noise) for mean in (0, 1_500)]
    assert found == [0, 2]
    assert parameters.local_distance == 2


def test_a_report_is_the_mean_cut_to_the_bounds_on_the_grid_with_the_noise() -> None:
    assert report(Fraction(64_001, 3), PLAIN, Scripted([-30_000])) == 21_334 - 30_000
    assert report(Fraction(-1), PLAIN, Scripted([5])) == 5
    assert report(Fraction(80_000), PLAIN, Scripted([5])) == 65_005


@given(parameters=grids, mean=means)
def test_what_an_honest_device_sends_is_accepted(parameters: HybridParameters, mean: Fraction) -> None:
    steps = report(mean, parameters, SystemNoise())
    sent = Decimal(parameters.grid.text(steps))
    assert accepts(sent, parameters.local_epsilon, parameters)
    assert steps_of(sent, parameters) == steps


@pytest.mark.parametrize("text", ["5265", "-5265", "0", "-0.000", "21.3140", "0E+3", "1e3"])
def test_multiples_of_the_grid_up_to_40_scales_beyond_the_bound_are_accepted(text: str) -> None:
    """65 km/h and 40 times 65 / 0.5."""
    assert accepts(Decimal(text), 0.5, PLAIN)


@given(parameters=grids)
def test_the_widest_report_is_accepted_and_a_step_further_is_not(parameters: HybridParameters) -> None:
    most = report_bound(parameters)
    for steps, taken in ((most, True), (-most, True), (most + 1, False), (-most - 1, False)):
        assert accepts(Decimal(parameters.grid.text(steps)), parameters.local_epsilon, parameters) == taken


@pytest.mark.parametrize("text", GRIDS)
def test_the_widest_gaussian_report_is_9_deviations_away_or_a_little_more(text: str) -> None:
    """A report is beyond once in e**40 or less often, and a lie is no larger than 12 deviations."""
    parameters = replace(GAUSSIAN, grid=Grid(Decimal(text)))
    beyond, scale = report_bound(parameters) - parameters.local_distance, parameters.local_scale
    assert math.exp(-((beyond / scale) ** 2) / 2) <= math.exp(-40)
    assert 9 * scale < beyond < 12 * scale


@pytest.mark.parametrize(
    "text",
    [
        *("5265.001", "-5265.001", "0.0005", "NaN", "sNaN", "Infinity", "-Infinity", "0." + "1" * 100),
        *("1E+999999999", "1E-999999999", "1E+40", "0E-999999999", "0E+999999999"),
    ],
)
def test_what_no_device_sends_is_refused_at_once(text: str) -> None:
    assert not accepts(Decimal(text), 0.5, PLAIN)


@pytest.mark.parametrize("epsilon", [1.0, 0.49999, 0.0, -0.5, float("nan"), float("inf")])
def test_another_epsilon_than_the_policys_is_refused(epsilon: float) -> None:
    assert accepts(Decimal("21.314"), 0.5, PLAIN)
    assert not accepts(Decimal("21.314"), epsilon, PLAIN)


def test_a_value_between_two_steps_has_no_steps() -> None:
    with pytest.raises(ValueError, match="multiple of the grid"):
        steps_of(Decimal("0.0005"), PLAIN)
