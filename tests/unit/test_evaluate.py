"""`hatcast evaluate`: its fast numbers and draws are those of the exact estimators."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from hatcast.lab.evaluate.comparison import MeanError, compare
from hatcast.lab.evaluate.contenders import (
    DEFAULT,
    GRID,
    ResolvedContender,
    RunBatch,
    array_means,
    clipped_mean,
    default_estimators,
    levy_weights,
    parse_contender,
    quantile_intervals,
    quantile_ranks,
    quantile_weights,
    raw,
    smoothed_weights,
    value,
)
from hatcast.lab.evaluate.inputs import SampledHat
from hatcast.lab.evaluate.simulation import VALUES, Draws, Floats, Integers, Readings, mean_quantiles, recorded, vectors
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import ESTIMATORS, Users
from hatcast.stream.estimators.array_length import minimax_convex_printed
from hatcast.stream.estimators.quantile import SMOOTHED
from hatcast.stream.estimators.vectors import VectorUsers, vector_form
from hatcast.stream.mechanisms import Noisy
from tests.support import ITMS_LIKE, UPPER_BOUND, ScalarNoise, Scripted, as_counts, as_users

FALSE_ALARM = 1e-8  # of one test on draws; seeded, and fewer than ten in this file
SELECTING = (
    "levy",
    "levy:wraparound",
    "levy:gamma=0.9",
    "quantile",
    "quantile:wraparound",
    "quantile:epsilon_dependent:7",
    "quantile:smoothed",
    "quantile:smoothed:wraparound",
)
FIXED = [*(name for name in DEFAULT if name.split(":")[0] not in ("levy", "quantile")), "array_averaging:wraparound:3"]


@st.composite
def hats(draw: st.DrawFn) -> Users:
    counts = sorted(draw(st.lists(st.integers(1, 60), min_size=1, max_size=25)), reverse=True)
    return as_users(counts, [draw(st.integers(0, count * UPPER_BOUND)) for count in counts])


def resolved_for(name: str, users: Users, epsilon: float) -> tuple[ResolvedContender, RunBatch]:
    resolved = parse_contender(name).resolve(users.counts, UPPER_BOUND, epsilon)
    return resolved, RunBatch(users.counts, (users.sums / users.counts)[None, :], UPPER_BOUND)


# Ties to the exact estimators


def test_every_estimator_of_the_registry_is_compared_by_default() -> None:
    assert {name.split(":")[0] for name in DEFAULT} == set(ESTIMATORS)


@pytest.mark.parametrize("name", FIXED)
@given(users=hats(), epsilon=st.sampled_from([0.5, 1.0, 2.0]))
def test_a_fast_value_is_the_exact_one(name: str, users: Users, epsilon: float) -> None:
    resolved, batch = resolved_for(name, users, epsilon)
    exact = resolved.contender.estimator.value(users, resolved.parameters)
    assert value(batch, resolved)[0] == pytest.approx(float(exact), rel=1e-11, abs=1e-7)


@pytest.mark.parametrize("name", SELECTING)
@given(users=hats(), cut=st.tuples(*[st.integers(0, UPPER_BOUND)] * 2))
def test_a_fast_clipped_mean_is_the_exact_one(name: str, users: Users, cut: tuple[int, int]) -> None:
    resolved, batch = resolved_for(name, users, 1.0)
    low, high = sorted(cut)
    assert resolved.arrays is not None
    fast = clipped_mean(array_means(batch.means, resolved.arrays), np.array([low]), np.array([high]))
    exact = resolved.contender.estimator.value(
        users, replace(resolved.parameters, interval=(Fraction(low), Fraction(high)))
    )
    assert fast[0] == pytest.approx(float(exact), rel=1e-11, abs=1e-7)


class Listening(Draws):
    """Fast draws that keep the scales they are asked for, and draw 0."""

    def laplace(self, scales: NDArray[np.float64]) -> NDArray[np.int64]:
        self.scales = scales
        return np.zeros(scales.shape, np.int64)


@pytest.mark.parametrize("name", [*default_estimators(2).split(","), "array_averaging:wraparound:3"])
@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=25), dimensions=st.integers(1, 5), data=st.data())
def test_a_fast_vector_and_its_noise_are_those_of_the_exact_form(
    name: str, counts: list[int], dimensions: int, data: st.DataObject
) -> None:
    ordered = as_counts(counts)
    shares = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 10, (len(counts), dimensions))
    signs = 1 if dimensions == 1 else 1 - 2 * (shares % 2)
    users = VectorUsers(ordered, shares * signs * ordered[:, None] * (UPPER_BOUND // 50))
    resolved = parse_contender(name).resolve(ordered, UPPER_BOUND, 0.7, dimensions)
    batch = RunBatch(ordered, (users.sums / ordered[:, None]).T[None], UPPER_BOUND)
    form = vector_form(resolved.contender.estimator.name, dimensions)
    exact = [float(each) for each in form.value(users, resolved.parameters)]
    assert value(batch, resolved)[0] == pytest.approx(exact, rel=1e-11, abs=1e-7)
    draws = Listening(0)
    fast = raw(batch, resolved, draws)
    found = form.estimate(users, resolved.parameters, Scripted([0] * dimensions))
    assert found is not None
    assert np.all(np.abs(fast[0] - found.raw) <= 1), "a value between two steps may go to either"
    assert draws.scales == pytest.approx(np.full((1, dimensions), found.scale), rel=1e-12)


def test_the_error_of_vectors_is_the_sum_over_their_coordinates() -> None:
    counts, epsilon = as_counts(ITMS_LIKE), 1.0
    hat = SampledHat(counts, vectors(counts, Readings(), 3), UPPER_BOUND, dimensions=3)
    (error,) = (row[epsilon] for row in compare(hat, [parse_contender("baseline")], [epsilon], 10_000, seed=1).values())
    exact = vector_form("baseline", 3).worst_case_error(
        counts, parse_contender("baseline").resolve(counts, UPPER_BOUND, epsilon).parameters
    )
    assert float(exact.total) / 1000 == pytest.approx(3 * 2 * 65 * 417 / 17166)
    assert abs(error.mae - float(exact.total) / 1000) < 5 * error.standard_error


@pytest.mark.parametrize("dimensions", [2, 5])
def test_simulated_vectors_lie_in_the_ball_and_some_on_its_border(dimensions: int) -> None:
    readings = Readings(variance=900.0)
    means = vectors(as_counts([1, 3, 40]), readings, dimensions)(Draws(8), 2000)
    norms = np.abs(means).sum(axis=1)
    assert means.shape == (2000, dimensions, 3)
    assert norms.max() == pytest.approx(UPPER_BOUND)
    assert np.median(norms) < UPPER_BOUND * 0.9
    assert means.min() < 0 < means.max()


class KeptDraws(Draws):
    """Fast draws that are kept, with the scales they were asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[tuple[float, int]] = []

    def laplace(self, scales: Floats) -> Integers:
        found = super().laplace(scales)
        self.drawn.append((float(scales[0]), int(found[0])))
        return found


@pytest.mark.parametrize("name", ["capped_ratio", "capped_ratio:1", "capped_ratio:sensitivity", "capped_ratio:20"])
@given(users=hats(), epsilon=st.sampled_from([0.5, 1.0, 9.0]), seed=st.integers(0, 10**6))
def test_a_fast_ratio_is_the_exact_one_for_the_same_draws_and_has_noise_of_the_same_scales(
    name: str, users: Users, epsilon: float, seed: int
) -> None:
    resolved, batch = resolved_for(name, users, epsilon)
    draws = KeptDraws(seed)
    fast = raw(batch, resolved, draws)[0]
    noise = Scripted([drawn for _, drawn in draws.drawn])
    exact = resolved.contender.estimator.estimate(users, resolved.parameters, noise)
    assert [distance / part for _, distance, part in noise.asked] == [scale for scale, _ in draws.drawn]
    assert (exact is None) == math.isnan(fast)
    assert exact is None or abs(exact.raw * GRID.milli - fast) <= 1  # one step: a sum of floats between two steps


def test_what_noise_suppresses_is_counted_and_is_no_error() -> None:
    counts = as_counts([20] * 20)  # at the threshold, so that it is suppressed in half of the runs
    hat = SampledHat(counts, recorded(np.full(20, 30_000.0)), UPPER_BOUND)
    (error,) = compare(hat, [parse_contender("capped_ratio:20")], [1.0], 4_000, seed=1)["capped_ratio:20"].values()
    assert abs(error.suppressed - 0.5) < 5 * 0.5 / 4_000**0.5
    assert 0 < error.mae < 10
    nobody = MeanError.of(np.full(3, np.nan))
    assert math.isnan(nobody.mae)
    assert (nobody.standard_error, nobody.suppressed) == (0.0, 1.0)


class QueryPeriod(ScalarNoise):
    """Noise that keeps the chances which `choose` is asked for, and takes the first candidate."""

    def __init__(self) -> None:
        self.chances: list[NDArray[np.float64]] = []

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        return Noisy(value, distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        exponent = -Decimal(rate.numerator) / rate.denominator
        terms = [int(w) * (exponent * int(c)).exp() for w, c in zip(weights, costs, strict=True)]
        self.chances.append(np.array([float(term / sum(terms)) for term in terms]))
        return int(np.flatnonzero(weights)[0])

    def uniform(self, number: int) -> int:
        return number // 2


def fast_chances(resolved: ResolvedContender, batch: RunBatch) -> list[NDArray[np.float64]]:
    assert resolved.arrays is not None
    means = batch.sorted_array_means(resolved.arrays)
    if resolved.contender.estimator.name == "levy":
        weights = [levy_weights(means, resolved)]
    elif resolved.parameters.quantiles == SMOOTHED:
        weights = [smoothed_weights(means, rank, resolved)[1] for rank in quantile_ranks(resolved)]
    else:
        _, widths = quantile_intervals(means, resolved)
        weights = [quantile_weights(widths, rank, resolved) for rank in quantile_ranks(resolved)]
    return [each[0] / each[0].sum() for each in weights]


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_selections_have_the_chances_that_the_exact_ones_are_drawn_with(name: str, epsilon: float) -> None:
    counts = as_counts(ITMS_LIKE * 3)
    chance = np.random.default_rng(7)
    for _ in range(5):
        users = Users(counts, chance.integers(0, counts * UPPER_BOUND, endpoint=True))
        resolved, batch = resolved_for(name, users, epsilon)
        asked = QueryPeriod()
        resolved.contender.estimator.estimate(users, resolved.parameters, asked)
        found = fast_chances(resolved, batch)
        assert len(found) == len(asked.chances) >= 1
        for fast, exact in zip(found, asked.chances, strict=True):
            assert np.abs(fast - exact).max() < 1e-9


def test_a_quantile_far_from_all_that_has_a_width_still_has_its_chances() -> None:
    users = as_users([1] * 2_000, [30_000] * 2_000)
    resolved, batch = resolved_for("quantile", users, 50.0)
    asked = QueryPeriod()
    resolved.contender.estimator.estimate(users, resolved.parameters, asked)
    for fast, exact in zip(fast_chances(resolved, batch), asked.chances, strict=True):
        assert np.abs(fast - exact).max() < 1e-9


@pytest.mark.parametrize("scale", [0.3, 2.0, 1580.0])
def test_fast_noise_is_distributed_as_the_discrete_laplace(scale: float) -> None:
    number = 200_000
    drawn = np.sort(Draws(3).laplace(np.full(number, scale)))

    def gap(wrong: float) -> float:
        p = math.exp(-1 / (scale * wrong))
        steps, ends = np.unique(drawn, return_index=True)
        ends = np.append(ends[1:], number)
        exact = np.where(steps < 0, p ** -np.minimum(steps, 0) / (1 + p), 1 - p ** (np.maximum(steps, 0) + 1) / (1 + p))
        return float(np.abs(ends / number - exact).max())

    allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * number))  # Dvoretzky, Kiefer, Wolfowitz, Massart
    assert gap(1.0) < allowed < gap(0.9), "or the test has no power"
    assert Draws(3).laplace(np.zeros(3)).tolist() == [0, 0, 0]


def test_choices_come_as_often_as_their_weights_say() -> None:
    weights, number = np.array([3.0, 0.0, 1.0, 4.0]), 200_000
    often = np.bincount(Draws(4).choose(np.tile(weights, (number, 1))), minlength=4) / number
    allowed = math.sqrt(math.log(8 / FALSE_ALARM) / (2 * number))
    assert np.abs(often - weights / 8).max() < allowed
    assert often[1] == 0


@pytest.mark.parametrize("count", [1, 3, 40])
def test_simulated_means_are_distributed_as_those_of_readings_drawn_one_by_one(count: int) -> None:
    readings, number = Readings(), 100_000
    counts = np.full(1, count, np.int64)
    fast = np.sort(VALUES["iid"](counts, readings)(Draws(5), number)[:, 0]) / 1000
    drawn = np.random.default_rng(6).normal(readings.mean, math.sqrt(readings.variance), (number, count))
    slow = np.sort(np.clip(drawn, 0, readings.upper_bound).mean(axis=1))
    step = readings.upper_bound / 512  # as fine as readings are
    allowed = 2 * math.sqrt(math.log(4 / FALSE_ALARM) / (2 * number))
    for shifted, worst in ((fast + step, 1.0), (fast - step, -1.0)):
        at = np.searchsorted(shifted, slow, side="right") / number - np.arange(1, number + 1) / number
        assert (worst * at).max() < allowed


def test_the_law_of_a_mean_keeps_its_expectation_and_narrows_with_the_count() -> None:
    scores = np.arange(-768, 769) / 128
    density = np.exp(-(scores**2) / 2)
    density /= density.sum()
    spreads = []
    for count in (10, 1000):
        law = mean_quantiles(count, Readings())
        assert np.all(np.diff(law) >= 0)
        mean = float(density @ law)
        assert mean == pytest.approx(20.77, abs=0.02), "cut at 0, so a little above 20.67"
        spreads.append(math.sqrt(float(density @ (law - mean) ** 2)))
    assert spreads[0] / spreads[1] == pytest.approx(10, rel=0.01)


# Contenders


def test_printed_variants_have_the_papers_constants() -> None:
    counts = as_counts(ITMS_LIKE)
    ours, printed = (
        parse_contender(f"array_averaging:wraparound:sensitivity{end}").resolve(counts, UPPER_BOUND, 1.0)
        for end in ("", ":printed")
    )
    assert ours.sensitivity == Fraction(UPPER_BOUND, 160)
    assert printed.sensitivity == Fraction(2 * UPPER_BOUND, 160)
    levy = [parse_contender(f"levy:wraparound{end}").resolve(counts, UPPER_BOUND, 1.0) for end in ("", ":printed")]
    assert [each.selection_split for each in levy] == [2, 1]
    convex = parse_contender("opt_array_averaging:minimax_convex_printed").resolve(counts, UPPER_BOUND, 1.0)
    assert convex.parameters.array_length == minimax_convex_printed(counts, 1.0)


SPECIFIED = (Path(__file__).parents[2] / "docs" / "specification" / "estimators.md").read_text()


def test_the_papers_figure_1_has_groupings_as_with_u_over_k_and_not_as_with_the_printed_sensitivity() -> None:
    counts, errors = as_counts(ITMS_LIKE), []
    for name in ("bestfit", "wraparound", "wraparound:printed"):
        contender = parse_contender(f"array_averaging:sensitivity:{name}")
        errors.append(float(contender.resolve(counts, UPPER_BOUND, 1.0).sensitivity) / 1000)  # E|noise|, km/h
    ours, wrapped, printed = errors
    assert wrapped < 1.03 * ours, "alike"
    assert printed > 2 * ours
    for error in errors:
        assert f"{error + 1e-9:.3f}" in SPECIFIED


def test_a_clipped_normal_reading_is_0_with_probability_q_and_not_1_less_q() -> None:
    """Erratum of Prop IV.2's proof."""
    readings = Readings()
    drawn = VALUES["iid"](np.ones(200_000, np.int64), readings)(Draws(3), 1)
    q = float(norm.sf(readings.mean / readings.variance**0.5))
    first_bin = readings.upper_bound * 1000 / 512  # of the model of a reading
    assert abs(float((drawn < first_bin).mean()) - q) < 0.004, "five standard errors and the bin"
    assert f"{q:.4f} for one" in " ".join(SPECIFIED.split())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mean",
        "levy:fast",
        "baseline:median",
        "levy:printed",
        "levy:0",
        "levy:²",
        "levy:gamma=0",
        "levy:gamma=0.0",
        "levy:gamma=2",
        "levy:gamma=",
        "quantile:gamma=0.1",
    ],
)
def test_a_name_that_means_nothing_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(HatcastError) as refused:
        parse_contender(name)
    assert "\n" not in str(refused.value)
