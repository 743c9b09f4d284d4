"""Shared by tests: scripted noise, and strategies for what estimators take."""

import json
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from hatcast.stream.estimators import Estimator, Parameters, Users
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS, Counts, Integers
from hatcast.stream.estimators.quantile import QUANTILES
from hatcast.stream.estimators.vectors import VectorUsers
from hatcast.stream.mechanisms import Distances, Noisy, NoisyVector
from hatcast.stream.mechanisms.gaussian import smallest_scale, smallest_vector_scale
from hatcast.stream.mechanisms.grid import Grid
from tests.services.data import DATA

ITMS_LIKE: list[int] = json.loads((DATA / "itms_like_counts.json").read_text())["counts"]
"""217 counts with every published statistic of the ITMS HAT, largest first    [estimators.md, section 8]"""

UPPER_BOUND = 65_000
GRIDS = ("0.001", "0.0005", "0.5", "0.3", "1", "2.50")


def examples(number: int) -> int:
    """Return how many examples a law gets that needs so many where others get 100: the profile says how many those get.

    A quarter in each run, five times as many in scripts/nightly, all of them against a mutant.
    """
    return max(10, number * settings().max_examples // 100)


class ScalarNoise:
    """Base of noise that is asked for one number at a time only."""

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        raise AssertionError

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError


class Scripted:
    """Noise with the same draws each time: the same release, byte for byte. Keeps what it was asked for.

    draws   noise to add
    picks   for selections: which candidate of those with a weight, which integer; from the start again if too large
    """

    def __init__(self, draws: Iterable[int] = (), picks: Iterable[int] = ()) -> None:
        self._draws = iter(draws)
        self._picks = iter(picks)
        self.asked: list[tuple[int, int, float]] = []
        self.deltas: list[float] = []  # of Gaussian noise

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.asked.append((value, distance, epsilon))
        return Noisy(value + next(self._draws), distance / epsilon)  # running dry is a failure, never a fresh draw

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        self.asked.append((value, distance, epsilon))
        self.deltas.append(delta)
        return Noisy(value + next(self._draws), smallest_scale(distance, epsilon, delta))

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        drawn = [self.laplace(value, distance, epsilon).value for value in values.tolist()]
        return NoisyVector(np.array(drawn, np.int64), distance / epsilon)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        drawn = [self.gaussian(value, distances.l1, epsilon, delta).value for value in values.tolist()]
        return NoisyVector(np.array(drawn, np.int64), smallest_vector_scale(distances, epsilon, delta))

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        assert len(weights) == len(costs)
        assert rate > 0
        candidates = np.flatnonzero(weights)
        return int(candidates[next(self._picks) % len(candidates)])

    def uniform(self, number: int) -> int:
        return next(self._picks) % number


def as_counts(counts: Iterable[int]) -> Counts:
    """Counts in the order of the estimators."""
    return np.array(sorted(counts, reverse=True), np.int64)


def as_users(counts: Iterable[int], sums: Iterable[int]) -> Users:
    """Users as they are given."""
    return Users(np.array([*counts], np.int64), np.array([*sums], np.int64))


Vector = list[int]


def as_vectors(counts: Iterable[int], sums: Iterable[Vector]) -> VectorUsers:
    """Users as they are given, a sum [d] each."""
    rows = np.array([*counts], np.int64)
    return VectorUsers(rows, np.array([*sums], np.int64).reshape(len(rows), -1))


# Few different counts make runs and ties, the large ones what does not fit into 64 bits.
counts_lists = st.one_of(
    st.lists(st.integers(1, 8), min_size=1, max_size=40),
    st.lists(st.integers(1, 500), min_size=1, max_size=40),
    st.lists(st.sampled_from([1, 2, 3, 60, 10**9, 2**31 - 1]), min_size=1, max_size=12),
    st.builds(lambda count, users: [count] * users, st.integers(1, 10**9), st.integers(1, 30)),
    st.builds(lambda huge, rest: [huge, *rest], st.integers(1, 10**9), st.lists(st.integers(1, 5), max_size=30)),
)


@st.composite
def hats(draw: st.DrawFn) -> Users:
    """The users of a HAT, each sum anywhere in [0, count U], the ends included."""
    counts = sorted(draw(counts_lists), reverse=True)
    return as_users(counts, [draw(_sums(count)) for count in counts])


@cache
def _sums(count: int) -> st.SearchStrategy[int]:
    """Kept, as are parameters: to make a strategy takes longer than to draw from it."""
    return st.sampled_from([0, count * UPPER_BOUND]) | st.integers(0, count * UPPER_BOUND)


def selects(estimator: Estimator) -> bool:
    """Whether it draws an interval first, and then noise on one value."""
    return "noise" in estimator.shares and len(estimator.shares) > 1


def plain_parameters(estimator: Estimator, grouping: str = "bestfit", rule: str | int = "sensitivity") -> Parameters:
    """U 65 km/h, grid 0.001 km/h and epsilon 1, with the keys that this estimator uses."""
    used = estimator.keys.defaults
    return Parameters(
        UPPER_BOUND,
        Grid(Decimal("0.001")),
        1.0,
        grouping if "grouping" in used else None,
        rule if "array_length" in used else None,
        "fixed" if "quantiles" in used else None,
    )


intervals = st.tuples(*[st.fractions(0, UPPER_BOUND, max_denominator=4000)] * 2).map(
    lambda ends: (min(ends), max(ends))
)


def parameters_for(estimator: Estimator) -> st.SearchStrategy[Parameters]:
    """Public parameters with every choice that the estimator has."""
    keys = estimator.keys
    return _parameters(
        frozenset(keys.defaults),
        rules=bool(keys.choices.get("array_length")),
        selecting=selects(estimator),
        weighs=keys.weight_threshold is not None,
        gammas=keys.gamma is not None,
    )


@cache
def _parameters(
    used: frozenset[str], *, rules: bool, selecting: bool, weighs: bool, gammas: bool
) -> st.SearchStrategy[Parameters]:
    places = st.integers(1, 600)
    by_rule = st.sampled_from(sorted(RULES)) if rules else st.nothing()
    return st.builds(
        Parameters,
        upper_bound_milli=st.just(UPPER_BOUND),
        grid=st.sampled_from(GRIDS).map(lambda text: Grid(Decimal(text))),
        epsilon=st.sampled_from([0.1, 0.5, 1.0, 2.0]),
        grouping=st.sampled_from(sorted(GROUPINGS)) if "grouping" in used else st.none(),
        array_length=by_rule | places if "array_length" in used else st.none(),
        quantiles=st.sampled_from(sorted(QUANTILES)) if "quantiles" in used else st.none(),
        interval=st.none() | intervals if selecting else st.none(),
        weight_threshold=st.sampled_from([0.5, 1.0, 20.0, 9.5e6]) if weighs else st.none(),
        gamma=st.sampled_from([None, 1e-9, 0.01, 1.0]) if gammas else st.none(),
    )


def moved(users: Users, user: int, share: Fraction) -> Users:
    """A neighbour under `replace`: the user's sum is now `share` of the most it can be."""
    sums = users.sums.copy()
    sums[user] = int(share * int(users.counts[user]) * UPPER_BOUND)
    return Users(users.counts, sums)
