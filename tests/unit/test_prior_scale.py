"""The scale of a guessed prior: what it keeps of what was learnt, and what it is chosen by."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.tracker.counts import DayCounts, HatCounts, ModelHat
from hatcast.stream.tracker.model import (
    CITY,
    DAY,
    FEATURES,
    HOURS,
    SHARED,
    Covariance,
    Means,
    Observation,
    hour_part,
    prior_means,
)
from hatcast.stream.tracker.prior import Prior, factor_of
from hatcast.stream.tracker.prior_scale import Evidence, next_scale
from hatcast.stream.tracker.query import ResidualQuery, members_of, query_of
from hatcast.stream.units import NANO

GUESS = Prior.of(65.0, value="load")
MEANS = prior_means(GUESS)
CELLS, HATS = 5, 12
LEAST, MOST = -32, 4
SCALES = st.integers(LEAST, MOST)
Random = np.random.Generator


def made(prior_scale: int) -> tuple[Covariance, Means]:
    """A model that knows nothing yet but its prior at a scale."""
    covariance, means = Covariance(GUESS.variances), Means(MEANS)
    covariance.rescale(prior_scale)
    covariance.add_cells(CELLS)
    covariance.add_hats(ModelHat(at % CELLS, at, np.zeros(2), 9.0 + at, 0.2, 3, 0) for at in range(HATS))
    means.resize(covariance)
    return covariance, means


def observations(random: Random, number: int) -> list[tuple[Observation, float]]:
    """Numbers about one cell each, in any order of cells; a HAT is in one of them at most, as in a first query."""
    found = []
    hats = random.permutation(HATS)
    for at in range(number):
        row = np.zeros(SHARED)
        row[[CITY, DAY, hour_part(int(random.integers(HOURS)))]], row[FEATURES] = 1, random.normal(size=2)
        beta = random.random(1) if at < HATS else np.zeros(1)
        hat = hats[at % HATS :][:1]
        cell = hat % CELLS
        variance = float(random.uniform(0.5, 20))
        found.append((Observation(cell, np.ones(1), row, hat, np.ones(1), beta, variance), float(random.normal(30, 9))))
    return found


def observe(covariance: Covariance, means: Means, observed: list[tuple[Observation, float]]) -> None:
    for observation, value in observed:
        gain = covariance.observe(observation)
        means.update(observation, gain, value - means.expected(observation, gain))


def assert_alike(left: tuple[Covariance, Means], right: tuple[Covariance, Means]) -> None:
    for one, other in zip(left, right, strict=True):
        for name in ("shared", "slopes", "variance", "intercepts"):
            if hasattr(one, name):
                assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6, abs=1e-6), name


@settings(max_examples=40)
@given(SCALES, SCALES, st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_at_another_scale_a_model_is_as_if_it_had_observed_all_at_that_scale(
    first: int, second: int, number: int, seed: int
) -> None:
    observed = observations(np.random.default_rng(seed), number)
    (covariance, means), other = made(first), made(second)
    observe(covariance, means, observed)
    observe(*other, observed)
    means.rescale(covariance.rescale(second), MEANS)
    assert covariance.prior_scale == second
    assert_alike((covariance, means), other)


@settings(max_examples=40)
@given(SCALES, SCALES, st.integers(0, 2**32 - 1))
def test_a_model_that_takes_another_scale_and_its_own_again_is_as_it_was(first: int, second: int, seed: int) -> None:
    observed = observations(np.random.default_rng(seed), 40)
    (covariance, means), same = made(first), made(first)
    for model in ((covariance, means), same):
        observe(*model, observed)
    for scale in (second, first):
        means.rescale(covariance.rescale(scale), MEANS)
    assert_alike((covariance, means), same)


@settings(max_examples=40)
@given(st.lists(st.tuples(SCALES, st.floats(0, 100), st.integers(0, 20)), max_size=6), st.integers(0, 2**32 - 1))
def test_a_covariance_stays_one_whatever_scales_pauses_and_dates_follow_each_other(
    days: list[tuple[int, float, int]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    covariance, means = made(0)
    for scale, hours, number in days:
        means.follow(covariance.advance(hours))
        observe(covariance, means, [(replace(each, betas=np.zeros(1)), y) for each, y in observations(random, number)])
        means.rescale(covariance.rescale(scale), MEANS)
        assert np.linalg.eigvalsh(covariance.shared).min() > 0
        assert covariance.shared.tolist() == covariance.shared.T.tolist()
        assert (covariance.variance > 0).all()
        assert (covariance.of_cells() > 0).all()
        means.follow(covariance.begin_day())
        assert np.linalg.eigvalsh(covariance.shared).min() > 0
        assert np.isfinite(means.shared).all()
        assert np.isfinite(means.intercepts).all()
        covariance.add_hats(ModelHat(0, 0, np.zeros(2), 9.0, 0.2, 3, 0) for _ in range(HATS))
        means.hats = np.zeros(HATS)


@pytest.mark.parametrize("days", [30, 100, 365, 700])
@pytest.mark.parametrize(("first", "second"), [(-8, -4), (-8, 0), (-16, 0)])
def test_a_cell_that_was_not_seen_for_long_stays_where_its_numbers_were_when_the_scale_rises(
    first: int, second: int, days: int
) -> None:
    covariance, means = made(first)
    unit = covariance.variances.cell**0.5
    row = np.zeros(SHARED)
    row[[CITY, DAY, hour_part(8)]] = 1
    none = np.empty(0)

    def see(cell: int, value: float) -> None:
        number = Observation(np.array([cell]), np.ones(1), row, none.astype(np.int64), none, none, 0.3 * unit**2)
        observe(covariance, means, [(number, MEANS[CITY] + value * unit)])

    for _ in range(8):
        for cell, value in enumerate((2, -1, 0)):
            see(cell, value)
    for _ in range(days):
        means.follow(covariance.begin_day())
        means.follow(covariance.advance(24))
        see(1, -1)
        see(2, 0)
    before = covariance.row_of(0, 8, np.zeros(2)) @ means.shared + means.intercepts[0]
    means.rescale(covariance.rescale(second), MEANS)
    of_cell = covariance.row_of(0, 8, np.zeros(2))
    moved = of_cell @ means.shared + means.intercepts[0] - before
    assert abs(moved) < 0.25 * float(of_cell @ covariance.shared @ of_cell + covariance.variance[0]) ** 0.5


def asked(prior_scale: int, cells: int = 1) -> ResidualQuery:
    """A query at a scale, when the city is known: of 8 buses, in a HAT of each cell."""
    covariance, day = Covariance(GUESS.variances), DayCounts(GUESS.variances)
    covariance.rescale(prior_scale)
    covariance.shared *= 1e-4
    covariance.add_cells(cells)
    day.add([HatCounts(cell, 8, np.arange(8), np.full(8, 20)) for cell in range(cells)])
    covariance.add_hats(day.hats)
    return query_of(members_of(np.arange(8 * cells), day, covariance), np.full(8, NANO), day, covariance)


def innovation(random: Random, query: ResidualQuery, factor: float) -> float:
    """Of a city whose cells and buses differ `factor` times as much as the query's model says."""
    shared = float(query.gain.row @ query.gain.shared) * query.gain.variance
    rest = query.gain.variance - query.noise - shared
    return float(random.normal(0, (query.noise + shared + factor**2 * rest) ** 0.5))


def chosen(scale: int, factor: float, queries: int = 400) -> int:
    """The scale after a date of a city that differs from the unscaled prior by a factor."""
    random, query, evidence = np.random.default_rng(3), asked(scale), Evidence()
    for _ in range(queries):
        evidence.add(innovation(random, query, factor / factor_of(scale)), query)
    return next_scale([evidence], scale, is_usual=False)


def test_the_scale_falls_in_a_city_that_differs_less_than_the_prior_and_rises_in_one_that_differs_more() -> None:
    assert chosen(0, 0.1) < 0 < chosen(0, 2.0)
    assert chosen(-12, 0.05) < -12 < chosen(-12, 0.5)


@pytest.mark.parametrize("scale", [-4, 0, 4])
def test_the_scale_of_a_city_as_the_prior_says_is_about_right_and_not_too_small(scale: int) -> None:
    assert scale - 1 <= chosen(scale, factor_of(scale), 2000) <= scale + 2


@given(
    scale=SCALES,
    is_usual=st.booleans(),
    innovations=st.lists(st.sampled_from((0.0, 1e-3, 0.1, 1.0, 30.0, 1e4)), max_size=60),
)
def test_the_scale_falls_by_at_most_four_a_day_and_stays_within_its_range(
    *, scale: int, is_usual: bool, innovations: list[float]
) -> None:
    query, evidence = asked(scale), Evidence()
    for each in innovations:
        evidence.add(each, query)
    found = next_scale([evidence], scale, is_usual=is_usual)
    assert max(LEAST, scale - 4) <= found <= MOST
    assert bool(innovations) or found == scale


def test_without_a_query_since_the_last_choice_the_scale_stays() -> None:
    query, evidence = asked(0), Evidence()
    for _ in range(200):
        evidence.add(0.0, query)
    assert next_scale([evidence], 0, is_usual=False) == -4
    assert next_scale([evidence], -4, is_usual=False) == -4
    assert next_scale([Evidence(evidence.sums)], -4, is_usual=False) == -4  # as after a restart
    evidence.add(0.0, asked(-4))
    assert next_scale([evidence], -4, is_usual=False) == -8


@pytest.mark.parametrize(
    ("is_usual", "scale", "following"),
    [
        *((False, scale, following) for scale, following in ((-20, -10), (-8, -8), (-4, -4), (0, 0), (4, 0))),
        *((True, scale, following) for scale, following in ((-8, 1), (0, 1), (1, 1), (3, 3), (4, 4))),
    ],
)
def test_a_scale_that_released_numbers_leave_likely_stays(*, is_usual: bool, scale: int, following: int) -> None:
    evidence = Evidence()
    evidence.is_new = True
    assert next_scale([evidence], scale, is_usual=is_usual) == following


def test_a_usual_range_lets_the_scale_fall_only_after_more_queries() -> None:
    query, evidence, falls = asked(0), Evidence(), dict[bool, int]()
    for number in range(1, 400):
        evidence.add(innovation(np.random.default_rng(number), query, 0.5), query)
        for is_usual in (False, True):
            if next_scale([Evidence(evidence.sums), evidence], 0, is_usual=is_usual) < 0:
                falls.setdefault(is_usual, number)
            evidence.is_new = True
    assert falls[False] < falls[True]


def test_a_pulse_is_no_evidence() -> None:
    pulse, evidence = asked(0, cells=3), Evidence()
    assert not pulse.members.is_of_one_cell
    for each in (0.0, 100.0):
        evidence.add(each, pulse)
    assert evidence.sums.tolist() == Evidence().sums.tolist()
    assert next_scale([evidence], 0, is_usual=False) == 0


def test_the_scale_of_several_runs_follows_from_the_mean_of_their_evidence() -> None:
    query, narrow, wide = asked(0), Evidence(), Evidence()
    for _ in range(100):
        narrow.add(0.0, query)
        wide.add(30.0, query)
    alone = Evidence((narrow.sums + wide.sums) / 2)
    alone.is_new = True
    assert next_scale([narrow, wide], 0, is_usual=False) == next_scale([alone], 0, is_usual=False)
    assert not narrow.is_new
    assert not wide.is_new
