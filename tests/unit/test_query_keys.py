"""`[[policy.query]]`: each refusal names its key and the mend; charges, periods, what policy_id is a hash of."""

import json
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.ledger.day import reservations
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Query
from hatcast.stream.policy.table import differing_keys
from tests.unit import test_policy, test_policy_add_remove

MEAN: dict[str, Any] = {
    "name": "report",
    "kind": "mean_speed",
    "days": 31,
    "from": "2022-01-01",
    "epsilon": 0.1,
    "min_n": 310,
}
FAST: dict[str, Any] = {
    "name": "fast",
    "kind": "over_speed_limit",
    "days": 7,
    "from": "2022-01-03",
    "scale": 1.0,
    "speed_limit": 50.0,
}


def asking(*queries: dict[str, Any], **changes: Any) -> Policy:
    return test_policy.policy(query=list(queries), **changes)


def hidden(*queries: dict[str, Any], **changes: Any) -> Policy:
    return test_policy_add_remove.policy(query=list(queries), **changes)


def changed(query: dict[str, Any], **changes: object) -> dict[str, Any]:
    """A query with changes by key, `from_` for a word of Python's; None removes."""
    return {
        key: value
        for key, value in (query | {key.rstrip("_"): value for key, value in changes.items()}).items()
        if value is not None
    }


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str | None, str]] = [
    (MEAN, {"nane": "a"}, "nane", "did you mean name?"),
    (MEAN, {"name": None}, "name", "is missing; add it to [[policy.query]], such as"),
    (MEAN, {"kind": None}, "kind", "is missing"),
    (MEAN, {"days": None}, "days", "is missing"),
    (MEAN, {"days": 7.5}, "days", "7.5 is a number, not an integer"),
    (MEAN, {"name": ""}, "name", "ASCII"),
    (MEAN, {"name": "two words"}, "name", "ASCII"),
    (MEAN, {"name": "a:b"}, "name", "ASCII"),
    (MEAN, {"name": "a/b"}, "name", "ASCII"),
    (MEAN, {"name": "a" * 81}, "name", "ASCII"),
    (MEAN, {"kind": "median_speed"}, "kind", "use one of mean_speed, over_speed_limit"),
    (MEAN, {"days": 0}, "days", "use 1 to 366"),
    (MEAN, {"days": 367}, "days", "use 1 to 366"),
    (MEAN, {"missing_days": "guess"}, "missing_days", "use one of suppress, leave_out"),
    (MEAN, {"from_": None}, "from", "write the first local date of a period"),
    (MEAN, {"from_": "2022-02-30"}, "from", "is not a date"),
    (MEAN, {"from_": "20220101"}, "from", "is not a date"),
    (MEAN, {"from_": "0002-01-01"}, "from", "is not a date"),
    (MEAN, {"from_": "9990-01-01"}, "from", "is not a date"),
    (MEAN, {"epsilon": None}, None, "needs either epsilon or scale"),
    (MEAN, {"scale": 1.0}, None, "needs either epsilon or scale"),
    (MEAN, {"epsilon": 0.0}, "epsilon", "use 0.001 to 1000000"),
    (MEAN, {"epsilon": 0.0009}, "epsilon", "use 0.001 to 1000000"),
    (MEAN, {"epsilon": float("nan")}, "epsilon", "is not a valid epsilon"),
    (MEAN, {"epsilon": float("inf")}, "epsilon", "is not a valid epsilon"),
    (MEAN, {"epsilon": -1.0}, "epsilon", "is not a valid epsilon"),
    (MEAN, {"epsilon": 10.001}, "epsilon", "acknowledge_weak_privacy = true"),
    (MEAN, {"epsilon": None, "scale": 0.0}, "scale", "is not between 0 and 65"),
    (MEAN, {"epsilon": None, "scale": 65.1}, "scale", "is not between 0 and 65"),
    (MEAN, {"epsilon": None, "scale": float("nan")}, "scale", "is not between 0 and 65"),
    (MEAN, {"epsilon": None, "scale": 0.0209}, "scale", "gives epsilon 10.0324"),
    (MEAN, {"epsilon": None, "scale": 1e-7}, "scale", "use a number of at least 2.09677e-07"),
    (MEAN, {"epsilon": None, "scale": 5e-324}, "scale", "is hardly any noise"),
    (MEAN, {"min_n": None}, "min_n", "write the least number of user-days that is answered"),
    (MEAN, {"min_n": 0}, "min_n", "0 is not a number of user-days"),
    (MEAN, {"min_n": 10**9 + 1}, "min_n", "is not a number of user-days"),
    (MEAN, {"speed_limit": 50.0}, "speed_limit", "is not used by mean_speed; remove it"),
    (MEAN, {"on_request": True}, "on_request", "is not used by mean_speed; remove it"),
    (FAST, {"on_request": True, "speed_limit": 65.0}, "speed_limit", "is not below upper_bound 65"),
    (FAST, {"speed_limit": None}, "speed_limit", "such as 50.0, or on_request = true"),
    (FAST, {"min_n": 10}, "min_n", "is not used by over_speed_limit; remove it"),
    (FAST, {"speed_limit": None}, "speed_limit", "is missing; write km/h in [0, upper_bound)"),
    (FAST, {"speed_limit": 65.0}, "speed_limit", "is not below upper_bound 65, so no speed exceeds it"),
    (FAST, {"speed_limit": -1.0}, "speed_limit", "is not below upper_bound"),
    (FAST, {"speed_limit": float("nan")}, "speed_limit", "is not below upper_bound"),
    (FAST, {"scale": 1e6 + 1}, "scale", "is not between 0 and 1e+06"),
    (FAST, {"scale": 0.014}, "scale", "gives epsilon 10.2041"),
]


@pytest.mark.parametrize(
    ("query", "changes", "key", "words"),
    REFUSED,
    ids=[
        f"{query['name']}-{','.join(f'{key}={value}' for key, value in changes.items())}"
        for query, changes, *_ in REFUSED
    ],
)
def test_a_refusal_names_the_key_and_the_mend_in_one_line(
    query: dict[str, Any], changes: dict[str, Any], key: str | None, words: str
) -> None:
    with pytest.raises(SettingError) as refused:
        asking(changed(query, **changes))
    line = str(refused.value)
    assert line.startswith(f"policy.query[0]{'' if key is None else '.' + key}: ")
    assert words in line
    assert "\n" not in line


OF_ALL = [
    ([MEAN, FAST, MEAN], {}, r"query\[2\]\.name: 'report' is used twice; give each query its own name"),
    ([MEAN, changed(FAST, days=0)], {}, r"query\[1\]\.days: 0 is not a valid number of days"),
    ([changed(FAST, name=f"q{n}") for n in range(17)], {}, r"query: 17 queries; write at most 16"),
    ([changed(MEAN, from_="2022-01-31")], {"replaces": "old", "from": "2022-02-01"}, r"query\[0\]\.from: .* is before"),
    # 89 x 0.1 for the query and 1 for a HAT.
    (
        [MEAN],
        {"privacy__daily_limit": 9.89},
        r"privacy\.daily_limit: 9\.89 is below 9\.9: the queries cost a user 8\.9 ",
    ),
    (
        [MEAN],
        {"privacy__unit": "user", "privacy__total_limit": 9.89},
        r"privacy\.total_limit: 9\.89 is below 9\.9: .* \(89 HATs\), and 1 HAT 1; raise total_limit, or lower",
    ),
]


@pytest.mark.parametrize(("queries", "changes", "line"), OF_ALL)
def test_what_queries_ask_together_or_of_the_rest_of_the_policy_is_refused_too(
    queries: list[dict[str, Any]], changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(SettingError, match=rf"^policy\.{line}"):
        asking(*queries, **changes)


def test_the_queries_may_cost_what_leaves_room_for_one_hat() -> None:
    assert asking(MEAN, privacy__daily_limit=9.9).queries
    assert asking(MEAN, privacy__unit="user", privacy__total_limit=9.9).queries
    assert len(asking(*(changed(FAST, name=f"q{n}", scale=10.0) for n in range(16))).queries) == 16


def test_under_add_remove_a_whole_day_of_hats_has_to_fit_beside_the_queries_and_no_query_may_need_counts() -> None:
    """8 HATs of epsilon 1, in each of which a user can be, and 8 x 0.5."""
    query = changed(FAST, scale=None, epsilon=0.5)
    assert hidden(query, privacy__daily_limit=12.0).most_hats == 8
    with pytest.raises(SettingError, match=r"^policy\.privacy\.daily_limit: 11.99 is below 12: .* and 8 HATs 8;"):
        hidden(query, privacy__daily_limit=11.99)
    with pytest.raises(
        SettingError, match=r"query\[0\]\.kind: mean_speed divides by the number .* \"over_speed_limit\""
    ):
        hidden(MEAN)


def only(policy: Policy) -> Query:
    [query] = policy.queries
    return query


CHARGED = [
    (MEAN, 100_000_000),
    (changed(MEAN, epsilon=None, scale=1.0), 209_677_420),  # 65 / 310, rounded up
    (changed(MEAN, epsilon=None, scale=0.5, min_n=325), 400_000_000),
    (FAST, 142_857_143),  # 1 / 7
    (changed(FAST, days=1, scale=2.0), 500_000_000),
    (changed(FAST, scale=None, epsilon=0.0123456789), 12_345_679),
]


@pytest.mark.parametrize(("query", "nano"), CHARGED)
def test_a_query_is_charged_its_epsilon_or_what_its_scale_comes_to_at_the_least_number_of_user_days(
    query: dict[str, Any], nano: int
) -> None:
    found = only(asking(query))
    assert found.epsilon_nano == nano
    assert (found.epsilon, found.scale) == (
        query.get("epsilon"),
        None if "scale" not in query else Fraction(str(query["scale"])) * 1000,
    )
    assert reservations(asking(query), "2022-01-03")[query["name"]].amount == 89 * nano
    assert reservations(asking(query), "2021-12-31") == {}


def test_what_is_read_is_what_was_written() -> None:
    mean, fast = asking(MEAN, changed(FAST, missing_days="leave_out")).queries
    assert (mean.name, mean.kind, mean.days, mean.min_n, mean.speed_limit) == ("report", "mean_speed", 31, 310, 0)
    assert (fast.kind, fast.min_n, fast.speed_limit, fast.missing_days) == ("over_speed_limit", 0, 50_000, "leave_out")
    assert (mean.missing_days, mean.first, fast.first) == ("suppress", date(2022, 1, 1), date(2022, 1, 3))


# Periods


def test_periods_of_one_day_need_no_beginning_and_a_successors_begin_with_it() -> None:
    daily = changed(FAST, days=1, from_=None)
    period = only(asking(daily)).period_of("2022-01-02")
    assert period is not None
    assert period.dates == ["2022-01-02"]
    new = only(asking(changed(FAST, from_=None), replaces="old", **{"from": "2022-02-01"}))
    assert new.first == date(2022, 2, 1)
    assert new.period_of("2022-01-31") is None
    assert only(asking(FAST, replaces="old", **{"from": "2022-01-03"})).first == date(2022, 1, 3)


@given(st.integers(1, 366), st.dates(date(3, 1, 1), date(9989, 12, 31)), st.integers(-400, 4000))
def test_every_date_from_the_first_on_is_in_one_period_and_these_tile_the_days(
    days: int, first: date, after: int
) -> None:
    query = only(asking(changed(FAST, days=days, from_=first.isoformat(), scale=1.0)))
    try:
        day = first + timedelta(days=after)
    except OverflowError:
        return
    period = query.period_of(day.isoformat())
    if after < 0:
        assert period is None
        return
    assert period is not None
    assert (len(period.dates), period.dates[0], period.dates[-1]) == (days, str(period.first), str(period.last))
    assert day.isoformat() in period.dates
    assert (period.first - first).days % days == 0
    assert {query.period_of(each) for each in period.dates} == {period}


# What policy_id is a hash of


def test_a_policy_without_queries_is_the_one_that_it_was_before_there_were_queries() -> None:
    assert test_policy.policy().policy_id == asking().policy_id == "b2:bec8a71d6120ea1bd420c4e0ecf263f8"
    assert test_policy_add_remove.policy().policy_id == "b2:c95bde555a8b20825cbbaeabb0b29ad4"
    assert "query" not in json.loads(test_policy.policy().canonical)


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        (MEAN, {"name": "other"}),
        (MEAN, {"days": 30}),
        (MEAN, {"from_": "2022-01-02"}),
        (MEAN, {"epsilon": 0.2}),
        (MEAN, {"epsilon": None, "scale": 2.0}),
        (MEAN, {"min_n": 311}),
        (MEAN, {"missing_days": "leave_out"}),
        (FAST, {"speed_limit": 50.001}),
        (FAST, {"scale": 1.1}),
    ],
)
def test_whatever_is_asked_changes_the_policy(query: dict[str, Any], changes: dict[str, Any]) -> None:
    before, after = asking(query), asking(changed(query, **changes))
    assert before.policy_id != after.policy_id
    assert differing_keys(before.canonical, after.canonical) == "policy.query"
    assert asking(query, name="renamed").policy_id == before.policy_id


def test_a_default_that_is_written_is_the_same_policy() -> None:
    assert asking(changed(MEAN, missing_days="suppress")).policy_id == asking(MEAN).policy_id
    daily = changed(FAST, days=1)
    assert asking(changed(daily, from_="1970-01-01")).policy_id == asking(changed(daily, from_=None)).policy_id
    assert json.loads(asking(FAST).canonical)["query"] == [FAST | {"speed_limit": 50_000, "missing_days": "suppress"}]


def test_a_query_may_leave_its_limit_open_and_costs_what_it_costs_with_one() -> None:
    fixed, both, left_open = (
        asking(changed(FAST, **changes))
        for changes in ({}, {"on_request": True}, {"on_request": True, "speed_limit": None})
    )
    assert [policy.queries[0].speed_limit for policy in (fixed, both, left_open)] == [50_000, 50_000, None]
    assert [policy.queries[0].on_request for policy in (fixed, both, left_open)] == [False, True, True]
    assert len({policy.policy_id for policy in (fixed, both, left_open)}) == 3
    assert "on_request" not in fixed.queries[0].canonical, "a policy of before keeps its id"
    reserved = [reservations(policy, "2022-01-05") for policy in (fixed, both, left_open)]
    assert reserved[0] == reserved[1] == reserved[2] != {}
    with pytest.raises(SettingError, match=r"policy.query\[0\].on_request: .*add_remove") as refused:
        hidden(FAST | {"on_request": True})
    assert str(refused.value).endswith('write a speed_limit instead, or relation = "replace"')
