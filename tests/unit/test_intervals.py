"""LEVY's bins and QUANTILE's ranks: what is handed to the exact selection, and what its answer becomes."""

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATORS, Parameters, Users
from hatcast.stream.estimators.array_length import array_length
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Integers
from hatcast.stream.estimators.levy import concentration
from hatcast.stream.estimators.quantile import QUANTILES, SMOOTHED
from hatcast.stream.mechanisms.grid import Grid
from tests.laws.estimator_oracle import array_means_of
from tests.support import ITMS_LIKE, UPPER_BOUND, Scripted, as_users, hats

QueryPeriod = tuple[list[int], list[int], Fraction]
LEVY, QUANTILE = ESTIMATORS["levy"], ESTIMATORS["quantile"]
PLAIN = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, "bestfit", "sensitivity")
ITMS = as_users(ITMS_LIKE, [count * 20_668 for count in ITMS_LIKE])


@dataclass
class Listening(Scripted):
    """Scripted noise that keeps what selections it was asked for."""

    picks: list[int]
    chosen_from: list[QueryPeriod] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__([0], self.picks)

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        self.chosen_from.append((weights.tolist(), costs.tolist(), rate))
        return super().choose(weights, costs, rate)


def arrays_for(users: Users, parameters: Parameters) -> Arrays:
    assert parameters.grouping is not None
    assert parameters.array_length is not None
    length = array_length(parameters.array_length, users.counts, parameters.epsilon, parameters.grouping)
    return GROUPINGS[parameters.grouping](users.counts, length)


def test_the_concentration_of_the_itms_hat_is_the_papers_formula_rounded_up_to_a_millionth() -> None:
    arrays = arrays_for(ITMS, PLAIN)
    formula = 65_000 * math.sqrt(math.log(2 * 164 / 0.2) / (2 * 50))
    for gamma in (None, 0.2):
        assert 0 <= concentration(arrays, UPPER_BOUND, gamma) - Fraction(formula) <= Fraction(1, 1000)


@given(
    users=hats(),
    grouping=st.sampled_from(sorted(GROUPINGS)),
    length=st.sampled_from(["median", "sensitivity"]) | st.integers(1, 60),
    pick=st.integers(0, 10**6),
    gamma=st.sampled_from([None, 1e-9, 0.01, 0.2, 1.0]),
)
def test_levy_chooses_among_the_midpoints_of_the_definition(
    users: Users, grouping: str, length: str | int, pick: int, gamma: float | None
) -> None:
    parameters = replace(PLAIN, grouping=grouping, array_length=length, gamma=gamma)
    arrays = arrays_for(users, parameters)
    formula = UPPER_BOUND * math.sqrt(math.log(2 * arrays.number / (gamma or 0.2)) / (2 * arrays.array_length))
    tau = Fraction(math.ceil(formula * 1000), 1000)
    noise = Listening([pick])
    found = LEVY.estimate(users, parameters, noise)
    assert found is not None
    if tau >= UPPER_BOUND:
        assert found.interval == (Fraction(0), Fraction(UPPER_BOUND))
        assert noise.chosen_from == [], "one bin: nothing to draw"
        return
    borders = [each * tau for each in range(-(-UPPER_BOUND // tau))] + [Fraction(UPPER_BOUND)]
    midpoints = [(left + right) / 2 for left, right in pairwise(borders)]
    nearest = [min(midpoints, key=lambda x: (abs(mean - x), x)) for mean in array_means_of(users, parameters)]
    costs = [max(sum(mu < x for mu in nearest), sum(mu > x for mu in nearest)) for x in midpoints]
    assert noise.chosen_from == [([1] * len(midpoints), costs, Fraction(1, 4 * arrays.split))]
    x = midpoints[pick % len(midpoints)]
    assert found.interval == (max(0, x - 3 * tau / 2), min(UPPER_BOUND, x + 3 * tau / 2))
    settled = replace(parameters, interval=found.interval)
    ((_, distance, _),) = noise.asked
    assert distance == parameters.grid.distance(LEVY.sensitivity(users.counts, settled))
    width = arrays.split * (found.interval[1] - found.interval[0])
    assert distance == math.floor(min(width, Fraction(UPPER_BOUND)) / arrays.number) + 1, (
        "the noise is that of the drawn width"
    )


def test_a_mean_on_a_border_goes_to_the_lower_bin_and_one_above_it_to_the_upper() -> None:
    counts = [1000] * 30
    parameters = replace(PLAIN, array_length=1000)
    tau = concentration(arrays_for(as_users(counts, counts), parameters), UPPER_BOUND, None)
    border = tau * 1000  # as the sum of 1000 readings: tau is a whole number of thousandths
    for sum_of_user, above_the_first in ((int(border), 0), (int(border) + 1, 1)):
        noise = Listening([0])
        LEVY.estimate(as_users(counts, [0] * 29 + [sum_of_user]), parameters, noise)
        assert noise.chosen_from[0][1][0] == above_the_first


@pytest.mark.parametrize(
    ("quantiles", "number", "epsilon", "rank"),
    [
        ("fixed", 164, 1.0, 16),
        ("fixed", 9, 1.0, 0),
        ("epsilon_dependent", 164, 1.0, 2),
        ("epsilon_dependent", 164, 0.1, 20),
        ("epsilon_dependent", 164, 0.3, 7),
        ("epsilon_dependent", 164, 3.0, 1),
        ("epsilon_dependent", 164, 0.01, 82),
        ("epsilon_dependent", 3, 0.5, 1),
        ("epsilon_dependent", 1, 1.0, 0),
    ],
)
def test_ranks_are_those_of_the_papers(quantiles: str, number: int, epsilon: float, rank: int) -> None:
    assert QUANTILES[quantiles](number, epsilon) == rank


@given(
    users=hats(),
    grouping=st.sampled_from(sorted(GROUPINGS)),
    quantiles=st.sampled_from(sorted(set(QUANTILES) - {SMOOTHED})),
    grid=st.sampled_from(["0.001", "0.3", "2.50", "65"]),
    picks=st.lists(st.integers(0, 10**6), min_size=4, max_size=4),
)
def test_quantile_chooses_among_the_intervals_between_means_and_swaps_ends(
    users: Users, grouping: str, quantiles: str, grid: str, picks: list[int]
) -> None:
    parameters = replace(PLAIN, grouping=grouping, quantiles=quantiles, grid=Grid(Decimal(grid)))
    milli, top = parameters.grid.milli, parameters.grid.floor(UPPER_BOUND)
    steps = sorted(min(parameters.grid.nearest(mean), top) for mean in array_means_of(users, parameters))
    borders = [0, *steps, top]
    widths = [right - left for left, right in pairwise(borders)]
    rank = QUANTILES[quantiles](len(steps), 1.0)
    split = 1 if grouping == "bestfit" else 2
    noise = Listening(picks)
    found = QUANTILE.estimate(users, parameters, noise)
    assert found is not None
    asked = [[abs(i - t) for i in range(len(widths))] for t in (rank, len(steps) - rank)]
    assert noise.chosen_from == [(widths, costs, Fraction(1, 8 * split)) for costs in asked]
    possible = [i for i, width in enumerate(widths) if width]
    ends = []
    for which, inside in (picks[:2], picks[2:]):
        i = possible[which % len(possible)]
        ends.append((borders[i] + 1 + inside % widths[i]) * milli)
    assert found.interval == (min(ends), max(ends))


@given(
    users=hats(),
    grouping=st.sampled_from(sorted(GROUPINGS)),
    grid=st.sampled_from(["0.2", "2.50", "65"]),
    picks=st.lists(st.integers(0, 10**6), min_size=4, max_size=4),
)
def test_a_smoothed_quantile_gives_each_step_the_least_cost_within_rho(
    users: Users, grouping: str, grid: str, picks: list[int]
) -> None:
    parameters = replace(PLAIN, grouping=grouping, quantiles=SMOOTHED, grid=Grid(Decimal(grid)))
    top = parameters.grid.floor(UPPER_BOUND)
    steps = sorted(min(parameters.grid.nearest(mean), top) for mean in array_means_of(users, parameters))
    split, rho = 1 if grouping == "bestfit" else 2, max(1, top // 100)
    noise, ends = Listening(picks), []
    found = QUANTILE.estimate(users, parameters, noise)
    assert found is not None

    def cost(step: int, rank: int) -> int:
        """How many means have to move for this step to have `rank` of them below it."""
        return max(sum(z < step for z in steps) - rank, rank - sum(z <= step for z in steps), 0)

    rank = len(steps) // 10
    for t, (widths, costs, rate), (which, inside) in zip(
        (rank, len(steps) - rank), noise.chosen_from, (picks[:2], picks[2:]), strict=True
    ):
        exact = [cost(step, t) for step in range(-rho, top + rho + 1)]
        expected = [min(exact[step : step + 2 * rho + 1]) for step in range(top + 1)]
        assert [each for width, each in zip(widths, costs, strict=True) for _ in range(width)] == expected
        assert rate == Fraction(1, 8 * split)
        possible = [i for i, width in enumerate(widths) if width]
        i = possible[which % len(possible)]
        ends.append((sum(widths[:i]) + inside % widths[i]) * parameters.grid.milli)
    assert found.interval == (min(ends), max(ends))


def test_neighbours_draw_a_smoothed_end_within_a_quarter_of_epsilon_and_nearly_use_it() -> None:
    """One mean of twenty moves from 0 to U: steps below the others cost one more, and those above them one less."""
    logs = []
    for moved in (0, UPPER_BOUND):
        noise = Listening([0, 0, 0, 0])
        parameters = replace(PLAIN, array_length=1, quantiles=SMOOTHED, grid=Grid(Decimal("0.1")))
        QUANTILE.estimate(as_users([1] * 20, [moved] + [60_000] * 19), parameters, noise)
        widths, costs, rate = noise.chosen_from[0]
        weights = np.exp(-float(rate) * np.repeat(costs, widths))
        logs.append(np.log(weights / weights.sum()))
    assert 0.23 < np.abs(logs[0] - logs[1]).max() <= 0.25 + 1e-12


@pytest.mark.parametrize(("number", "smoothed"), [(60, 0.8), (150, 0.99)])
def test_of_means_at_the_bound_the_upper_end_is_drawn_near_it_with_smoothing_only(number: int, smoothed: float) -> None:
    """Without smoothing the ends are drawn from between the means: all of [0, U], each step as likely."""
    users = as_users([20] * number, [20 * UPPER_BOUND] * number)
    plain, near = Listening([0, 0, 0, 0]), Listening([0, 0, 0, 0])
    QUANTILE.estimate(users, replace(PLAIN, quantiles="fixed"), plain)
    assert [width for width in plain.chosen_from[1][0] if width] == [UPPER_BOUND]
    QUANTILE.estimate(users, replace(PLAIN, quantiles=SMOOTHED), near)
    widths, costs, rate = near.chosen_from[1]
    weights = np.array(widths) * np.exp(-float(rate) * np.array(costs))
    assert weights[np.cumsum(widths) > UPPER_BOUND - UPPER_BOUND // 100].sum() / weights.sum() > smoothed


def test_equal_ends_leave_nothing_to_hide() -> None:
    noise = Scripted([0], [3, 0, 3, 0])
    found = QUANTILE.estimate(ITMS, replace(PLAIN, quantiles="fixed"), noise)
    assert found is not None
    assert found.interval is not None
    assert found.interval[0] == found.interval[1]
    assert noise.asked[0][1] == 0, "no distance: no noise is drawn, the charge stays"


def test_an_interval_outside_the_bounds_is_an_error() -> None:
    for a, b in ((-1, 5), (5, 4), (0, 65_001)):
        with pytest.raises(ValueError, match="within"):
            PLAIN.clipped_to((Fraction(a), Fraction(b)))
