"""`hatcast.Policy`: made from keyword arguments, with the checks and the errors of hatcast.toml."""

import copy
import pickle
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hatcast
from hatcast.agents.api import policy as keywords
from hatcast.agents.api.policy import plain_policy
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.policy import ContinualKeys
from tests.batching import CONFIG
from tools.configuration_reference import TABLES as BY_NAME

PRIVACY: keywords.PrivacyKeywords = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0, "min_users": 3}
TABLES: dict[Any, type[msgspec.Struct]] = {
    keywords.PolicyKeywords: BY_NAME["policy"],
    keywords.PrivacyKeywords: BY_NAME["policy.privacy"],
    keywords.EstimatorKeywords: BY_NAME["policy.estimator"],
    keywords.TrackerKeywords: BY_NAME["policy.tracker"],
    keywords.ContinualKeywords: BY_NAME["policy.continual"],
    keywords.QueryKeywords: BY_NAME["policy.query"],
    keywords.ValueKeywords: BY_NAME["policy.value"],
    keywords.RunningKeywords: BY_NAME["policy.running"],
}


def policy(**changes: Any) -> hatcast.Policy:
    given: dict[str, Any] = {
        "name": "test",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": (0, 24),
        "privacy": PRIVACY,
        "estimator": "baseline",
    }
    return hatcast.Policy(**(given | changes))


def test_a_policy_of_keywords_is_that_of_the_file_with_the_same_keys(tmp_path: Path) -> None:
    path = tmp_path / "hatcast.toml"
    path.write_text(CONFIG)
    loaded = hatcast.load_settings(path).policy
    assert plain_policy(policy()) == loaded
    assert plain_policy(hatcast.Policy.from_file(path)) == loaded
    assert hatcast.Policy.from_file(str(path)) == policy()


def test_the_repr_makes_an_equal_policy() -> None:
    made = policy(
        from_date=date(2022, 2, 1),
        replaces="old",
        query=[
            {"name": "fast", "kind": "mean_speed", "days": 7, "epsilon": 0.1, "min_n": 9, "from_date": "2022-02-01"}
        ],
    )
    assert eval(repr(made), {"Policy": hatcast.Policy}) == made
    assert repr(policy()) == (
        "Policy(name='test', upper_bound=65.0, timezone='UTC', hours=[0, 24], privacy={'epsilon': 1.0,"
        " 'max_hats_per_day': 40, 'daily_limit': 105.0, 'min_users': 3}, estimator='baseline')"
    )


def test_a_policy_can_be_copied_pickled_and_compared() -> None:
    made = policy()
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), policy(upper_bound=np.float64(65))):
        assert other == made
        assert hash(other) == hash(made)
    assert policy(upper_bound=60.0) != made
    assert repr(copy.copy(made)) == repr(made)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"privacy": {}}, "policy.privacy.epsilon: is missing; add it to [policy.privacy], such as epsilon = 1.0"),
        ({"epsilon": 1.0}, "policy.epsilon: is not a known key; write it in [policy.privacy]"),
        ({"timezone": None}, "policy.timezone: is missing; add it to [policy], such as timezone"),
        ({"hours": (9, 9.5)}, "policy.hours: 9.5 is a number, not a list of 2 integers"),
        ({"upper_bound": -1.0}, "policy.upper_bound: "),
        ({"estimator": "medain"}, "policy.estimator.name: "),
        ({"grid": object()}, "policy.grid: is of the type object; give text, a number, a list or a dictionary"),
        ({"privacy": PRIVACY | {"epsilon": 20.0}}, "policy.privacy.epsilon: "),
        ({"cells": Path("absent.txt")}, "policy.cells: absent.txt cannot be read"),
    ],
)
def test_a_wrong_keyword_gets_the_error_of_the_file(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as refused:
        policy(**changes)
    assert str(refused.value).startswith(line)


def test_a_policy_of_another_type_leads_to_the_types_that_are_one(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match=r"^policy: is a dict; use hatcast\.Policy"):
        hatcast.batch(tmp_path / "day.csv", {"name": "bus-speeds"})  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize("given", TABLES)
def test_the_keywords_are_the_keys_of_the_file(given: Any) -> None:
    fields = {field.name: field.required for field in msgspec.structs.fields(TABLES[given])}
    assert set(given.__annotations__) == set(fields)
    assert given.__required_keys__ <= set(fields)


def test_a_policy_of_running_sums_needs_no_estimator_and_its_repr_makes_an_equal_one() -> None:
    made = hatcast.Policy(
        name="week",
        upper_bound=65.0,
        timezone="UTC",
        privacy={"epsilon": 1.0},
        continual={"kind": "tree", "horizon_days": 7, "max_slots": 14, "max_cells": 20, "from_date": date(2022, 2, 1)},
    )
    assert isinstance(made.method, ContinualKeys)
    assert made.daily_limit == 20
    assert eval(repr(made), {"Policy": hatcast.Policy}) == made


def test_a_policy_with_a_days_limit_alone_is_a_tracker_and_its_name_comes_first() -> None:
    made = hatcast.Policy("test", upper_bound=65.0, timezone="UTC", privacy={"daily_limit": 5.0})
    written = hatcast.Policy(
        name="test", upper_bound=65.0, timezone="UTC", privacy={"daily_limit": 5.0}, estimator="tracker"
    )
    assert (made.policy_id, made.estimator) == (written.policy_id, "tracker")
    with pytest.raises(TypeError, match="one name"):
        hatcast.Policy("test", "another", upper_bound=65.0, timezone="UTC", privacy={"daily_limit": 5.0})
    with pytest.raises(SettingError, match="is missing"):
        hatcast.Policy("test", upper_bound=65.0, timezone="UTC", privacy={"daily_limit": 5.0, "epsilon": 1.0})
