"""The papers' trends, in simulation: 10^4 runs, a gap below 3 standard errors is a tie.    [estimators.md, section 8]

Seeded, so that it never cries wolf.
"""

import math
from typing import Literal

import numpy as np
import pytest

from hatcast.lab.evaluate.comparison import Errors, MeanError, compare
from hatcast.lab.evaluate.contenders import parse_contender
from hatcast.lab.evaluate.inputs import SampledHat, scale
from hatcast.lab.evaluate.simulation import Readings, iid
from tests.support import ITMS_LIKE, UPPER_BOUND

AVERAGING = ("array_averaging", "array_averaging:sensitivity")
QUANTILE_FIXED = "quantile"
RANKED = ("baseline", *AVERAGING, "levy", QUANTILE_FIXED, "quantile:epsilon_dependent")
EPSILONS = (0.5, 1.0, 1.5, 2.0)
TIE = 3


def errors_at(scaling: tuple[Literal["samples", "users"], int] | None) -> Errors:
    counts = scale(np.array(ITMS_LIKE, np.int64), scaling)
    hat = SampledHat(counts, iid(counts, Readings()), UPPER_BOUND)
    return compare(hat, [parse_contender(name) for name in RANKED], EPSILONS, 10_000, seed=1)


def is_no_worse(one: MeanError, other: MeanError) -> bool:
    return one.mae - other.mae < TIE * math.hypot(one.standard_error, other.standard_error)


def is_better(one: MeanError, other: MeanError) -> bool:
    return other.mae - one.mae >= TIE * math.hypot(one.standard_error, other.standard_error)


@pytest.fixture(scope="module")
def unscaled() -> Errors:
    return errors_at(None)


@pytest.fixture(scope="module")
def more_samples() -> Errors:
    return errors_at(("samples", 10))


@pytest.fixture(scope="module")
def more_users() -> Errors:
    return errors_at(("users", 10))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_baseline_is_the_worst_everywhere(
    unscaled: Errors, more_samples: Errors, more_users: Errors, epsilon: float
) -> None:
    for errors in (unscaled, more_samples, more_users):
        for name in RANKED[1:]:
            assert is_better(errors[name][epsilon], errors["baseline"][epsilon]), name


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_with_ten_times_the_samples_levy_is_the_best(more_samples: Errors, epsilon: float) -> None:
    for name in RANKED:
        if name != "levy":
            assert is_better(more_samples["levy"][epsilon], more_samples[name][epsilon]), name


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_with_ten_times_the_users_fixed_quantiles_are_the_best_and_array_averaging_second(
    more_users: Errors, epsilon: float
) -> None:
    for name in RANKED:
        if name != QUANTILE_FIXED:
            assert is_better(more_users[QUANTILE_FIXED][epsilon], more_users[name][epsilon]), name
            for second in AVERAGING:
                assert is_no_worse(more_users[second][epsilon], more_users[name][epsilon]), (second, name)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_error_of_baseline_is_what_theory_says(unscaled: Errors, epsilon: float) -> None:
    exact = 65 * 417 / 17166 / epsilon
    error = unscaled["baseline"][epsilon]
    assert exact == pytest.approx(1.5790 / epsilon, abs=1e-4)
    assert abs(error.mae - exact) < 5 * error.standard_error
    assert error.standard_error == pytest.approx(exact / 100, rel=0.1), "that of |Laplace| over 10^4 runs"
