"""What `relation = "add_remove"` asks of a policy: each promise that could not be kept is refused at the start (I7)."""

import copy
import json
from typing import Any

import pytest

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS, Parameters
from hatcast.stream.policy.policy import MeansKeys, Policy, Relation, read_policy

CELLS = ["87608b0d2ffffff", "87608b0d3ffffff"]
TABLE: dict[str, Any] = {
    "name": "hidden",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "cells": "public.txt",
    "privacy": {"relation": "add_remove", "epsilon": 1.0, "max_hats_per_day": 8, "daily_limit": 8.0},
    "estimator": {"name": "capped_ratio", "array_length": 40},
}


def policy(**changes: Any) -> Policy:
    """The table with changes by dotted key, `privacy__epsilon=2.0`; None removes."""
    table = copy.deepcopy(TABLE)
    for key, value in changes.items():
        *outer, last = key.split("__")
        inner = table[outer[0]] if outer else table
        inner[last] = value
        if value is None:
            del inner[last]
    return read_policy(table, ESTIMATOR_KEYS, lambda name: "\n".join([f'source = "{name[:-4]}"', *CELLS]))


def test_a_policy_under_add_remove_is_read_with_the_default_threshold() -> None:
    found = policy()
    assert (found.relation, found.method) == (Relation.ADD_REMOVE, MeansKeys(array_length=40, weight_threshold=800.0))
    assert json.loads(found.canonical)["estimator"] == {
        "name": "capped_ratio",
        "array_length": 40,
        "weight_threshold": 800,
    }
    assert Parameters.of(found).weight_threshold == 800.0


REFUSED = [
    ("cells", None, "policy.cells", "which cells have data is private"),
    ("cells", "survey.txt", "policy.cells", "must be public and listed under add_remove"),
    ("cells", "survey.txt", "policy.cells", 'source = "public"'),
    (
        "privacy__min_users",
        10,
        "policy.privacy.min_users",
        "remove it: policy.estimator.weight_threshold decides on suppression",
    ),
    ("privacy__min_users", 1, "policy.privacy.min_users", "which add_remove hides"),
    (
        "privacy__daily_limit",
        7.999,
        "policy.privacy.daily_limit",
        "a whole day can cost a user under add_remove: 8 HATs",
    ),
    (
        "privacy__epsilon",
        1.001,
        "policy.privacy.daily_limit",
        "lower epsilon or max_hats_per_day, or raise daily_limit",
    ),
    ("privacy__relation", "replace", "policy.privacy.relation", "capped_ratio is not proved for 'replace'; use one of"),
    ("estimator__name", "weighted_mean", "policy.privacy.relation", "weighted_mean is not proved for 'add_remove'"),
    ("estimator__name", "levy", "policy.privacy.relation", "not proved for 'add_remove'; use one of capped_ratio"),
    ("estimator__array_length", None, "policy.estimator.array_length", "is missing"),
    ("estimator__array_length", "median", "policy.estimator.array_length", "depends on counts, which are private here"),
    ("estimator__array_length", 0, "policy.estimator.array_length", "is not a valid length"),
    ("estimator__array_length", 4.5, "policy.estimator.array_length", "4.5 is a number, not text or an integer"),
    ("estimator__grouping", "bestfit", "policy.estimator.grouping", "is not used by capped_ratio; remove it"),
    ("estimator__weight_threshold", 0, "policy.estimator.weight_threshold", "use a number above 0, or leave it out"),
    ("estimator__weight_threshold", -1.0, "policy.estimator.weight_threshold", "is not a number of readings"),
    ("estimator__weight_threshold", float("nan"), "policy.estimator.weight_threshold", "is not a number of readings"),
    ("estimator__weight_threshold", float("inf"), "policy.estimator.weight_threshold", "is not a number of readings"),
    ("estimator__weight_threshold", "few", "policy.estimator.weight_threshold", "write weight_threshold = 10.0"),
]


@pytest.mark.parametrize(
    ("key", "value", "named", "words"), REFUSED, ids=[f"{key}={value}" for key, value, *_ in REFUSED]
)
def test_a_refusal_names_the_key_and_the_mend_in_one_line(key: str, value: object, named: str, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        policy(**{key: value})
    line = str(refused.value)
    assert line.startswith(f"{named}: ")
    assert words in line
    assert "\n" not in line


def test_a_weight_threshold_is_only_for_a_ratio() -> None:
    table = {"name": "weighted_mean", "weight_threshold": 20.0}
    with pytest.raises(
        SettingError, match=r"^policy\.estimator\.weight_threshold: is not used by weighted_mean; remove"
    ):
        policy(privacy__relation="replace", estimator=table)


def test_an_array_length_that_needs_more_than_64_bits_is_refused_before_any_hour_closes() -> None:
    found = policy(estimator__array_length=10**9, grid=1e-6)
    with pytest.raises(SettingError, match=r"policy\.estimator\.array_length: needs noise too wide"):
        Parameters.of(found)


@pytest.mark.parametrize(
    ("changes", "hats"),
    [
        ({"privacy__max_hats_per_day": 8}, 8),
        ({"privacy__max_hats_per_day": 60_000}, 2 * 12),
        ({"privacy__max_hats_per_day": 60_000, "hours": [9, 10]}, 2),
        ({"privacy__max_hats_per_day": 60_000, "hours": [0, 24], "slot_length": "15m"}, 2 * 96),
        # Slots of three hours start at 9, 12, .. : those that start in [10, 21) are 12, 15 and 18.
        ({"privacy__max_hats_per_day": 60_000, "hours": [10, 21], "slot_length": "3h"}, 2 * 3),
    ],
)
def test_a_whole_day_costs_epsilon_for_each_listed_hat_and_no_more_than_k_of_them(
    changes: dict[str, Any], hats: int
) -> None:
    """A user enters K HATs at most, of the listed ones."""
    policy(**changes, privacy__daily_limit=float(hats))
    with pytest.raises(SettingError, match=f"under add_remove: {hats} HATs"):
        policy(**changes, privacy__daily_limit=hats - 1e-6)


def test_the_number_of_users_decides_nothing() -> None:
    """The default of `min_users` does not bind, and is no part of what is promised."""
    found = policy()
    assert found.min_users == 0
    assert "min_users" not in json.loads(found.canonical)["privacy"]


@pytest.mark.parametrize(("key", "value"), [("estimator__array_length", 41), ("estimator__weight_threshold", 801.0)])
def test_what_changes_the_promise_changes_the_policy_id(key: str, value: object) -> None:
    assert policy(**{key: value}).policy_id != policy().policy_id


def test_a_threshold_that_is_the_default_is_the_same_policy() -> None:
    assert policy(estimator__weight_threshold=800).policy_id == policy().policy_id
