"""Laws of hybrid K-means: what one user can move, and what a whole run can tell of it; with mutants that must break."""

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.groups import Devices, noisy_tally, tally
from hatcast.stream.kmeans.lloyd import cluster
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import Noisy
from tests.support import ScalarNoise, Scripted


class Told(ScalarNoise):
    """Noise that says the same whatever it is asked: what an onlooker has seen. Keeps what it was asked for."""

    def __init__(self, seed: int, most: int) -> None:
        self._chance = random.Random(seed)
        self._most = most
        self.laplaces: list[tuple[int, int, float]] = []
        self.choices: list[tuple[int, Fraction]] = []

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.laplaces.append((value, distance, epsilon))
        return Noisy(self._chance.randint(0, self._most), distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        assert set(weights.tolist()) == {1}
        assert sorted(costs.tolist()) == [0] + [1] * (len(costs) - 1), "so that all chances add up to the same"
        said = self._chance.randrange(len(weights))
        self.choices.append((int(costs[said]), rate))
        return said

    def uniform(self, number: int) -> int:
        raise AssertionError


def loss(one: Told, other: Told) -> Fraction:
    """The most that the log of the chance of all that was said differs by. Both were asked in the same order."""
    assert len(one.laplaces) == len(other.laplaces)
    assert len(one.choices) == len(other.choices)
    numbers = sum(
        Fraction(abs(a - b)) * Fraction(epsilon) / distance
        for (a, distance, epsilon), (b, *_) in zip(one.laplaces, other.laplaces, strict=True)
    )
    answers = sum(abs(a - b) * rate for (a, rate), (b, _) in zip(one.choices, other.choices, strict=True))
    return Fraction(numbers + answers)


def moved(vectors: Integers, other: Integers, centres: Integers, setting: ClusteringSetting) -> int:
    """How far apart, in l1, the counts (in steps) and sums of two inputs are."""
    (counts, sums), (others, their_sums) = tally(vectors, centres), tally(other, centres)
    return int(np.abs(counts - others).sum()) * setting.unit + int(np.abs(sums - their_sums).sum())


def points(top: int, dimensions: int) -> list[tuple[int, ...]]:
    return list(product(range(top + 1), repeat=dimensions))


# One iteration


@pytest.mark.parametrize(("top", "dimensions", "clusters"), [(4, 1, 2), (3, 1, 3), (2, 2, 2), (1, 3, 2)])
def test_replacing_one_user_moves_counts_and_sums_by_at_most_the_sensitivity_and_by_that_but_for_a_step(
    top: int, dimensions: int, clusters: int
) -> None:
    """All centres, all vectors, all others for them. The paper's half of it would not do."""
    setting, cube = ClusteringSetting(dimensions, top, clusters, 1, 1.0), points(top, dimensions)
    furthest = 0
    for centres in product(cube, repeat=clusters):
        rows = [np.array([point], np.int64) for point in cube]
        found = [tally(row, np.array(centres, np.int64)) for row in rows]
        whole = np.array([np.column_stack([counts * setting.unit, sums]).ravel() for counts, sums in found])
        furthest = max(furthest, int(np.abs(whole[:, None] - whole[None]).sum(axis=2).max()))
    assert furthest == setting.central_distance - 1
    assert furthest > setting.central_distance // 2 == top * dimensions + setting.unit, "the paper's (m d + 1)"


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[ClusteringSetting, Integers, Integers]:
    """A setting, and two inputs in which one user's vector is another one."""
    dimensions, top = draw(st.integers(1, 4)), draw(st.sampled_from([1, 7, 65_000, 2**29]))
    clusters, iterations = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    setting = ClusteringSetting(dimensions, top, clusters, iterations, draw(st.sampled_from([0.1, 0.7, 1.0, 7.0])))
    coordinate = st.sampled_from([0, top]) | st.integers(0, top)
    vector = st.lists(coordinate, min_size=dimensions, max_size=dimensions)
    rows = draw(st.lists(vector, min_size=1, max_size=8))
    other = [*rows]
    other[draw(st.integers(0, len(rows) - 1))] = draw(vector)
    return setting, np.array(rows, np.int64), np.array(other, np.int64)


@given(case=neighbours(), data=st.data())
def test_what_noise_is_put_on_is_no_further_apart_than_it_is_made_for(
    case: tuple[ClusteringSetting, Integers, Integers], data: st.DataObject
) -> None:
    setting, *inputs = case
    coordinate = st.integers(0, setting.top)
    rows = st.lists(coordinate, min_size=setting.dimensions, max_size=setting.dimensions)
    centres = np.array(data.draw(st.lists(rows, min_size=setting.clusters, max_size=setting.clusters)), np.int64)
    asked = []
    for vectors in inputs:
        noise = Scripted([0] * setting.clusters * (setting.dimensions + 1))
        counts, sums = noisy_tally(vectors, centres, setting, noise)
        assert [value for value, *_ in noise.asked] == np.column_stack([counts, sums]).ravel().tolist()
        assert {(distance, epsilon) for _, distance, epsilon in noise.asked} == {
            (setting.central_distance, setting.central_epsilon)
        }
        asked.append(noise.asked)
    apart = sum(abs(a - b) for (a, *_), (b, *_) in zip(*asked, strict=True))
    assert apart == moved(inputs[0], inputs[1], centres, setting) <= setting.central_distance


# A whole run


def loss_of(
    setting: ClusteringSetting,
    inputs: Iterable[Integers],
    local: int,
    seed: int,
    devices: ClusteringSetting | None = None,
) -> Fraction:
    """Of a run in which the first `local` users are devices, whatever was said. devices: what a mutant has for them."""
    tolds = []
    for vectors in inputs:
        told = Told(seed, 4 * setting.top)
        reports = Devices(vectors[:local], devices or setting, told) if local else None
        cluster(vectors[local:] if local < len(vectors) else None, reports, setting, told)
        tolds.append(told)
    return loss(*tolds)


@given(case=neighbours(), seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_all_that_is_seen_of_a_run_costs_a_replaced_user_at_most_epsilon(
    case: tuple[ClusteringSetting, Integers, Integers], seed: int, share: float
) -> None:
    setting, *inputs = case
    assert loss_of(setting, inputs, round(share * len(inputs[0])), seed) <= Fraction(setting.epsilon)


def test_a_device_at_the_other_end_of_the_cube_pays_all_of_epsilon_and_more_if_it_were_split_in_tau_parts() -> None:
    setting = ClusteringSetting(2, 100, 2, 3, 1.0)
    inputs = [np.array([[0, 0]], np.int64), np.array([[100, 100]], np.int64)]
    losses = {loss_of(setting, inputs, 1, seed) for seed in range(40)}
    assert max(losses) == 4 * Fraction(setting.local_epsilon)
    assert math.isclose(float(max(losses)), setting.epsilon)

    class Mutant(ClusteringSetting):
        @property
        def local_epsilon(self) -> float:
            return self.epsilon / self.iterations

    mutant = Mutant(2, 100, 2, 3, 1.0)
    assert max(loss_of(setting, inputs, 1, seed, mutant) for seed in range(40)) > Fraction(setting.epsilon)


@given(
    st.integers(1, 12),
    st.sampled_from([0.01, 0.1, 0.3, 1.0, 7.0, 1000.0]) | st.floats(0.01, 1000),
    st.integers(1, 100),
)
def test_the_parts_of_epsilon_are_the_most_that_add_up_to_no_more(
    dimensions: int, epsilon: float, iterations: int
) -> None:
    setting = ClusteringSetting(dimensions, 1000, 3, iterations, epsilon)
    for part, parts in ((setting.central_epsilon, iterations), (setting.local_epsilon, iterations + 1)):
        assert Fraction(part) * parts <= Fraction(epsilon) < Fraction(math.nextafter(part, math.inf)) * parts


@pytest.mark.parametrize("top", [10, 65_000])
@pytest.mark.parametrize(("dimensions", "iterations", "epsilon"), [(1, 1, 1.0), (2, 5, 7.0), (12, 3, 0.5)])
def test_scales_are_those_of_the_spec(top: int, dimensions: int, iterations: int, epsilon: float) -> None:
    setting = ClusteringSetting(dimensions, top, 4, iterations, epsilon)
    m = setting.top / setting.unit
    assert m == 1
    assert math.isclose(setting.central_scale / setting.unit, 2 * (m * dimensions + 1) * iterations / epsilon)
    assert math.isclose(setting.local_scale / setting.unit, m * dimensions * (iterations + 1) / epsilon)


@settings(max_examples=20)
@given(case=neighbours())
def test_vectors_outside_of_the_cube_are_refused_before_noise_is_drawn(
    case: tuple[ClusteringSetting, Integers, Integers],
) -> None:
    setting, vectors, _ = case
    told = Told(0, 1)
    wrongs: list[Any] = [vectors - setting.top - 1, vectors + setting.top + 1, vectors[:, :0], vectors.astype(float)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="vector"):
            cluster(wrong, None, setting, told)
        with pytest.raises(ValueError, match="vector"):
            Devices(wrong, setting, told)
    assert told.laplaces == []


def test_a_device_answers_no_more_often_than_epsilon_is_split_for() -> None:
    setting, told = ClusteringSetting(1, 10, 2, 2, 1.0), Told(0, 10)
    devices, centres = Devices(np.array([[3]], np.int64), setting, told), np.array([[1], [9]], np.int64)
    for _ in range(setting.iterations):
        devices.clusters(centres)
    with pytest.raises(ValueError, match="once per iteration"):
        devices.clusters(centres)
    assert {rate for _, rate in told.choices} == {Fraction(setting.local_epsilon)}
    assert replace(setting, iterations=3).local_epsilon < setting.local_epsilon
