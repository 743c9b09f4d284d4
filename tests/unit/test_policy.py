"""The policy: each error names its key and the fix; policy_id is the hash of the guarantees.

[docs/specification/release.md, Invariants, I7; docs/specification/release.md, Policies]
What a policy says of days: how long one user is one unit, and from which day on a policy follows another.
"""

import copy
import json
from typing import Any

import pytest

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS, Parameters
from hatcast.stream.policy.policy import MeansKeys, Policy, Relation, read_policy
from hatcast.stream.units import nano_ceil

CELL, OTHER_CELL, FINER_CELL = "87608b0d2ffffff", "87608b0d3ffffff", "88608b0d21fffff"
TABLE: dict[str, Any] = {
    "name": "surat-speed",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
    "estimator": {"name": "array_averaging"},
}
FILES = {
    "cells.txt": f'source = "public"\n{CELL}\n\n{OTHER_CELL}\n',
    "one.txt": f'source = "public"\n{CELL}\n',
    "survey.txt": f'source = "survey"\n{CELL}\n{OTHER_CELL}\n',
    "reordered.txt": f'source = "public"\n {OTHER_CELL} \n{CELL}',
    "sourceless.txt": f"{CELL}\n",
    "stranger.txt": f'source = "friends"\n{CELL}\n',
    "finer.txt": f'source = "public"\n{FINER_CELL}\n',
    "broken.txt": 'source = "public"\nhexagon\n',
    "empty.txt": "",
    "none.txt": 'source = "public"\n\n',
}


def policy(**changes: Any) -> Policy:
    """The table with changes by dotted key, `privacy__epsilon=2.0`; None removes."""
    table = copy.deepcopy(TABLE)
    for key, value in changes.items():
        *outer, last = key.split("__")
        inner = table[outer[0]] if outer else table
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    return read_policy(table, ESTIMATOR_KEYS, FILES.__getitem__)


REFUSED = [
    ("upper_bound", None, "add it"),
    ("timezone", None, "add it"),
    ("name", None, "add it"),
    ("privacy", None, "add the table [policy.privacy]"),
    ("estimator", None, "add the table [policy.estimator]"),
    ("privacy__epsilon", None, "add it"),
    ("privacy__max_hats_per_day", None, "add it"),
    ("privacy__daily_limit", None, "add it"),
    ("estimator__name", None, "add it"),
    ("uper_bound", 65.0, "did you mean upper_bound"),
    ("privacy__epsilom", 1.0, "did you mean epsilon"),
    ("estimator__colour", "red", "known keys are"),
    ("upper_bound", "fast", ""),
    ("upper_bound", 0.0, "above 0"),
    ("upper_bound", -1.0, "above 0"),
    ("upper_bound", float("nan"), "above 0"),
    ("upper_bound", float("inf"), "above 0"),
    ("upper_bound", 0.0001, "above 0"),
    ("reject_above", 64.9, "none"),
    ("reject_above", 1e7, "none"),
    ("reject_above", float("nan"), "none"),
    ("reject_above", "never", "none"),
    ("drop_zero", "yes", ""),
    ("timezone", "Asia/Surat", "Asia/Kolkata"),
    ("timezone", "", "Asia/Kolkata"),
    ("timezone", "../../etc/passwd", "Asia/Kolkata"),
    ("h3_resolution", 16, "0 to 15"),
    ("h3_resolution", -1, "0 to 15"),
    ("slot_length", "7m", "1h"),
    ("slot_length", "30s", "1h"),
    ("slot_length", "48h", "1h"),
    ("slot_length", "an hour", "5m"),
    ("hours", [21, 9], "[21, 24] here and [0, 9] in a policy of its own"),
    ("hours", [0, 25], "within 0 and 24"),
    ("lateness", "31d", "at most 30d"),
    ("lateness", "5", "integer with"),
    ("max_ahead", "2d", "at most 1d"),
    ("min_interval", "0s", "slot_length"),
    ("min_interval", "2h", "slot_length"),
    ("grid", 0.0, "0.001"),
    ("grid", 66.0, "0.001"),
    ("grid", float("inf"), "0.001"),
    ("grid", float("nan"), "0.001"),
    ("grid", 1e-7, "0.000001"),
    ("name", "", "ASCII"),
    ("name", "süd", "ASCII"),
    ("name", "a/b", "ASCII"),
    ("name", "{a}", "ASCII"),
    ("privacy__unit", "vehicle", "user_day"),
    ("privacy__total_limit", 1000.0, "remove it, or use unit"),
    ("privacy__relation", "swap", "replace"),
    ("privacy__relation", "add_remove", "use one of capped_ratio"),
    ("privacy__epsilon", 0.0, "above 0"),
    ("privacy__epsilon", float("inf"), "above 0"),
    ("privacy__epsilon", 10.5, "acknowledge_weak_privacy"),
    ("privacy__max_hats_per_day", 0, "1 to 65535"),
    ("privacy__max_hats_per_day", 65536, "1 to 65535"),
    ("privacy__daily_limit", 0.5, "raise daily_limit or lower epsilon"),
    ("privacy__daily_limit", float("inf"), "105.0"),
    ("privacy__daily_limit", float("nan"), "raise"),
    ("privacy__delta", 0.0, "1e-6"),
    ("privacy__delta", 1.0, "1e-6"),
    ("privacy__min_users", 0, "1 or more"),
    ("privacy__min_users", 10**20, "64 bits"),
    ("estimator__name", "average", "use one of"),
    ("estimator__grouping", "random", "use one of bestfit, wraparound"),
    ("estimator__array_length", "longest", "minimax_sqrt2, minimax_convex, worst_case or an int"),
    ("estimator__array_length", 0, "1 or more"),
    ("cells", "sourceless.txt", "first line"),
    ("cells", "stranger.txt", "first line"),
    ("cells", "empty.txt", "first line"),
    ("cells", "finer.txt", "correct or remove"),
    ("cells", "broken.txt", "correct or remove"),
    ("cells", "none.txt", "all"),
]


@pytest.mark.parametrize(("key", "value", "mend"), REFUSED, ids=[f"{key}={value}" for key, value, _ in REFUSED])
def test_a_refusal_names_its_key_and_the_mend_in_one_line(key: str, value: object, mend: str) -> None:
    with pytest.raises(SettingError) as refused:
        policy(**{key: value})
    line = str(refused.value)
    assert line.startswith("policy." + key.replace("__", "."))
    assert mend in line
    assert "\n" not in line


def test_a_key_that_the_estimator_does_not_use_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^policy\.estimator\.grouping: is not used by baseline; remove it"):
        policy(estimator={"name": "baseline", "grouping": "bestfit"})


@pytest.mark.parametrize("name", [n for n, keys in ESTIMATOR_KEYS.items() if Relation.REPLACE in keys.relations])
def test_a_policy_may_name_any_estimator_with_any_choice_of_its_keys(name: str) -> None:
    keys = ESTIMATOR_KEYS[name]
    assert keys.defaults.keys() <= keys.choices.keys()
    plain = policy(estimator={"name": name})
    grouping, array_length, quantiles = map(keys.defaults.get, ("grouping", "array_length", "quantiles"))
    assert plain.method == MeansKeys(grouping, array_length, quantiles)
    for key in keys.defaults:
        assert keys.defaults[key] in keys.choices[key]
        for value in keys.choices[key]:
            found = policy(estimator={"name": name, key: value})
            assert getattr(found.method, key) == value
            assert (found.policy_id == plain.policy_id) == (value == keys.defaults[key])


def test_defaults_of_estimators_are_those_of_the_design() -> None:
    assert {name: keys.defaults.get("array_length") for name, keys in ESTIMATOR_KEYS.items()} == {
        "baseline": None,
        "array_averaging": "median",
        "opt_array_averaging": "worst_case",
        "levy": "sensitivity",
        "quantile": "sensitivity",
        "clipped_sum": None,
        "weighted_mean": "median",
        "capped_ratio": None,
    }


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            {"name": "quantile", "quantiles": "tenths"},
            "'tenths' is unknown; use one of fixed, epsilon_dependent, smoothed",
        ),
        ({"name": "quantile", "gamma": 0.1}, "is not used by quantile; remove it"),
        ({"name": "levy", "quantiles": "fixed"}, "is not used by levy; remove it"),
        ({"name": "weighted_mean", "grouping": "bestfit"}, "is not used by weighted_mean; remove it"),
        ({"name": "opt_array_averaging", "array_length": "minimax_convex_printed"}, "is unknown"),
    ],
)
def test_what_an_estimator_does_not_know_is_refused(estimator: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        policy(estimator=estimator)


@pytest.mark.parametrize("gamma", [0, 1e-10, 1.0001, -0.2, float("nan"), float("inf")])
def test_a_gamma_of_which_no_width_follows_is_refused(gamma: float) -> None:
    with pytest.raises(SettingError, match=r"^policy\.estimator\.gamma: .* use 1e-09 to 1, such as 0\.2"):
        policy(estimator={"name": "levy", "gamma": gamma})


def test_gamma_is_a_part_of_the_promise_and_its_default_is_that_of_policies_before_it() -> None:
    plain = policy(estimator={"name": "levy"})
    assert "gamma" not in json.loads(plain.canonical)["estimator"]
    assert policy(estimator={"name": "levy", "gamma": 0.2}).policy_id == plain.policy_id
    other = policy(estimator={"name": "levy", "gamma": 0.05})
    assert other.policy_id != plain.policy_id
    assert (Parameters.of(plain).gamma, Parameters.of(other).gamma) == (None, 0.05)


def test_a_promise_made_before_there_were_more_estimators_keeps_its_policy_id() -> None:
    assert policy().policy_id == "b2:bec8a71d6120ea1bd420c4e0ecf263f8"
    assert policy(estimator={"name": "baseline"}).policy_id == "b2:79738a349ae932aa0d683bd59b747594"
    papers = policy(estimator={"name": "opt_array_averaging", "array_length": "minimax"})
    assert papers.policy_id == "b2:c703470dd0ab14e8306af6aa253b4716", "the default before it became worst_case"
    assert papers.policy_id != policy(estimator={"name": "opt_array_averaging"}).policy_id


def test_a_large_epsilon_is_accepted_if_it_is_meant() -> None:
    found = policy(privacy__epsilon=1e6, privacy__daily_limit=1e8, privacy__acknowledge_weak_privacy=True)
    assert found.epsilon_nano == 10**15


SAME = [
    ({"lateness": "300s"}, {"lateness": "5m"}),
    ({"lateness": "5m"}, {}),
    ({"slot_length": "60m"}, {"slot_length": "3600000ms"}),
    ({"name": "another"}, {}),
    ({"upper_bound": 65}, {"upper_bound": 65.0}),
    ({"reject_above": 150}, {}),
    ({"privacy__epsilon": 1}, {}),
    ({"cells": "cells.txt"}, {"cells": "reordered.txt"}),
    ({"estimator__grouping": "bestfit", "estimator__array_length": "median"}, {}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_write_one_promise_have_one_policy_id(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert policy(**one).policy_id == policy(**other).policy_id


OTHERS: dict[str, Any] = {
    "upper_bound": 66.0,
    "reject_above": "none",
    "drop_zero": False,
    "timezone": "UTC",
    "h3_resolution": 8,
    "slot_length": "30m",
    "hours": [8, 21],
    "lateness": "301s",
    "max_ahead": "1m",
    "min_interval": "10s",
    "cells": "cells.txt",
    "grid": 0.01,
    "privacy__epsilon": 0.5,
    "privacy__max_hats_per_day": 88,
    "privacy__daily_limit": 104.0,
    "privacy__delta": 1e-5,
    "privacy__min_users": 11,
    "privacy__acknowledge_weak_privacy": True,
    "estimator__name": "baseline",
    "estimator__grouping": "wraparound",
    "estimator__array_length": "sensitivity",
}


@pytest.mark.parametrize(("key", "value"), OTHERS.items(), ids=OTHERS.keys())
def test_changing_any_key_but_the_name_changes_the_policy_id(key: str, value: object) -> None:
    assert policy(**{key: value}).policy_id != policy().policy_id


def test_every_hashed_key_is_tried_above() -> None:
    hashed = json.loads(policy().canonical)
    keys = {*hashed, *(f"{outer}__{key}" for outer in ("privacy", "estimator") for key in hashed[outer])}
    one_value_only = {"privacy", "estimator", "privacy__unit", "privacy__relation"}
    assert keys - one_value_only == set(OTHERS)


@pytest.mark.parametrize("file", ["one.txt", "survey.txt"])
def test_the_content_of_the_cells_file_is_hashed_and_not_its_name(file: str) -> None:
    assert policy(cells=file).policy_id != policy(cells="cells.txt").policy_id


def test_the_policy_id_is_blake2b_of_128_bits() -> None:
    found = policy().policy_id
    assert found.startswith("b2:")
    assert len(bytes.fromhex(found.removeprefix("b2:"))) == 16


def test_defaults_are_those_of_the_design() -> None:
    found = policy()
    assert (found.reject_above, found.drop_zero, found.h3_resolution, found.hours) == (150_000, True, 7, (9, 21))
    assert (found.slot_length_ms, found.lateness_ms) == (3_600_000, 300_000)
    assert (found.max_ahead_ms, found.min_interval_ms) == (120_000, 1000)
    assert (found.cells, str(found.grid), found.unit, found.relation) == (None, "0.001", "user_day", "replace")
    assert (found.delta, found.min_users, found.method) == (1e-6, 10, MeansKeys("bestfit", "median"))


def test_charges_are_rounded_up_and_limits_down() -> None:
    assert [nano_ceil(epsilon) for epsilon in (1.0, 0.1, 1e-9, 1.5e-9, 1e-12)] == [10**9, 10**8, 1, 2, 1]
    assert policy(privacy__daily_limit=105.0000000019).daily_limit_nano == 105_000_000_001


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "a'b", "a?b", "a%b", "a\x1bb", "a" * 81, "", "b\u00fcs"])
def test_a_name_that_would_have_to_be_quoted_somewhere_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="ASCII letters"):
        policy(name=name)


def test_the_longest_name_of_every_kind_of_letter_is_taken() -> None:
    name = "aZ0._-".ljust(80, "x")
    assert policy(name=name).name == name


@pytest.mark.parametrize(("epsilon", "is_read"), [(4.5e7, True), (4.6e7, False), (1e9, False)])
def test_a_policy_whose_day_could_sum_to_more_than_the_ledger_counts_is_refused(
    epsilon: float, *, is_read: bool
) -> None:
    changes = {"privacy__epsilon": epsilon, "privacy__daily_limit": 1e9, "privacy__acknowledge_weak_privacy": True}
    changes["privacy__max_hats_per_day"] = 1
    if is_read:
        assert policy(**changes).epsilon == epsilon
        return
    with pytest.raises(SettingError, match=r"policy\.privacy\.epsilon: .*100,000,000 HATs.*use at most 4\.5"):
        policy(**changes)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (None, r"is missing for unit .user.; add it"),
        (0.5, "0.5 is not between epsilon and 9e.06; use a number, such as 1000.0"),
        (float("nan"), "use a number"),
        (float("inf"), "use a number"),
        (9.1e6, "use a number"),
    ],
)
def test_a_limit_of_all_days_is_needed_by_unit_user_and_within_reason(limit: float | None, message: str) -> None:
    total = {} if limit is None else {"privacy__total_limit": limit}
    with pytest.raises(SettingError, match=rf"^policy\.privacy\.total_limit: .*{message}"):
        policy(privacy__unit="user", **total)


def test_a_policy_of_one_user_for_ever_has_a_total_limit_and_another_policy_id() -> None:
    found = policy(privacy__unit="user", privacy__total_limit=1000.0000000019)
    assert (found.unit, found.total_limit_nano) == ("user", 1_000_000_000_001)
    assert policy().total_limit_nano is None
    others = policy(privacy__unit="user", privacy__total_limit=1001.0), policy()
    assert found.policy_id not in {other.policy_id for other in others}


@pytest.mark.parametrize(("given", "missing"), [("replaces", "from"), ("from", "replaces")])
def test_a_successor_and_its_date_come_together(given: str, missing: str) -> None:
    with pytest.raises(SettingError, match=rf'^policy\.{missing}: is missing; write both: replaces = "old" and from'):
        policy(**{given: "2022-02-01"})


@pytest.mark.parametrize(
    ("old", "date", "message"),
    [
        ("surat-speed", "2022-02-01", r"replaces: names the policy itself; give"),
        ("a:b", "2022-02-01", r"replaces: 'a:b' cannot be part of a key"),
        ("old", "01.02.2022", r"from: '01.02.2022' is not a date; use a local date such as"),
        ("old", "20220201", "is not a date"),
        ("old", "2022-02-30", "is not a date"),
        ("old", "", "is not a date"),
    ],
)
def test_a_successor_names_another_policy_and_a_date(old: str, date: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        policy(replaces=old, **{"from": date})


def test_what_a_policy_replaces_and_from_when_is_promised_too() -> None:
    found = policy(replaces="old", **{"from": "2022-02-01"})
    assert (found.replaces, found.from_date) == ("old", "2022-02-01")
    others = (
        policy(),
        policy(replaces="older", **{"from": "2022-02-01"}),
        policy(replaces="old", **{"from": "2022-02-02"}),
    )
    assert len({each.policy_id for each in (found, *others)}) == 4
