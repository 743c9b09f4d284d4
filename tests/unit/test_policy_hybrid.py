"""What a policy may say of devices that do not trust the operator."""

import re
from typing import Any

import pytest

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HYBRID_KEYS, HybridParameters, Spread, charge
from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.policy.policy import HybridKeys, NoiseKind, Policy, read_policy
from hatcast.stream.units import NANO

KEYS = {**ESTIMATOR_KEYS, **HYBRID_KEYS}
PRIVACY = {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0}
SPREADS: dict[Needs, dict[str, Any]] = {
    Needs.NOTHING: {},
    Needs.SIGMA: {"sigma": 12.0},
    Needs.BOTH_GROUPS: {"sigma": 12.0, "sigma_local": 8.0, "mean_gap": -1.5},
}


def policy_of(estimator: dict[str, Any], **privacy: Any) -> Policy:
    table = {
        "name": "hybrid",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "privacy": PRIVACY | privacy,
        "estimator": estimator,
    }
    return read_policy(table, KEYS, lambda _: "")


def written(name: str) -> dict[str, Any]:
    return {"name": name} | SPREADS[HYBRID_ESTIMATORS[name].needs]


def test_no_two_estimators_have_one_name() -> None:
    assert not ESTIMATOR_KEYS.keys() & HYBRID_KEYS.keys()


@pytest.mark.parametrize("name", HYBRID_ESTIMATORS)
def test_every_hybrid_estimator_can_be_chosen_and_is_charged_what_either_group_pays_at_most(name: str) -> None:
    policy = policy_of(written(name))
    parameters = HybridParameters.of(policy)
    assert isinstance(policy.method, HybridKeys)
    assert policy.takes_reports is (name != "tcm_only")
    central = charge(HYBRID_ESTIMATORS[name], parameters)
    assert policy.epsilon_nano == NANO * max(central, parameters.local_epsilon if policy.takes_reports else 0.0)


def test_the_group_that_pays_more_is_what_is_charged() -> None:
    assert policy_of({"name": "pwh"}, local_epsilon=2.5).epsilon_nano == 2_500_000_000
    assert policy_of({"name": "pwh"}, local_epsilon=0.5).epsilon_nano == NANO


def test_what_is_unwritten_of_local_users_is_as_of_central_ones() -> None:
    spread = HybridParameters.of(policy_of({"name": "kvh_heterogeneous", "sigma": 12.0})).spread
    assert spread == Spread(12_000, 12_000)
    assert HybridParameters.of(policy_of(written("kvh_heterogeneous"))).spread == Spread(12_000, 8_000, -1_500)


def test_a_policy_without_devices_has_the_id_that_it_always_had() -> None:
    """Keys of hybrid estimators are hashed only where they are used."""
    canonical = policy_of({"name": "baseline"}).canonical.decode()
    assert not re.search("local_epsilon|max_coalition|sigma|noise|mean_gap", canonical)


def test_every_key_that_is_used_is_part_of_the_policy_id() -> None:
    gaussian = {"name": "kvh_heterogeneous", "noise": "gaussian", "sigma": 12.0, "sigma_local": 8.0, "mean_gap": 1.0}
    found = {policy_of(gaussian, local_epsilon=2.0, max_coalition=3).policy_id}
    for key, value in {"noise": "laplace", "sigma": 11.0, "sigma_local": 9.0, "mean_gap": 2.0}.items():
        coalition = {} if value == "laplace" else {"max_coalition": 3}
        found.add(policy_of(gaussian | {key: value}, local_epsilon=2.0, **coalition).policy_id)
    found.add(policy_of(gaussian, local_epsilon=2.5, max_coalition=3).policy_id)
    found.add(policy_of(gaussian, local_epsilon=2.0, max_coalition=4).policy_id)
    assert len(found) == 7


def test_gaussian_noise_is_chosen_by_name() -> None:
    for name, kind in (("laplace", NoiseKind.LAPLACE), ("gaussian", NoiseKind.GAUSSIAN)):
        hybrid = policy_of({"name": "pwh", "noise": name}).keys_of(HybridKeys)
        assert hybrid is not None
        assert hybrid.noise is kind


def test_together_is_the_default_and_no_part_of_the_policy_id_and_separate_is() -> None:
    ids = [policy_of(written("kvh") | groups).policy_id for groups in ({}, {"groups": "together"})]
    separate = policy_of(written("kvh") | {"groups": "separate"})
    assert ids[0] == ids[1] != separate.policy_id
    assert HybridParameters.of(separate).group_min_users == separate.min_users
    assert HybridParameters.of(policy_of(written("kvh"))).group_min_users is None


@pytest.mark.parametrize("name", HYBRID_ESTIMATORS)
def test_separate_groups_are_for_every_estimator_that_reads_both(name: str) -> None:
    estimator = HYBRID_ESTIMATORS[name]
    given = written(name) | {"groups": "separate"}
    if estimator.all_local or estimator.fixed_weight is None:
        plain, separate = policy_of(written(name)), policy_of(given)
        assert separate.epsilon_nano == plain.epsilon_nano
        return
    with pytest.raises(SettingError, match=rf"estimator\.groups: is not used by {name}, which reads only one group"):
        policy_of(given)


@pytest.mark.parametrize(
    ("estimator", "privacy", "said"),
    [
        ({"name": "pwh", "groups": "apart"}, {}, "policy.estimator.groups: 'apart' is unknown; use together or separ"),
        ({"name": "levy", "groups": "separate"}, {}, "policy.estimator.groups: is not used by levy"),
        ({"name": "kvh"}, {}, "policy.estimator.sigma: is missing"),
        ({"name": "pwh", "sigma": 1.0}, {}, "policy.estimator.sigma: is not used by pwh"),
        ({"name": "kvh", "sigma": 1.0, "mean_gap": 1.0}, {}, "policy.estimator.mean_gap: is not used by kvh"),
        ({"name": "kvh", "sigma": float("nan")}, {}, "policy.estimator.sigma: nan is too large"),
        ({"name": "pwh", "noise": "gauss"}, {}, "policy.estimator.noise: 'gauss' is not a noise distribution"),
        ({"name": "levy", "noise": "laplace"}, {}, "policy.estimator.noise: is not used by levy"),
        ({"name": "levy"}, {"local_epsilon": 1.0}, "policy.privacy.local_epsilon: is not used by levy"),
        ({"name": "tcm_only"}, {"local_epsilon": 2.0}, "policy.privacy.local_epsilon: is not used by tcm_only"),
        (
            {"name": "lm_only"},
            {"local_epsilon": 2.0},
            "policy.privacy.local_epsilon: differs from policy.privacy.epsilon, and lm_only has",
        ),
        (
            {"name": "full_lm"},
            {"local_epsilon": 2.0},
            "policy.privacy.local_epsilon: differs from policy.privacy.epsilon, and full_lm has",
        ),
        ({"name": "pwh"}, {"local_epsilon": 0.0}, "policy.privacy.local_epsilon: 0 is not above 0"),
        ({"name": "pwh"}, {"local_epsilon": 11.0}, "policy.privacy.local_epsilon: 11 gives hardly any privacy"),
        ({"name": "pwh"}, {"local_epsilon": 9.0, "daily_limit": 8.0}, "local_epsilon: 9 is above daily_limit 8"),
        ({"name": "pwh"}, {"max_coalition": 3}, "policy.privacy.max_coalition: is for amplification"),
        ({"name": "pwh", "noise": "gaussian"}, {"max_coalition": -1}, "max_coalition: is not a number of devices"),
        ({"name": "pwh"}, {"unit": "user", "total_limit": 1e3}, "policy.privacy.unit: 'user' cannot be guaranteed"),
        ({"name": "pwh"}, {"relation": "add_remove"}, "policy.privacy.relation: pwh is not proved for 'add_remove'"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_key(
    estimator: dict[str, Any], privacy: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        policy_of(estimator, **privacy)


def test_queries_over_days_are_refused_since_they_would_read_central_users_only() -> None:
    query = {"name": "speed", "kind": "mean_speed", "days": 1, "epsilon": 0.1, "min_n": 5}
    table = {
        "name": "hybrid",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "privacy": PRIVACY,
        "estimator": {"name": "pwh"},
        "query": [query],
    }
    with pytest.raises(SettingError, match=r"policy\.query: reads only central users"):
        read_policy(table, KEYS, lambda _: "")
