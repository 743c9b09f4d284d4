"""The papers' trends, in simulation: 10^4 runs, a gap below 3 standard errors is a tie.    [estimators.md, section 8]

Seeded, so that it never cries wolf.
"""

import math
from functools import cache
from typing import Final, Literal

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
Scaling = tuple[Literal["samples", "users"], int] | None
UNSCALED: Final[Scaling] = None
MORE_SAMPLES: Final[Scaling] = "samples", 10
MORE_USERS: Final[Scaling] = "users", 10


@cache
def errors_at(scaling: Scaling) -> Errors:
    counts = scale(np.array(ITMS_LIKE, np.int64), scaling)
    hat = SampledHat(counts, iid(counts, Readings()), UPPER_BOUND)
    return compare(hat, [parse_contender(name) for name in RANKED], EPSILONS, 10_000, seed=1)


def is_no_worse(one: MeanError, other: MeanError) -> bool:
    return one.mae - other.mae < TIE * math.hypot(one.standard_error, other.standard_error)


def is_better(one: MeanError, other: MeanError) -> bool:
    return other.mae - one.mae >= TIE * math.hypot(one.standard_error, other.standard_error)


@pytest.mark.parametrize("scaling", [UNSCALED, MORE_SAMPLES, MORE_USERS], ids=["unscaled", "samples", "users"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_baseline_is_the_worst_everywhere(epsilon: float, scaling: Scaling) -> None:
    errors = errors_at(scaling)
    for name in RANKED[1:]:
        assert is_better(errors[name][epsilon], errors["baseline"][epsilon]), name


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_with_ten_times_the_samples_levy_is_the_best(epsilon: float) -> None:
    errors = errors_at(MORE_SAMPLES)
    for name in RANKED:
        if name != "levy":
            assert is_better(errors["levy"][epsilon], errors[name][epsilon]), name


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_with_ten_times_the_users_fixed_quantiles_are_the_best_and_array_averaging_second(epsilon: float) -> None:
    errors = errors_at(MORE_USERS)
    for name in RANKED:
        if name != QUANTILE_FIXED:
            assert is_better(errors[QUANTILE_FIXED][epsilon], errors[name][epsilon]), name
            for second in AVERAGING:
                assert is_no_worse(errors[second][epsilon], errors[name][epsilon]), (second, name)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_error_of_baseline_is_what_theory_says(epsilon: float) -> None:
    exact = 65 * 417 / 17166 / epsilon
    error = errors_at(UNSCALED)["baseline"][epsilon]
    assert exact == pytest.approx(1.5790 / epsilon, abs=1e-4)
    assert abs(error.mae - exact) < 5 * error.standard_error
    assert error.standard_error == pytest.approx(exact / 100, rel=0.1), "that of |Laplace| over 10^4 runs"
