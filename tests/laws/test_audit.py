"""The audit: what holds is never called violated, and mutants of noise, sensitivity, cap and selection are found.
The audit of trees, Gaussian noise, clusterings and private lists: what holds is not reported, mutants are found.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hatcast.agents.config.settings import load_settings
from hatcast.lab.audit.days import DayFamily, RunningSumFamily
from hatcast.lab.audit.devices import ClusteringFamily, ReportFamily, clusterings_of
from hatcast.lab.audit.events import EventCounts, epsilon_lower_bound, lower_bound
from hatcast.lab.audit.family import AuditFinding, Effort, audit_family
from hatcast.lab.audit.hats import Family, MeanFamily, RandomNumbers
from hatcast.lab.audit.laws import audit_lists, audit_selection, losses_of_lists
from hatcast.lab.audit.lists import ListFamily
from hatcast.lab.audit.run import FALSE_ALARM, families_of, parts_of
from hatcast.lab.audit.search import search
from hatcast.lab.audit.tracker import TrackerFamily
from hatcast.lab.cli.audit import SAMPLES
from hatcast.lab.survey.run import CellSelection, select_from
from hatcast.stream.continual import trees as prefixes
from hatcast.stream.continual._digits import Digits
from hatcast.stream.estimators import ESTIMATORS, array_averaging
from hatcast.stream.estimators.grouping import Arrays, wraparound
from hatcast.stream.estimators.grouping import Counts as Places
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import columns
from hatcast.stream.hybrid import _interface
from hatcast.stream.kmeans import groups
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import MeansKeys, Policy, TrackerKeys
from hatcast.stream.release import continual
from hatcast.stream.release.hats import Hat, Release, releases_of
from tests.auditing import SHIPPED, FastNoise, shipped

ERROR = FALSE_ALARM / 50  # of a run over 50 parts
ALL = [(path, at) for path in SHIPPED for at in range(len(families_of(load_settings(path).policy)))]
every_part = pytest.mark.parametrize(("path", "at"), ALL, ids=[f"{path.stem}-{at}" for path, at in ALL])


def found_of(family: Family, noise: Noise, samples: int = 100, pairs: int = 40) -> AuditFinding:
    return audit_family(family, Effort(samples, pairs, ERROR), RandomNumbers(5), noise)


# Bounds


@given(st.integers(1, 200), st.data(), st.sampled_from([1e-9, 1e-3, 0.05]))
def test_bounds_of_a_probability_are_those_of_the_binomial_distribution(
    trials: int, data: st.DataObject, error: float
) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = lower_bound(successes, trials, error), 1 - lower_bound(trials - successes, trials, error)
    assert 0 <= low <= successes / trials <= high <= 1
    if successes:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(error, rel=1e-6)
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(error, rel=1e-5)


def test_a_bound_needs_both_sides_and_delta_lowers_it() -> None:
    assert epsilon_lower_bound(EventCounts(1000, 1000, 0, 0), 0.0, 1e-6) == 0
    assert epsilon_lower_bound(EventCounts(1000, 1000, 0, 9), 0.0, 1e-6) == 0
    few, many = EventCounts(1000, 1000, 500, 100), EventCounts(100_000, 100_000, 50_000, 10_000)
    assert 0 < epsilon_lower_bound(few, 0.0, 1e-6) < epsilon_lower_bound(many, 0.0, 1e-6) < 1.6095  # ln 5
    assert epsilon_lower_bound(many, 0.1, 1e-6) < epsilon_lower_bound(many, 1e-9, 1e-6) < 1.6095


# What holds


@every_part
def test_no_neighbours_of_a_shipped_policy_ask_for_less_noise_than_the_claim_needs(path: Path, at: int) -> None:
    family = families_of(load_settings(path).policy)[at]
    pairs = 24 if family.sample_divisor else 1 if family.is_alone else 5  # and at least those of the proofs
    found = search(family, pairs, RandomNumbers(3), FastNoise())
    assert found.leak is None, found.neighbours.name
    assert found.share <= 1 + 1e-9, found.neighbours.name


@pytest.mark.parametrize("name", ["baseline", "array-wraparound", "weighted-mean", "clipped-sum", "add-remove"])
def test_the_search_reaches_the_claim_where_the_proof_says_that_it_is_reached(name: str) -> None:
    assert search(MeanFamily(shipped(name)), 10, RandomNumbers(3), FastNoise()).share > 0.999


def test_noise_as_it_is_claimed_is_not_reported_and_its_bound_is_near_the_claim() -> None:
    found = found_of(ReportFamily(shipped("hybrid")), FastNoise(), samples=SAMPLES)
    assert found.problem is None
    assert found.bound is not None
    assert 0.7 < found.bound < 1


# Mutants, at the default number of samples


def test_noise_of_three_quarters_of_its_width_is_found_by_samples() -> None:
    found = found_of(ReportFamily(shipped("hybrid")), FastNoise(width=0.75), samples=SAMPLES)
    assert found.problem is not None
    assert found.problem.startswith("samples show an epsilon of at least 1.")


def test_a_mean_with_narrow_noise_is_found_by_fewer_samples() -> None:
    found = found_of(MeanFamily(shipped("baseline")), FastNoise(width=0.6), samples=SAMPLES // 4)
    assert found.problem is not None
    assert found.problem.startswith("samples show an epsilon of at least 1.")


def test_noise_of_even_numbers_only_is_found_by_its_residues() -> None:
    found = found_of(ReportFamily(shipped("hybrid")), FastNoise(step=2), samples=6_000)
    assert found.problem is not None
    assert found.problem.startswith("the noise does not fit")


def mutant_release(noise_of: Any) -> Any:
    def release(policy: Policy, calendar: Calendar, hats: Sequence[Hat], noise: Noise) -> list[Release]:
        return releases_of(policy, calendar, hats, noise_of(noise))

    return release


class Sure:
    """Noise that is asked for a smaller distance."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def laplace(self, value: int, distance: int, epsilon: float) -> Any:
        return self._noise.laplace(value, int(distance / 1.375), epsilon)

    def laplace_many(self, values: Any, distance: int, epsilon: float) -> Any:
        return self._noise.laplace_many(values, int(distance / 1.375), epsilon)


@pytest.mark.parametrize("name", ["baseline", "array-wraparound", "weighted-mean", "add-remove", "values"])
def test_a_sensitivity_divided_by_1_375_is_found_by_its_requests(name: str) -> None:
    found = found_of(MeanFamily(shipped(name), mutant_release(Sure)), FastNoise())
    assert found.problem is not None
    assert found.problem.startswith(("requests of noise lose 1.3", "requests of noise lose 1.4"))


@pytest.mark.parametrize("name", ["baseline", "hybrid"])
def test_a_fold_that_lets_in_one_hat_more_is_found(name: str) -> None:
    policy = shipped(name)
    more = replace(policy, max_hats_per_day=policy.max_hats_per_day + 1)
    assert found_of(DayFamily(policy), FastNoise(), pairs=8).problem is None
    found = found_of(DayFamily(policy, more), FastNoise(), pairs=8)
    assert found.problem is not None
    assert found.problem.startswith("requests of noise lose 5.99")


def test_a_field_that_depends_on_data_is_found() -> None:
    def release(policy: Policy, calendar: Calendar, hats: Sequence[Hat], noise: Noise) -> list[Release]:
        made = releases_of(policy, calendar, hats, noise)[0]
        return [replace(made, counts={"fastest": int(columns(hats[0][2].readings[0])[2].max())})]

    found = found_of(MeanFamily(shipped("baseline"), release), FastNoise())
    assert found.problem == "what is published differs although all noisy numbers are the same"


def test_a_scale_that_depends_on_data_is_found() -> None:
    class Smooth(Sure):
        def laplace_many(self, values: Any, distance: int, epsilon: float) -> Any:
            return self._noise.laplace_many(values, distance + int(values[0]) // 1000, epsilon)

    found = found_of(MeanFamily(shipped("baseline"), mutant_release(Smooth)), FastNoise())
    assert found.problem == "a request of noise has another distance, epsilon or number of values"


def one_array_a_user(counts: Places, array_length: int) -> Arrays:
    """WRAPAROUND with the papers' constants, which are those of BESTFIT."""
    return replace(wraparound(counts, array_length), split=1)


def test_a_selection_with_the_papers_constants_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = shipped("levy")
    assert policy.keys_of(MeansKeys).grouping == "wraparound"
    monkeypatch.setattr(array_averaging, "GROUPINGS", {"wraparound": one_array_a_user})
    found = audit_selection(policy, ESTIMATORS["levy"].estimate)
    assert found.problem is not None
    assert "a selection loses" in found.problem


def test_a_trackers_day_with_a_timetable_loses_its_claim_and_no_more() -> None:
    policy = shipped("tracker")
    timed = replace(policy, method=replace(policy.keys_of(TrackerKeys), timetable="gtfs.zip"))
    found = search(TrackerFamily(timed), 20, RandomNumbers(1), FastNoise())
    assert found.leak is None
    assert 0.9 < found.share <= 1


ALONE = ["running-tree", "running-kary", "running-withhold-release"]


# Noise that is requested alone


def test_shifts_of_the_noise_of_a_tree_use_the_claim_up() -> None:
    family = DayFamily(shipped("running-tree"))
    assert family.is_alone
    found = search(family, 1, RandomNumbers(1), FastNoise())
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
    found = search(ClusteringFamily(shipped("baseline"), device=device), 150, RandomNumbers(3), FastNoise())
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
    assert search(ListFamily(policy), 20, RandomNumbers(3), FastNoise()).share == pytest.approx(1)
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
