"""What docs/hybrid.md shows follows from the policy and the settings beside it."""

import json
import math
import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hatcast.agents.cli.report import significant
from hatcast.lab.evaluate.hybrid import DELTA, Case
from hatcast.lab.evaluate.lemmas import (
    GaussianNoise,
    amplified,
    error_of,
    full_lm,
    improvement,
    laplace_setting,
    tcm_only,
)
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HYBRID_KEYS, HybridParameters, estimate
from hatcast.stream.hybrid.release import BlendedEstimate, blend_fields, device_fields
from hatcast.stream.policy.policy import Policy, read_policy
from tests.laws.hybrid_oracle import known_variance
from tests.support import Scripted, as_users

TEXT = (Path(__file__).parents[2] / "docs" / "hybrid.md").read_text()
CENTRAL, LOCAL = 300, 200


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def policy_of(groups: str) -> Policy:
    """The policy of the page, as far as it is written."""
    (written,) = blocks("toml")
    table = tomllib.loads(written)["policy"]
    whole = {
        "name": "hybrid",
        "timezone": "UTC",
        "hours": [0, 24],
        "upper_bound": 65.0,
        "privacy": {**table["privacy"], "max_hats_per_day": 10, "daily_limit": 20.0},
        "estimator": {**table["estimator"], "groups": groups},
    }
    return read_policy(whole, HYBRID_KEYS, lambda _: "")


def fields(groups: str, central: int, local: int) -> dict[str, Any]:
    """The record of users whose noisy means are these, in milli-units."""
    policy = policy_of(groups)
    users = as_users([1] * CENTRAL, [central] * CENTRAL)
    reports = np.full(LOCAL, local, np.int64)
    blend = estimate(HYBRID_ESTIMATORS["kvh"], users, reports, HybridParameters.of(policy), Scripted([0]))
    assert blend is not None
    made, unit = BlendedEstimate(blend, CENTRAL, LOCAL), policy.released_value.unit
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(blend_fields(made, policy, unit)))
    return found | {
        "status": "released",
        "estimator": policy.estimator,
        "epsilon": policy.epsilon,
        **device_fields(policy),
    }


def differences(shown: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in shown.items():
        if isinstance(value, dict):
            found += [f"{name}.{each}" for each in differences(value, made[name])]
        elif name != "…" and value != made.get(name):
            found.append(f"{name}: {value}, not {made.get(name)}")
    return found


def test_the_records_follow_from_the_policy_on_the_page() -> None:
    separate, together = (json.loads(each) for each in blocks("json"))
    groups = {name: round(each["mean"] * 1000) for name, each in separate["groups"].items()}
    assert not differences(separate, fields("separate", groups["central"], groups["local"]))
    weight = Fraction(str(together["weight"]))
    central = 31_000
    local = round((Fraction(str(together["mean"])) * 1000 - weight * central) / (1 - weight))
    assert not differences(together, fields("together", central, local))


def rows(first: str) -> list[list[str]]:
    found = re.search(rf"^\| {re.escape(first)}.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found is not None, first
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]


def test_the_improvements_where_means_differ_are_those_of_the_lemmas() -> None:
    for gap, users, *shown in rows("gap | users"):
        case = Case(float(users.replace(",", "")), 0.05, 1.0, 0.144, 0.144, float(gap.removesuffix(" U"))).setting
        names = ("kvh", "kvh_heterogeneous", "pwh")
        found = [significant(float(improvement(error_of(HYBRID_ESTIMATORS[name], case), case))) for name in names]
        assert found == shown, (gap, users)


def test_the_amplified_epsilons_are_those_of_the_theorem() -> None:
    noise, kvh = GaussianNoise(1.0, 1.0, DELTA), HYBRID_ESTIMATORS["kvh"]
    for (_, *shown), part in zip(rows("coalition | c"), (0.0, 0.5, 0.9), strict=True):
        found = []
        for central in (10, 100, 1_000, 5_000):
            setting = noise.setting(central, 10_000 - central, 0.289**2)
            coalition = int(part * (10_000 - central))
            found.append(amplified(noise, setting, float(kvh.weight(setting)), coalition).epsilon)
        assert [f"{each:.3f}" for each in found] == shown


# Errata


def test_the_supremum_of_kvhs_improvement_is_17_8_and_16_7_is_far() -> None:
    """Over users, epsilon, sigma up to U/2, and 20,000 shares of each; the best is at the largest of all three."""
    shares: Any = np.geomspace(1e-4, 0.9, 20_000)  # the lemmas take arrays too
    lesser: Any = np.minimum
    best = []
    for users, epsilon, sigma in product((1e2, 1e3, 1e4, 1e6, 1e9), (0.1, 0.5, 0.9, 1.0), (0.05, 0.2, 0.4, 0.5)):
        these = shares[shares * users >= 1]
        setting = laplace_setting(users, these, 1.0, epsilon, sigma**2)
        found = lesser(tcm_only(setting), full_lm(setting)) / known_variance(setting)
        best.append((float(found.max()), users, epsilon, sigma))
    assert max(best)[1:] == (1e9, 1.0, 0.5)
    assert 17 / 8 - 1e-3 < max(best)[0] < 17 / 8


@pytest.mark.parametrize(
    ("share", "printed", "right"), [(0.001, 0.0022, 0.43), (0.01, 0.0005, 0.977), (0.1, 0.00008, 0.9995)]
)
def test_the_papers_figure_7_gains_next_to_nothing_with_the_right_sensitivity(
    share: float, printed: float, right: float
) -> None:
    """The salaries: n 252,540, sigma 53,254 of 2,349,033, epsilon 1, delta 1e-7, no coalition."""
    noise, users = GaussianNoise(1.0, 1.0, 1e-7), 252_540
    central = round(users * share)
    setting = noise.setting(central, users - central, (53_254 / 2_349_033) ** 2)
    weight = float(HYBRID_ESTIMATORS["kvh"].weight(setting))
    found = amplified(noise, setting, weight, 0)
    assert found.epsilon == pytest.approx(right, rel=0.01)
    too_small = (weight / central) if weight <= share else (1 - weight) / (users - central)
    papers = math.sqrt(2 * math.log(1.25 / 1e-7)) * too_small / found.deviation
    assert papers == pytest.approx(printed, rel=0.05)
    (row,) = (line for line in TEXT.splitlines() if line.startswith("| Figure 7"))
    assert f"{right:g}" in row
    assert f"{printed:.5f}".rstrip("0") in row
