"""What a release says of those who see nothing else: never less than the release itself, computed exactly, loses."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from hatcast.lab.evaluate.lemmas import GaussianNoise, amplified
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HybridParameters, Spread, estimate
from hatcast.stream.hybrid._public import Groups, public_epsilon
from hatcast.stream.mechanisms.grid import Grid
from tests.support import UPPER_BOUND, Scripted, as_users

DELTA = 1e-7
PLAIN = HybridParameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, 1.0, Spread(18_785, 18_785), DELTA, 0)
KVH, PWH = HYBRID_ESTIMATORS["kvh"], HYBRID_ESTIMATORS["pwh"]


def groups(parameters: HybridParameters, central: int, local: int, name: str = "kvh") -> Groups:
    weight = Fraction(HYBRID_ESTIMATORS[name].weight(parameters.setting(central, local)))
    return Groups(weight, central, local, local)


def theorem(parameters: HybridParameters, of: Groups) -> float:
    """[H Thm 8.1], corrected: continuous noise and the exact bound."""
    noise = GaussianNoise(65.0, parameters.epsilon, DELTA)
    setting = noise.setting(of.central, of.local, 0.0)
    return amplified(noise, setting, float(of.weight), parameters.max_coalition or 0).epsilon


# By the distribution of releases itself

Chances = NDArray[np.float64]


def discrete(scale: float, number: int) -> Chances:
    """Of the sum of so many discrete Gaussian noises, 0 in the middle."""
    reach = math.ceil(8 * scale)
    terms = np.exp(-0.5 * (np.arange(-reach, reach + 1) / scale) ** 2)
    single, summed = terms / terms.sum(), np.ones(1)
    for _ in range(number):
        summed = np.clip(fftconvolve(summed, single), 0, None)
    return summed


def released(parameters: HybridParameters, of: Groups, moved: tuple[int, int]) -> dict[int, float]:
    """Chances of each release, the central mean and the sum of reports moved by so many steps."""
    distance = parameters.grid.distance(parameters.sensitivity(of.central))
    central = discrete(parameters.scale_for(distance, parameters.epsilon), 1)
    local = discrete(parameters.local_scale, of.local - (parameters.max_coalition or 0))
    part = (1 - of.weight) / of.local
    first = moved[0] - len(central) // 2
    starts = [round(of.weight / part * (first + k)) for k in range(len(central))]
    summed = np.zeros(starts[-1] - starts[0] + len(local))
    for start, chance in zip(starts, central.tolist(), strict=True):
        summed[start - starts[0] : start - starts[0] + len(local)] += chance * local
    sums = np.arange(len(summed)) + starts[0] + moved[1] - len(local) // 2
    values = np.rint(float(part) * sums).astype(np.int64)
    least = int(values[0])
    return dict(enumerate(np.bincount(values - least, weights=summed).tolist(), least))


def loss(one: dict[int, float], other: dict[int, float], epsilon: float) -> float:
    """The least delta with epsilon."""
    return math.fsum(max(0.0, p - math.exp(epsilon) * other.get(value, 0.0)) for value, p in one.items())


@pytest.mark.parametrize(
    ("change", "central", "local"),
    [
        ({}, 1, 20),
        ({"max_coalition": 12}, 1, 20),
        ({"epsilon": 0.5}, 2, 12),
        ({"local_epsilon": 0.5}, 1, 12),
        ({"grid": Grid(Decimal(1))}, 1, 8),
    ],
)
def test_every_user_is_hidden_as_well_as_is_said(change: dict[str, object], central: int, local: int) -> None:
    parameters = replace(PLAIN, **{"grid": Grid(Decimal(2)), **change})  # type: ignore[arg-type]  # of several types
    of = groups(parameters, central, local)
    epsilon = public_epsilon(parameters, of)
    assert epsilon < max(parameters.epsilon, parameters.local_epsilon)
    furthest = parameters.grid.distance(parameters.sensitivity(central)), parameters.local_distance
    before = released(parameters, of, (0, 0))
    least = 0.0
    for moved in ((furthest[0], 0), (furthest[0] // 2, 0), (1, 0), (0, furthest[1]), (0, furthest[1] // 3)):
        after = released(parameters, of, moved)
        for lost in (loss(before, after, epsilon), loss(after, before, epsilon)):
            assert lost <= DELTA
        least = max(least, loss(before, after, epsilon / 2))
    assert least > DELTA, "half of it would be too little to claim"


# Against the theorem


@pytest.mark.parametrize("name", ["kvh", "pwh"])
@pytest.mark.parametrize(("central", "local"), [(1, 499), (5, 495), (50, 450), (10, 9_990), (100, 9_900)])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_on_a_fine_grid_it_is_the_theorems_figure_and_up_to_1_percent(
    name: str, central: int, local: int, part: float
) -> None:
    parameters = replace(PLAIN, max_coalition=int(part * local))
    of = groups(parameters, central, local, name)
    found, exact = public_epsilon(parameters, of), theorem(parameters, of)
    assert exact - 1e-9 <= found <= min(1.01 * exact, 1.0)
    assert found == round(found, 6)


def test_a_larger_coalition_leaves_less_and_all_devices_leave_nothing() -> None:
    found = [
        public_epsilon(replace(PLAIN, max_coalition=each), groups(PLAIN, 10, 490)) for each in (0, 200, 480, 490, 10**9)
    ]
    assert found == sorted(found)
    assert found[0] < 0.5
    assert found[3:] == [1.0, 1.0]


def test_without_gaussian_noise_or_a_coalition_it_is_the_larger_epsilon_that_is_used() -> None:
    of = groups(PLAIN, 10, 490)
    for parameters in (replace(PLAIN, max_coalition=None), replace(PLAIN, delta=None, max_coalition=None)):
        for epsilon, local_epsilon in ((0.3, 2.0), (2.0, 0.3)):
            each = replace(parameters, epsilon=epsilon, local_epsilon=local_epsilon)
            assert public_epsilon(each, of) == 2.0
            assert public_epsilon(each, Groups(Fraction(1), 10, 0, 490)) == epsilon
            assert public_epsilon(each, Groups(Fraction(0), 0, 490, 490)) == local_epsilon


@given(
    central=st.integers(1, 200),
    local=st.integers(1, 2_000),
    epsilon=st.sampled_from([0.1, 1.0, 3.0]),
    local_epsilon=st.sampled_from([0.1, 1.0, 3.0]),
    coalition=st.integers(0, 2_500),
)
def test_it_is_never_above_what_a_users_own_noise_gives(
    central: int, local: int, epsilon: float, local_epsilon: float, coalition: int
) -> None:
    parameters = replace(PLAIN, epsilon=epsilon, local_epsilon=local_epsilon, max_coalition=coalition)
    assert 0 < public_epsilon(parameters, groups(parameters, central, local)) <= max(epsilon, local_epsilon)


# Each group's own mean


@pytest.mark.parametrize("name", ["kvh", "pwh"])
def test_nothing_but_its_own_noise_hides_a_central_user_whose_groups_mean_is_published(name: str) -> None:
    """The blend claims less with the noise of 490 reports in it, which an observer of both means subtracts."""
    users, reports = as_users([1] * 10, [0] * 10), np.zeros(490, np.int64)
    parameters = replace(PLAIN, local_epsilon=0.5)
    together = estimate(HYBRID_ESTIMATORS[name], users, reports, parameters, Scripted([5]))
    found = estimate(HYBRID_ESTIMATORS[name], users, reports, replace(parameters, group_min_users=10), Scripted([5]))
    assert together is not None
    assert together.public_epsilon < 0.7
    assert found is not None
    assert found.groups is not None
    assert found.groups.central is not None
    assert found.groups.local is not None
    assert found.public_epsilon == found.groups.central.public_epsilon == 1.0
    assert found.groups.local.public_epsilon < 0.05, "490 devices still hide each other"


@pytest.mark.parametrize(("central", "local"), [(1, 12), (2, 8)])
def test_both_means_of_separate_groups_hide_every_user_as_well_as_is_said(central: int, local: int) -> None:
    """By the distributions themselves: the means are independent, and a user is in one of them."""
    parameters = replace(PLAIN, grid=Grid(Decimal(2)), local_epsilon=2.0)
    distance = parameters.grid.distance(parameters.sensitivity(central))
    of_central = Groups(Fraction(1), central, 0, 0)
    of_local = Groups(Fraction(0), 0, local, local)
    noises = {
        of_central: (discrete(parameters.scale_for(distance, parameters.epsilon), 1), distance),
        of_local: (discrete(parameters.local_scale, local), parameters.local_distance),
    }
    for group, (chances, furthest) in noises.items():
        epsilon = public_epsilon(parameters, group)
        before = dict(enumerate(chances.tolist()))
        lost = [loss(dict(enumerate(chances.tolist(), by)), before, epsilon) for by in (1, furthest // 2, furthest)]
        assert max(lost) <= DELTA
    least = loss(dict(enumerate(noises[of_central][0].tolist(), distance)), dict(enumerate(noises[of_central][0])), 0.5)
    assert least > DELTA, "the blend's figure would be too little to claim"


def test_with_full_lm_the_noise_on_central_users_hides_from_every_coalition_of_devices() -> None:
    few = Groups(Fraction(0), 0, 500, 10)
    assert public_epsilon(replace(PLAIN, max_coalition=10**6), few) < 0.1
    assert public_epsilon(replace(PLAIN, max_coalition=10**6), replace(few, devices=500)) == 1.0


def test_a_release_tells_it_for_gaussian_noise_only() -> None:
    reports = np.array([0] * 30, np.int64)
    for parameters, delta in ((PLAIN, DELTA), (replace(PLAIN, delta=None, max_coalition=None), 0.0)):
        found = estimate(PWH, as_users([1] * 2, [0] * 2), reports, parameters, Scripted([5]))
        assert found is not None
        assert found.kind == ("gaussian" if delta else "laplace")
        assert (found.public_epsilon < 1) == bool(delta)
