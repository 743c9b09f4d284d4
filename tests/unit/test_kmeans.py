"""Hybrid K-means step by step: where clusters start, who is nearest, means, blends, and clusters without anybody."""

from dataclasses import replace
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.hybrid import methods
from hatcast.stream.kmeans.groups import Devices, nearest, tally
from hatcast.stream.kmeans.lloyd import ClusterMeans, WeightedMeans, blend, cluster, iterate, seeds, uniform
from hatcast.stream.kmeans.messages import decode_answer, decode_round
from hatcast.stream.kmeans.setting import ClusteringSetting, hat_vectors, slots_of_day, top_of
from tests.replayed import policy_of
from tests.support import Scripted

TOP = 10_000
parse_settings = st.builds(
    ClusteringSetting,
    st.integers(1, 4),
    st.just(TOP),
    st.integers(1, 8),
    st.integers(1, 4),
    st.just(1000.0),
    st.integers(0, 99),
)
dimensions_and_clusters = st.tuples(st.integers(1, 3), st.integers(1, 4))


def rows(dimensions: int, least: int, most: int, top: int = TOP) -> st.SearchStrategy[Integers]:
    row = st.lists(st.integers(0, top), min_size=dimensions, max_size=dimensions)
    return st.lists(row, min_size=least, max_size=most).map(lambda found: np.array(found, np.int64))


# Where clusters start


@given(parse_settings)
@example(ClusteringSetting(1, TOP, 1, 1, 1000.0, 31))  # seed 32 starts at 5,008 too, which is near the middle
def test_clusters_start_at_the_same_places_of_the_cube_each_time(setting: ClusteringSetting) -> None:
    found = seeds(setting)
    assert found.shape == (setting.clusters, setting.dimensions)
    assert found.min() >= 0
    assert found.max() <= setting.top
    assert (seeds(setting) == found).all()
    assert (seeds(replace(setting, epsilon=1.0, iterations=7)) == found).all()
    candidates = [uniform(replace(setting, seed=setting.seed + each), 0) for each in range(2)]
    assert (candidates[0] != candidates[1]).any(), "another seed draws other points, of which the best may be the same"


@pytest.mark.parametrize("seed", range(10))
def test_clusters_start_far_from_one_another_and_from_the_border(seed: int) -> None:
    found = seeds(ClusteringSetting(2, TOP, 4, 1, 1.0, seed))
    apart = [np.sqrt(((a - b) ** 2).sum()) for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) > 0.25 * TOP
    assert np.minimum(found, TOP - found).min() > 0.1 * TOP


def test_where_clusters_start_is_part_of_the_promise_that_a_run_can_be_made_again() -> None:
    assert seeds(ClusteringSetting(2, 65_000, 3, 1, 1.0, 1)).tolist() == [
        [33827, 35760],
        [14420, 16566],
        [12859, 50920],
    ]


# Nearest, tally


@given(dimensions_and_clusters.flatmap(lambda it: st.tuples(rows(it[0], 1, 12, 9), rows(it[0], it[1], it[1], 9))))
def test_a_user_is_in_the_first_of_the_nearest_clusters_and_counted_there(case: tuple[Integers, Integers]) -> None:
    vectors, centres = case
    away = [[sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centres.tolist()] for x in vectors.tolist()]
    mine = [distances.index(min(distances)) for distances in away]
    assert nearest(vectors, centres).tolist() == mine
    counts, sums = tally(vectors, centres)
    for k in range(len(centres)):
        members = [x for x, own in zip(vectors.tolist(), mine, strict=True) if own == k]
        assert counts[k] == len(members)
        assert sums[k].tolist() == [sum(column) for column in zip(*members, strict=True)] or not members


# One iteration without noise


@given(parse_settings.flatmap(lambda setting: st.tuples(st.just(setting), rows(setting.dimensions, 1, 30))))
def test_without_noise_a_centre_goes_to_the_mean_of_its_users_and_one_without_users_stays(
    case: tuple[ClusteringSetting, Integers],
) -> None:
    setting, vectors = replace(case[0], iterations=1), case[1]
    start = seeds(setting)
    found = cluster(vectors, None, setting, Scripted(repeat(0)))
    mine = nearest(vectors, start)
    for k in range(setting.clusters):
        members = vectors[mine == k].tolist()
        assert found.users[k] == len(members)
        assert found.moved[k] == bool(members)
        expected = [round(Fraction(sum(c), len(members))) for c in zip(*members, strict=True)] or start[k].tolist()
        assert np.abs(found.centres[k] - expected).max() <= 1, "a mean between two steps may go to either"
        assert bool(members) == bool((found.noise[k] > 0).all()) == bool((found.weights[k] == 1).all())


# Clusters without anybody


def setting_of(**changes: int) -> ClusteringSetting:
    return replace(ClusteringSetting(2, TOP, 3, 2, 1000.0), **changes)


def test_a_cluster_that_everybody_left_starts_anew_beside_the_largest_one_and_stays_at_the_end() -> None:
    setting, seen = setting_of(), []

    def found(centres: Integers) -> WeightedMeans:
        seen.append(centres)
        users, ones = np.array([50.0, 0.2, 20.0]), np.ones((3, 2))
        return ClusterMeans(users, np.full((3, 2), 4000.0) * [[1.0], [9.0], [2.0]], ones), ones

    end = iterate(found, setting)
    first, second = seen
    assert (first == seeds(setting)).all()
    assert second[0].tolist() == [4000, 4000]
    assert second[2].tolist() == [8000, 8000]
    aside = np.abs(second[1] - second[0])
    assert aside.sum() > 0
    assert aside.max() <= TOP / 50
    assert end.centres[1].tolist() == second[1].tolist()
    assert end.moved.tolist() == [2, 0, 2]


def test_what_is_told_of_a_centre_is_of_where_it_stands_now() -> None:
    """The second cluster is left in the second iteration, and starts anew; the third in the last one, and stays."""
    setting, users = setting_of(iterations=3), iter([[9, 9, 9], [9, 0, 9], [9, 0, 0]])

    def found(_: Integers) -> WeightedMeans:
        return ClusterMeans(np.array(next(users), np.float64), np.full((3, 2), 5000.0), np.full((3, 2), 4.0)), np.ones(
            (3, 2)
        )

    end = iterate(found, setting)
    assert end.moved.tolist() == [3, 0, 2]
    assert end.noise.tolist() == [[2, 2], [0, 0], [2, 2]]
    assert end.weights.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert end.centres[[0, 2]].tolist() == [[5000, 5000], [5000, 5000]]
    assert end.centres[1].tolist() != [5000, 5000]


@pytest.mark.parametrize("variance", [TOP**2, np.inf])
def test_where_noise_hides_everybody_no_centre_moves(variance: float) -> None:
    setting = setting_of()
    found = iterate(
        lambda _: (ClusterMeans(np.full(3, 50.0), np.zeros((3, 2)), np.full((3, 2), variance)), np.ones((3, 2))),
        setting,
    )
    assert (found.centres == seeds(setting)).all()
    assert found.moved.tolist() == [0, 0, 0]


@given(st.lists(st.integers(-(10**9), 10**9), min_size=9, max_size=9), st.sampled_from(["central", "local"]))
def test_whatever_the_noise_centres_are_in_the_cube_and_nobody_is_fewer_than_nobody(
    draws: list[int], group: str
) -> None:
    setting = setting_of(iterations=1)
    vectors = np.array([[1, 2], [3, 4]], np.int64)
    noise = Scripted(draws, repeat(1))
    if group == "local":
        found = cluster(None, Devices(vectors, setting, noise), setting, noise)
    else:
        found = cluster(vectors, None, setting, noise)
    assert found.centres.min() >= 0
    assert found.centres.max() <= TOP
    assert found.users.min() >= 0


def test_a_run_without_anybody_is_a_mistake() -> None:
    nobody = np.empty((0, 2), np.int64)
    for central, local in ((None, None), (nobody, None), (None, nobody), (nobody, nobody)):
        with pytest.raises(ValueError, match="at least one user"):
            reports = None if local is None else Devices(local, setting_of(), Scripted())
            cluster(central, reports, setting_of(), Scripted())


def test_a_group_without_users_is_not_asked_and_weighs_nothing() -> None:
    setting, nobody, somebody = setting_of(clusters=1), np.empty((0, 2), np.int64), np.array([[1, 2]] * 900, np.int64)
    central = cluster(somebody, Devices(nobody, setting, Scripted()), setting, Scripted(repeat(0)))
    assert (central.weights == 1).all()
    noise = Scripted(repeat(0), repeat(0))
    local = cluster(nobody, Devices(somebody, setting, noise), setting, noise)
    assert (local.weights == 0).all()
    assert central.centres.tolist() == local.centres.tolist() == [[1, 2]]
    assert {distance for _, distance, _ in noise.asked} == {setting.local_distance}


# Blends


variances_of = st.lists(st.floats(1e-3, 1e9), min_size=6, max_size=6).map(lambda found: np.array(found).reshape(3, 2))


@given(variances_of, variances_of, variances_of, variances_of)
def test_each_cluster_and_dimension_is_blended_by_its_own_weight_with_the_least_noise(
    central: np.ndarray, local: np.ndarray, one: np.ndarray, other: np.ndarray
) -> None:
    users = np.array([1.0, 2.0, 3.0])
    means, weights = blend(ClusterMeans(users, one, central), ClusterMeans(users, other, local))
    assert means.users.tolist() == [2.0, 4.0, 6.0]
    for at in np.ndindex(3, 2):
        n = 1000.0  # local users of a cluster whose mean has this variance: each report has n times as much
        assert weights[at] == pytest.approx(methods.weight(n, float(central[at]), float(local[at]) * n))
        assert means.means[at] == pytest.approx(weights[at] * one[at] + (1 - weights[at]) * other[at])
        assert means.variances[at] == pytest.approx(1 / (1 / central[at] + 1 / local[at]))


# Settings

PLAIN: dict[str, Any] = {"dimensions": 2, "top": 1000, "clusters": 2, "iterations": 2, "epsilon": 1.0, "seed": 0}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("epsilon", [0.0, 0.009, -1.0, float("nan"), float("inf"), 1001.0]),
        ("iterations", [0, 101]),
        ("clusters", [0, 101]),
        ("dimensions", [0, 1441]),
        ("seed", [-1, 2**64]),
        ("top", [0, 2**31]),
    ],
)
def test_settings_out_of_bounds_are_refused_with_the_key(key: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(SettingError, match="grid" if key == "top" else key):
            ClusteringSetting(**(PLAIN | {key: value}))


# Vectors of HATs


def of_hat(slot: str, *users: tuple[int, int, int]) -> tuple[str, np.ndarray, Integers, Integers]:
    pseudonyms, counts, sums = zip(*users, strict=True)
    return slot, np.array(pseudonyms, np.uint64), np.array(counts, np.int64), np.array(sums, np.int64)


def test_a_users_coordinate_is_its_mean_over_all_cells_of_the_slot_and_half_of_u_where_it_was_not() -> None:
    policy = policy_of(hours=[8, 11], grid=0.5)
    assert slots_of_day(policy) == ["08:00", "09:00", "10:00"]
    given_ = [
        of_hat("08:00", (7, 2, 20_000), (2**64 - 1, 1, 65_000)),
        of_hat("08:00", (7, 1, 40_000)),
        of_hat("10:00", (7, 4, 0)),
        of_hat("09:00", (3, 1, 1_000)),
    ]
    users, vectors = hat_vectors(given_, ["08:00", "10:00"], policy)
    assert users.tolist() == [3, 7, 2**64 - 1]
    assert vectors.tolist() == [[65, 65], [40, 0], [130, 65]]
    assert top_of(policy) == 130
    alone, mine = hat_vectors(given_[1:3], ["08:00", "10:00"], policy)
    assert (alone.tolist(), mine.tolist()) == ([7], [[80, 0]]), "others change nothing"


def test_slots_are_those_that_start_within_the_hours() -> None:
    assert slots_of_day(policy_of(hours=[22, 24], slot_length="30m")) == ["22:00", "22:30", "23:00", "23:30"]
    assert slots_of_day(policy_of(hours=[9, 12], slot_length="2h")) == ["10:00"]


@given(st.integers(1, 10**6), st.sampled_from([0.001, 0.3, 0.5, 2.5]), st.data())
def test_no_coordinate_is_outside_of_the_cube(count: int, grid: float, data: st.DataObject) -> None:
    policy = policy_of(grid=grid)
    total = data.draw(st.sampled_from([0, count * 65_000]) | st.integers(0, count * 65_000))
    _, vectors = hat_vectors([of_hat("08:00", (1, count, total))], ["08:00", "09:00"], policy)
    assert 0 <= vectors.min() <= vectors.max() <= top_of(policy)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", b'{"x": ' + b"[" * 9999 + b"]" * 9999 + b"}"], ids=len)
def test_no_message_raises(raw: bytes) -> None:
    assert decode_round(raw) is None
    assert decode_answer(raw, ClusteringSetting(2, 10, 3, 2, 1.0), policy_of()) is None
