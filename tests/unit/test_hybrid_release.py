"""Releases of the hybrid model, number by number: one group alone, nobody, and what is refused."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import repeat

import numpy as np
import pytest

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import BadUsers
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HybridParameters, Spread, check, estimate
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from tests.support import UPPER_BOUND, Scripted, as_users

PLAIN = HybridParameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, 0.5, Spread(10_000, 10_000))
NOBODY = as_users([], [])
NO_REPORTS = np.array([], np.int64)
KVH, PWH, TCM_ONLY, LM_ONLY = (HYBRID_ESTIMATORS[name] for name in ("kvh", "pwh", "tcm_only", "lm_only"))


def test_a_hat_with_one_group_is_that_group_alone() -> None:
    three, alone = np.array([1, 2, 6], np.int64), as_users([2], [9])
    for blend in (KVH, PWH):
        only_local = estimate(blend, NOBODY, three, PLAIN, Scripted())
        only_central = estimate(blend, alone, NO_REPORTS, PLAIN, Scripted([100]))
        assert only_local == estimate(LM_ONLY, NOBODY, three, PLAIN, Scripted())
        assert only_central == estimate(TCM_ONLY, alone, NO_REPORTS, PLAIN, Scripted([100]))
        assert only_local is not None
        assert only_central is not None
        assert (only_local.weight_text, only_central.weight_text) == ("0.0", "1.0")


def test_a_hat_without_those_that_an_estimator_reads_is_suppressed_and_nothing_is_drawn() -> None:
    some, alone = np.array([1], np.int64), as_users([2], [9])
    for each in HYBRID_ESTIMATORS.values():
        if each.name != "kvh_heterogeneous":
            assert estimate(each, NOBODY, NO_REPORTS, PLAIN, Scripted()) is None
    assert estimate(TCM_ONLY, NOBODY, some, PLAIN, Scripted()) is None
    assert estimate(LM_ONLY, alone, NO_REPORTS, PLAIN, Scripted()) is None


def test_at_huge_epsilons_a_blend_is_near_the_mean_of_all_users() -> None:
    parameters = replace(PLAIN, epsilon=1e9, local_epsilon=1e9)
    found = estimate(KVH, as_users([2, 1], [2_000, 3_000]), np.array([8_000], np.int64), parameters, SystemNoise())
    assert found is not None
    assert found.raw == 4_000  # w is c there: sampling is all there is
    assert abs(found.weight - Fraction(2, 3)) < Fraction(1, 10**9)


def test_the_weight_is_told_with_six_digits() -> None:
    found = estimate(
        PWH, as_users([1] * 3, [0] * 3), np.array([0] * 5, np.int64), replace(PLAIN, epsilon=0.5), Scripted(repeat(0))
    )
    assert found is not None
    assert found.weight == Fraction(9, 14)
    assert found.weight_text == "0.642857"


# Refusals


def test_what_an_estimator_has_to_know_is_asked_for_at_the_start() -> None:
    unknown, differing = replace(PLAIN, spread=None), replace(PLAIN, spread=Spread(1_000, 2_000))
    for each in HYBRID_ESTIMATORS.values():
        if each.needs == "nothing":
            check(each, unknown)
        else:
            with pytest.raises(SettingError, match=r"policy\.estimator\.sigma: is missing"):
                estimate(each, NOBODY, NO_REPORTS, unknown, Scripted())
    check(HYBRID_ESTIMATORS["kvh_heterogeneous"], differing)
    with pytest.raises(SettingError, match="use kvh_heterogeneous"):
        check(KVH, differing)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"spread": Spread(UPPER_BOUND // 2 + 1, UPPER_BOUND // 2 + 1)}, "sigma"),
        ({"spread": Spread(0, -1)}, "sigma_local"),
        ({"spread": Spread(0, 0, UPPER_BOUND + 1)}, "mean_gap"),
        ({"local_epsilon": 0.0}, "local_epsilon"),
        ({"local_epsilon": float("inf")}, "local_epsilon"),
        ({"local_epsilon": 1e-12}, "local_epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-101}, "delta"),
        ({"delta": 1e-8, "epsilon": 1e-9}, "epsilon"),
        ({"delta": 1e-8, "local_epsilon": 1e-9}, "local_epsilon"),
    ],
)
def test_parameters_that_no_estimate_could_keep_are_refused(change: dict[str, object], key: str) -> None:
    with pytest.raises(SettingError) as refused:
        replace(PLAIN, **change)  # type: ignore[arg-type]  # one field of several types
    assert refused.value.key.endswith(key)


def test_reports_that_no_device_sends_are_refused_before_anything_is_drawn() -> None:
    most = 65_000 * 81  # U + 40 U / 0.5
    assert estimate(LM_ONLY, NOBODY, np.array([most, -most], np.int64), PLAIN, Scripted()) is not None
    for wrong in (np.array([most + 1]), np.array([-most - 1]), np.array([1.5]), np.array([[1]])):
        with pytest.raises(BadUsers):
            estimate(PWH, as_users([1], [1]), wrong, PLAIN, Scripted())
    with pytest.raises(BadUsers):
        estimate(PWH, as_users([1], [UPPER_BOUND + 1]), NO_REPORTS, PLAIN, Scripted())
