"""The audit: what holds is never called violated, and mutants of noise, sensitivity, cap and selection are found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hatcast.agents.config.settings import load_settings
from hatcast.lab.audit.days import DayFamily
from hatcast.lab.audit.devices import ReportFamily
from hatcast.lab.audit.events import EventCounts, epsilon_lower_bound, lower_bound, upper_bound
from hatcast.lab.audit.family import AuditFinding, Effort, audit_family
from hatcast.lab.audit.hats import Family, MeanFamily, SeededNumbers
from hatcast.lab.audit.laws import audit_selection
from hatcast.lab.audit.run import FALSE_ALARM, families_of
from hatcast.lab.audit.search import search
from hatcast.lab.cli.audit import SAMPLES
from hatcast.stream.estimators import ESTIMATORS, array_averaging
from hatcast.stream.estimators.grouping import Arrays, wraparound
from hatcast.stream.estimators.grouping import Counts as Places
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.packing import columns
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import MeansKeys, Policy
from hatcast.stream.release.hats import Hat, Release, releases_of
from tests.auditing import SHIPPED, FastNoise, shipped

ERROR = FALSE_ALARM / 50  # of a run over 50 parts
ALL = [(path, at) for path in SHIPPED for at in range(len(families_of(load_settings(path).policy)))]
every_part = pytest.mark.parametrize(("path", "at"), ALL, ids=[f"{path.stem}-{at}" for path, at in ALL])


def found_of(family: Family, noise: Noise, samples: int = 100, pairs: int = 40) -> AuditFinding:
    return audit_family(family, Effort(samples, pairs, ERROR), SeededNumbers(5), noise)


# Bounds


@given(st.integers(1, 200), st.data(), st.sampled_from([1e-9, 1e-3, 0.05]))
def test_bounds_of_a_probability_are_those_of_the_binomial_distribution(
    trials: int, data: st.DataObject, error: float
) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = lower_bound(successes, trials, error), upper_bound(successes, trials, error)
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
    found = search(family, pairs, SeededNumbers(3), FastNoise())
    assert found.leak is None, found.neighbours.name
    assert found.share <= 1 + 1e-9, found.neighbours.name


@pytest.mark.parametrize("name", ["baseline", "array-wraparound", "weighted-mean", "clipped-sum", "add-remove"])
def test_the_search_reaches_the_claim_where_the_proof_says_that_it_is_reached(name: str) -> None:
    assert search(MeanFamily(shipped(name)), 10, SeededNumbers(3), FastNoise()).share > 0.999


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
