"""What a policy says of days: how long one user is one unit, and from which day on a policy follows another."""

import pytest

from hatcast.stream.errors import SettingError
from tests.unit.test_policy import policy


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
