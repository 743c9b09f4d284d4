"""The ledger file and queries over days: reserved before a day's first release, in full or not at all, once (I2)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date as local_date
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.batch.ledger_file import LedgerFile, open_ledger
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.day import Reserved, Total
from hatcast.stream.ledger.summary import fits
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import RetainedDay
from hatcast.stream.release.queries import QueryRelease, query_periods_of, query_release_of
from hatcast.stream.units import NANO
from tests.unit.test_ledger_file import AT, DATE, POLICY, a_policy, committed, drawn
from tests.unit.test_policy_add_remove import policy as hidden_policy

DATES = [DATE, "2022-01-03", "2022-01-04"]
TOMORROW = f"{DATES[1]}/12:00"
KEYS = {"kind": "over_speed_limit", "from": DATE, "speed_limit": 40.0}
DAILY = {"name": "daily", "days": 1, "epsilon": 0.5, **KEYS}
OVER_THREE = {"name": "three", "days": 3, "epsilon": 0.25, **KEYS}


def asking(*queries: dict[str, Any], name: str = "test", **privacy: Any) -> Policy:
    return a_policy(name=name, query=queries, privacy={"max_hats_per_day": 4, "daily_limit": 9.0} | privacy)


BOTH = asking(DAILY, OVER_THREE)


def answer(query: str, date: str = DATES[-1], cell: str = "a", policy: Policy = BOTH) -> QueryRelease:
    """An answer with its noise, about noon; nobody was there."""
    calendar = Calendar(policy)
    [asked] = [one for one in query_periods_of(policy, calendar, date, "12:00") if one.query.name == query]
    return query_release_of(
        asked, calendar, cell, {day: RetainedDay.of([]) for day in asked.period.dates}, SystemNoise()
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


def spent(ledger: LedgerFile, dates: Sequence[str] = DATES) -> list[int]:
    return [ledger.summary(date).epsilon_user_day for date in dates]


@pytest.mark.parametrize("users", [12, 3])
def test_a_dates_first_commit_reserves_what_its_queries_cost_whatever_becomes_of_the_hat(
    path: Path, users: int
) -> None:
    with open_ledger(path, BOTH) as ledger:
        ledger.commit([drawn("a", users=users, policy=BOTH)], AT)
    with open_ledger(path, BOTH) as ledger:
        day, released = ledger.summary(DATE), int(users == 12)
        assert day.queries == {"daily": Reserved(4, NANO // 2), "three": Reserved(4, NANO // 4)}
        assert (day.epsilon_user_day, day.releases, day.sequence) == ((3 + released) * NANO, released, 1)
        assert (day.epsilon_sum, day.total, day.shared) == (released * NANO, Total((3 + released) * NANO), False)
        assert day.levels == {NANO // 2: 4, NANO // 4: 4} | ({NANO: 1} if released else {})
        assert spent(ledger, DATES[1:]) == [0, 0]


def test_an_answer_reserves_the_days_without_a_commit_and_is_numbered_in_its_last_one(path: Path) -> None:
    with open_ledger(path, BOTH) as ledger:
        found = committed(ledger, [drawn("a", policy=BOTH), answer("three"), answer("three", cell="b")])
        assert [(each["date"], each["seq"]) for each in found] == [(DATE, 1), (DATES[-1], 1), (DATES[-1], 2)]
        assert spent(ledger) == [4 * NANO, NANO, NANO]
        days = [ledger.summary(date) for date in DATES]
        # A reservation is a change of its day's ledger, and a record one of the day that it is kept under.
        assert [(day.sequence, day.releases, day.epsilon_sum) for day in days] == [(1, 1, NANO), (1, 0, 0), (3, 0, 0)]
        assert {day.total.spent for day in days} == {6 * NANO}
        committed(ledger, [drawn("b", TOMORROW, policy=BOTH)])
        assert spent(ledger) == [4 * NANO, 4 * NANO, NANO]
    with open_ledger(path, BOTH) as ledger:
        assert committed(ledger, [drawn("a", policy=BOTH), answer("three"), answer("three", cell="b")]) == found
        assert spent(ledger) == [4 * NANO, 4 * NANO, NANO]


def test_a_query_that_has_no_room_on_one_of_its_days_is_not_answered_and_the_day_goes_on(path: Path) -> None:
    other = a_policy(name="other", privacy={"max_hats_per_day": 4, "daily_limit": 9.0, "epsilon": 4.0})
    with open_ledger(path, other) as ledger:
        places = [("a", f"{DATE}/12:00"), ("a", TOMORROW), ("b", TOMORROW)]
        ledger.commit([drawn(cell, slot, policy=other) for cell, slot in places], AT)
    ours = asking(DAILY, OVER_THREE | {"epsilon": 0.3}, name="ours")
    with open_ledger(path, ours) as ledger:
        found = committed(ledger, [drawn("a", TOMORROW, policy=ours), drawn("a", policy=ours)])
        assert [each["status"] for each in found] == ["released", "released"]
        queries = [ledger.summary(date).queries for date in DATES[:2]]
        assert [[query[name].places for name in ("daily", "three")] for query in queries] == [[4, 4], [0, 0]]
        asked = [
            answer("three", policy=ours),
            answer("daily", DATE, policy=ours),
            answer("daily", DATES[1], policy=ours),
        ]
        found = committed(ledger, asked)
        assert [each["status"] for each in found] == ["budget_exhausted", "released", "budget_exhausted"]
        assert spent(ledger) == [8_200_000_000, 9 * NANO, 1_200_000_000]
        assert [ledger.summary(date).shared for date in DATES] == [True, True, False]


def test_what_is_suppressed_anyway_says_why_though_its_query_had_no_room(path: Path) -> None:
    policy = asking(OVER_THREE, unit="user", total_limit=2.0)
    with open_ledger(path, policy) as ledger:
        asked = answer("three", policy=policy)
        lost = query_release_of(asked.query_period, Calendar(policy), "b", {}, SystemNoise())
        found = committed(ledger, [asked, lost])
        assert [(each["status"], each.get("reason")) for each in found] == [
            ("budget_exhausted", None),
            ("suppressed", "missing_days"),
        ]
        assert [ledger.summary(date).queries["three"].places for date in DATES] == [4, 4, 0]


def test_each_query_of_a_day_is_reserved_by_itself_in_the_policys_order(path: Path) -> None:
    policy = asking(DAILY, OVER_THREE, unit="user", total_limit=4.0)
    with open_ledger(path, policy) as ledger:
        committed(ledger, [drawn("a", policy=policy), drawn("a", TOMORROW, policy=policy)])
        queries = [ledger.summary(date).queries for date in DATES[:2]]
        assert [[query[name].places for name in ("daily", "three")] for query in queries] == [[4, 4], [0, 0]]
    policy = asking(DAILY, OVER_THREE, name="cheap", unit="user", total_limit=5.5)
    with open_ledger(path.with_name("other"), policy) as ledger:
        committed(ledger, [drawn("a", policy=policy), drawn("a", TOMORROW, policy=policy)])
        assert {name: each.places for name, each in ledger.summary(DATES[1]).queries.items()} == {
            "daily": 0,
            "three": 4,
        }


def test_what_a_query_has_reserved_is_shared_with_other_policies_and_what_it_has_not_is_not(path: Path) -> None:
    with open_ledger(path, BOTH) as ledger:
        ledger.commit([answer("daily", DATE)], AT)
    with open_ledger(path, asking(name="second")) as ledger:
        day = ledger.summary(DATE)
        assert (day.shared, day.queries, day.policy_levels, day.epsilon_user_day) == (True, {}, {}, 2 * NANO)
    full = asking(DAILY, name="full", daily_limit=3.0)
    with open_ledger(path, full) as ledger:
        [record] = committed(ledger, [answer("daily", DATE, policy=full)])
        assert record["status"] == "budget_exhausted"
    with open_ledger(path, BOTH) as ledger:
        assert ledger.summary(DATE).shared is False, "a policy whose queries had no room costs nothing"


def test_a_successor_may_begin_on_a_day_that_was_reserved_and_has_no_record(path: Path) -> None:
    with open_ledger(path, BOTH) as ledger:
        ledger.commit([answer("three")], AT)
    with open_ledger(path, a_policy(name="new", replaces="test", **{"from": "2022-01-05"})):
        pass
    with open_ledger(path, BOTH) as ledger:
        assert ledger.until == "2022-01-05"


def test_a_policy_without_queries_reserves_nothing(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn("a")], AT)
        assert (ledger.summary(DATE).queries, ledger.summary(DATE).epsilon_user_day) == ({}, NANO)


# A private list of cells


def listed(policy: Policy, epsilon: float = 0.5) -> Policy:
    """The policy with a list of cells that has cost each of `DATES`."""
    first, last = (local_date.fromisoformat(each) for each in (DATES[0], DATES[-1]))
    return replace(policy, selection_cost=SelectionCost(epsilon, first, last))


def test_a_private_list_is_booked_on_all_of_its_days_once_before_anything_is_committed(path: Path) -> None:
    policy = listed(a_policy(privacy={"unit": "user", "total_limit": 2.5, "daily_limit": 9.0, "epsilon": 1.0}))
    for _ in range(2):
        with open_ledger(path, policy) as ledger:
            assert spent(ledger) == [NANO // 2] * 3
            assert ledger.summary(DATE).total == Total(3 * NANO // 2, 5 * NANO // 2)
            assert {query for day in DATES for query in ledger.summary(day).queries} == {"cells"}
            assert [ledger.summary(day).sequence for day in DATES] == [1, 1, 1]
    with open_ledger(path, policy) as ledger:
        ledger.commit([drawn("a", policy=policy), drawn("b", policy=policy)], AT)
        assert spent(ledger) == [3 * NANO // 2, NANO // 2, NANO // 2], "one HAT had room, and the list costs no more"
        assert ledger.summary(DATE).total.spent == 5 * NANO // 2


def test_the_days_of_anothers_list_leave_no_room_for_a_slot_under_add_remove(path: Path) -> None:
    hidden = hidden_policy(
        timezone=POLICY.timezone, privacy__unit="user", privacy__total_limit=4.0, privacy__max_hats_per_day=3
    )
    with open_ledger(path, listed(a_policy())):
        pass
    with open_ledger(path, hidden) as ledger:
        day = ledger.summary(DATE)
        assert day.total.spent == 3 * NANO // 2
        assert fits(day, hidden, 2, {})
        assert not fits(day, hidden, 3, {})  # it would without the days that have no release


def test_a_charge_that_a_ledger_could_not_count_is_refused_and_nothing_changes(path: Path) -> None:
    most = b"9" * 25
    with open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn("a")], AT)
        ledger._database.execute("UPDATE ledger SET value = ? WHERE field = 'epsilon:test'", (most,))
        ledger._database.execute("UPDATE ledger SET value = ? WHERE key = ?", (most, rows.costs(DATE, "test")))
        ledger._database.execute(
            "UPDATE ledger SET field = ? WHERE key = ?", (most.decode(), rows.levels(DATE, "test"))
        )
        with pytest.raises(HatcastError, match="more than a ledger can count"):
            ledger.commit([drawn("b")], AT)
        assert ledger.find(drawn("b").release_id) is None
        assert (ledger.summary(DATE).releases, ledger.summary(DATE).epsilon_sum) == (1, int(most))


def test_a_file_sums_charges_exactly_beyond_64_bits(path: Path) -> None:
    """Where SQLite would go on with a rounded number."""
    privacy = {"epsilon": 4e7, "max_hats_per_day": 9, "acknowledge_weak_privacy": True, "daily_limit": 1e9}
    policy = a_policy(privacy=privacy)
    with open_ledger(path, policy) as ledger:
        ledger.commit([drawn(str(n), policy=policy) for n in range(240)], AT)
    with open_ledger(path, policy) as ledger:
        assert ledger.summary(DATE).epsilon_sum == 240 * 4 * 10**7 * NANO > 2**63
