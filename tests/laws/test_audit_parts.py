"""The audit of trees, Gaussian noise, clusterings and private lists: what holds is not reported, mutants are found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hatcast.lab.audit.days import DayFamily, RunningSumFamily
from hatcast.lab.audit.devices import ClusteringFamily, ReportFamily, clusterings_of
from hatcast.lab.audit.events import EventCounts, epsilon_lower_bound
from hatcast.lab.audit.hats import MeanFamily, SeededNumbers
from hatcast.lab.audit.laws import audit_lists, losses_of_lists
from hatcast.lab.audit.lists import ListFamily
from hatcast.lab.audit.run import parts_of
from hatcast.lab.audit.search import search
from hatcast.lab.audit.tracker import TrackerFamily
from hatcast.lab.survey.run import CellSelection, select_from
from hatcast.stream.continual import trees as prefixes
from hatcast.stream.continual._digits import Digits
from hatcast.stream.hybrid import _interface
from hatcast.stream.kmeans import groups
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import TrackerKeys
from hatcast.stream.release import continual
from tests.auditing import FastNoise, shipped
from tests.laws.test_audit import found_of


def test_a_trackers_day_with_a_timetable_loses_its_claim_and_no_more() -> None:
    policy = shipped("tracker")
    timed = replace(policy, method=replace(policy.keys_of(TrackerKeys), timetable="gtfs.zip"))
    found = search(TrackerFamily(timed), 20, SeededNumbers(1), FastNoise())
    assert found.leak is None
    assert 0.9 < found.share <= 1


ALONE = ["running-tree", "running-kary", "running-withhold-release"]


# Noise that is requested alone


def test_shifts_of_the_noise_of_a_tree_use_the_claim_up() -> None:
    family = DayFamily(shipped("running-tree"))
    assert family.is_alone
    found = search(family, 1, SeededNumbers(1), FastNoise())
    assert found.leak is None
    assert 0.999 < found.share <= 1 + 1e-9


@pytest.mark.parametrize("name", ALONE)
def test_noise_for_half_of_a_trees_nodes_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most_nodes = Digits.most_nodes
    monkeypatch.setattr(Digits, "most_nodes", lambda self, *of: most_nodes(self, *of) // 2)
    found = found_of(DayFamily(shipped(name)), FastNoise(), pairs=1)
    assert found.problem is not None
    assert found.problem.startswith("requests of noise lose ")


def test_a_running_sum_that_gets_no_noise_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the newest node's noise comes a slot later."""
    plan = prefixes.plan

    def late(digits: Digits, before: int, after: int) -> prefixes.PrefixSteps:
        found = plan(digits, before, after)
        signs = found.signs.copy()
        signs[found.drawn_to] = 0
        return found._replace(signs=signs)

    monkeypatch.setattr(prefixes, "plan", late)
    found = found_of(RunningSumFamily(shipped("running-tree")), FastNoise())
    assert found.problem == "no shift of the noise makes neighbours publish the same"


# Gaussian noise


def test_a_bound_at_a_delta_is_that_of_the_probability_less_delta() -> None:
    """Of a million samples the bound is near ln((p - delta) / q), and below; without delta near ln(p / q)."""
    counts = EventCounts(500_000, 500_000, 50_000, 10_000)
    for delta, truth in ((0.0, 5.0), (1e-6, 5.0), (0.05, 2.5), (0.09, 0.5)):
        bound = epsilon_lower_bound(counts, delta, 1e-8)
        assert max(0.0, np.log(truth) - 0.15) <= bound <= max(0.0, np.log(truth))
    assert epsilon_lower_bound(counts, 0.1, 1e-8) == 0


def test_gaussian_noise_is_not_reported_and_of_a_fifth_of_its_width_it_is_found_by_samples() -> None:
    family = ReportFamily(shipped("hybrid-gaussian"))
    assert family.claim.delta > 0
    assert found_of(family, FastNoise(), samples=6_000).problem is None
    found = found_of(family, FastNoise(width=0.2), samples=6_000)
    assert found.problem is not None
    assert found.problem.startswith("samples show an epsilon of at least ")


@pytest.mark.parametrize("kind", [MeanFamily, ReportFamily])
def test_a_hat_with_the_delta_of_the_whole_day_is_found(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is the audit's own: a delta that the release computes too large is not promised with it."""
    monkeypatch.setattr(_interface, "delta_per_hat", lambda policy: policy.delta)
    found = found_of(kind(shipped("hybrid-gaussian")), FastNoise(), pairs=1)
    assert found.problem == "requests of noise have a larger delta than is claimed"


def test_a_running_sum_with_the_delta_of_all_cells_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_of(RunningSumFamily(shipped("running-gaussian")), FastNoise(), pairs=1).problem is None
    monkeypatch.setattr(continual, "part_of_delta", lambda delta, cells: delta)
    found = found_of(RunningSumFamily(shipped("running-gaussian")), FastNoise(), pairs=1)
    assert found.problem == "requests of noise have a larger delta than is claimed"


# Clusterings


@pytest.mark.parametrize("device", [False, True])
def test_neighbours_use_the_epsilon_of_a_clustering_up_and_no_more(*, device: bool) -> None:
    found = search(ClusteringFamily(shipped("baseline"), device=device), 150, SeededNumbers(3), FastNoise())
    assert found.leak is None
    assert 0.9 < found.share <= 1 + 1e-9


def test_policies_without_a_proof_for_clusterings_have_none() -> None:
    assert clusterings_of(shipped("add-remove")) == []
    assert clusterings_of(shipped("running-tree")) == []


def test_a_clustering_with_the_papers_sensitivity_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ClusteringSetting, "central_distance", property(lambda self: self.top * self.dimensions + self.unit)
    )
    found = found_of(ClusteringFamily(shipped("baseline"), device=False), FastNoise(), pairs=60)
    assert found.problem is not None
    assert found.problem.startswith("requests of noise lose 1.")


def test_devices_that_answer_with_the_true_cluster_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "randomised_cluster", lambda true, setting, noise: true)
    found = found_of(ClusteringFamily(shipped("baseline"), device=True), FastNoise())
    assert found.problem == "what is published differs although all noisy numbers are the same"


def test_devices_that_pay_for_rounds_and_not_for_the_vector_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusteringSetting, "local_epsilon", property(lambda self: self.epsilon / self.iterations))
    found = found_of(ClusteringFamily(shipped("baseline"), device=True), FastNoise(), pairs=60)
    assert found.problem is not None
    assert found.problem.startswith("requests of noise lose 1.")


# Private lists


def test_a_policy_with_a_private_list_has_its_parts() -> None:
    assert [part.name for part in parts_of(shipped("private-list"))][:1] == ["private list, exact"]
    assert [part.name for part in parts_of(shipped("private-list"))][-1] == "private list"


def test_one_user_day_uses_the_cost_of_a_list_up_and_one_that_counts_in_k_plus_1_pairs_is_found() -> None:
    policy = shipped("private-list")
    assert search(ListFamily(policy), 20, SeededNumbers(3), FastNoise()).share == pytest.approx(1)
    found = found_of(ListFamily(policy, policy.max_hats_per_day + 1), FastNoise())
    assert found.problem is not None
    assert found.problem.startswith("requests of noise lose 1.33")


@pytest.mark.parametrize("cap", [1, 2, 3, 4])
def test_no_list_is_more_probable_with_a_user_day_than_epsilon_allows_and_one_is_just_so(cap: int) -> None:
    loss, pairs = losses_of_lists(cap, 0.7, select_from)
    assert loss == pytest.approx(0.7, rel=1e-12)
    assert pairs > 300


def for_one_pair(counts: Any, candidates: Any, cap: int, above: Any, epsilon: float, noise: Noise) -> CellSelection:
    """Noise for a distance of 1, as if a user-day were in one pair."""
    del cap
    return select_from(counts, candidates, 1, above, epsilon, noise)


def before_noise(counts: Any, candidates: Any, cap: int, above: Any, epsilon: float, noise: Noise) -> CellSelection:
    """Cells without a user are left out before the noise."""
    busy = [cell for cell, row in zip(candidates, counts, strict=True) if row.any()]
    rows = counts[[candidates.index(cell) for cell in busy]]
    return select_from(rows, busy, cap, above, epsilon, noise)


@pytest.mark.parametrize("mutant", [for_one_pair, before_noise])
def test_a_list_with_noise_for_one_pair_or_of_cells_with_users_alone_is_found(
    mutant: Callable[..., CellSelection],
) -> None:
    policy = shipped("private-list")
    assert policy.selection_cost is not None
    assert audit_lists(policy, policy.selection_cost, select_from).problem is None
    assert audit_lists(policy, policy.selection_cost, mutant).problem is not None
