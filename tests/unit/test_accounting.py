"""Ledger arithmetic: the K largest, the limit, and the tighter figure that is reported beside them."""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.ledger.day import DayLedger, Total, day_cost
from hatcast.stream.ledger.summary import DaySummary, fits
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.placed import decimal
from hatcast.stream.units import NANO
from tests.replayed import policy_of

costs = st.lists(st.integers(1, 5 * NANO), max_size=30)
caps = st.integers(1, 20)
DATES = ("2022-01-02", "2022-01-03")


@given(costs, caps)
def test_a_day_costs_the_sum_of_the_k_largest(spent: list[int], cap: int) -> None:
    assert day_cost(Counter(spent), cap) == sum(sorted(spent, reverse=True)[:cap])


def test_levels_that_nothing_has_any_more_cost_nothing() -> None:
    assert day_cost({5: 0, 3: 2}, 10) == 6
    assert day_cost({}, 10) == 0


def policy(name: str = "p", *, cap: int = 2, limit: float = 10e-9, total: float | None = None) -> Policy:
    unit = {"unit": "user_day"} if total is None else {"unit": "user", "total_limit": total}
    return policy_of(name=name, privacy={"epsilon": 1e-9, "max_hats_per_day": cap, "daily_limit": limit, **unit})


limits = st.integers(1, 20 * NANO).map(lambda nano: nano / NANO)
policies = st.tuples(st.integers(1, 6), limits, st.one_of(st.none(), limits))
wanted_charges = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(DATES), st.sampled_from("abcd"), st.integers(1, 3 * NANO)), max_size=40
)


@given(st.tuples(policies, policies, policies), wanted_charges)
def test_no_day_and_no_total_passes_the_least_limit_of_those_that_charged_and_only_what_would_is_refused(
    made: tuple[tuple[int, float, float | None], ...], wanted: list[tuple[int, str, str, int]]
) -> None:
    charging = [policy(str(n), cap=cap, limit=limit, total=total) for n, (cap, limit, total) in enumerate(made)]
    days, total = {date: DayLedger() for date in DATES}, Total()
    plain: Counter[tuple[str, int, str]] = Counter()
    limits_of_days: dict[str, float] = {}
    limit_of_all = float("inf")
    for number, date, place, charge in wanted:
        own = charging[number]
        tried = plain + Counter({(date, number, place): charge})
        limit = min(limits_of_days.get(date, float("inf")), own.daily_limit_nano)
        of_all = min(limit_of_all, float("inf") if own.total_limit_nano is None else own.total_limit_nano)
        fits = _cost(tried, date, charging) <= limit and sum(_cost(tried, d, charging) for d in DATES) <= of_all
        assert days[date].charge_if_room(own, place, charge, total) == fits
        if fits:
            plain, limits_of_days[date], limit_of_all = tried, limit, of_all
        for each in DATES:
            assert days[each].cost == _cost(plain, each, charging) <= limits_of_days.get(each, 0)
        assert total.spent == sum(day.cost for day in days.values()) <= limit_of_all
    for date, day in days.items():
        assert day.limit == limits_of_days.get(date)
        assert {(date, int(name), p): e for name, own in day.policies.items() for p, e in own.costs.items()} == {
            key: charge for key, charge in plain.items() if key[0] == date
        }


def _cost(plain: Counter[tuple[str, int, str]], date: str, charging: Sequence[Policy]) -> int:
    """By the definition: of each policy the K largest e(cell, slot)."""
    return sum(
        sum(sorted((e for (d, n, _), e in plain.items() if (d, n) == (date, number)), reverse=True)[:cap])
        for number, cap in enumerate(each.max_hats_per_day for each in charging)
    )


@given(policies, policies, wanted_charges, st.integers(1, 8))
def test_releases_fit_exactly_if_each_of_them_could_be_charged_one_after_the_other(
    one: tuple[int, float, float | None],
    two: tuple[int, float, float | None],
    wanted: list[tuple[int, str, str, int]],
    more: int,
) -> None:
    charging = [
        replace(policy(str(n), cap=cap, limit=limit, total=total), epsilon=0.7)
        for n, (cap, limit, total) in enumerate((one, two))
    ]
    day, total = DayLedger(), Total()
    for number, date, place, _ in wanted:
        policy_of_it = charging[number % 2]
        known = day.policies.get(policy_of_it.name)
        if known is None or f"{date} {place}" not in known.costs:
            day.charge_if_room(policy_of_it, f"{date} {place}", policy_of_it.epsilon_nano, total)
    own = charging[0]
    summary = DaySummary(
        0,
        0,
        day.cost,
        shared=True,
        limit=day.limit,
        sequence=0,
        levels={},
        total=total,
        policy_levels=day.policy_levels("0"),
    )
    room = fits(summary, own, more, {})
    assert room == all(day.charge_if_room(own, f"new {n}", own.epsilon_nano, total) for n in range(more))


def test_a_refused_charge_leaves_day_and_total_as_they_were() -> None:
    ledger, total = DayLedger(), Total()
    assert ledger.charge_if_room(policy(limit=10e-9), "a", 5, total)
    before = copy.deepcopy((ledger, total))
    assert not ledger.charge_if_room(policy(limit=10e-9), "a", 6, total)
    assert not ledger.charge_if_room(policy("other", limit=9e-9, total=5e-9), "a", 1, total)
    assert (ledger, total) == before


def test_days_that_have_room_each_do_not_pass_the_limit_of_all_days_together() -> None:
    days, total, own = [DayLedger(), DayLedger()], Total(), policy(total=8e-9)
    assert days[0].charge_if_room(own, "a", 5, total)
    assert not days[1].charge_if_room(own, "a", 4, total)
    assert days[1].charge_if_room(own, "a", 3, total)


def test_a_policy_with_a_larger_limit_does_not_raise_the_days() -> None:
    ledger, total = DayLedger(), Total()
    assert ledger.charge_if_room(policy("small", limit=6e-9), "a", 5, total)
    assert not ledger.charge_if_room(policy("large", limit=20e-9), "b", 2, total)
    assert ledger.charge_if_room(policy("large", limit=20e-9), "b", 1, total)


def test_two_charges_on_one_place_are_one_larger_cost() -> None:
    ledger, total = DayLedger(), Total()
    assert all(ledger.charge_if_room(policy(cap=1, limit=6e-9), place, 3, total) for place in ("a", "b", "c", "a"))
    assert (ledger.policies["p"].costs, ledger.cost) == ({"a": 6, "b": 3, "c": 3}, 6)


def test_two_policies_that_let_a_user_into_different_hats_cost_both() -> None:
    # One HAT a day under each: the K largest of all charges together would be one of them.
    ledger, total = DayLedger(), Total()
    assert ledger.charge_if_room(policy("here", cap=1), "a", 5, total)
    assert ledger.charge_if_room(policy("there", cap=1), "b", 5, total)
    assert (ledger.cost, ledger.levels) == (10, {5: 2})
    assert not ledger.charge_if_room(policy("elsewhere", cap=1), "c", 1, total)


@given(st.lists(st.integers(1, NANO), min_size=1, max_size=4), st.data())
def test_a_day_has_no_more_levels_than_its_charges_have_sums_whatever_its_places(
    kinds: list[int], data: st.DataObject
) -> None:
    # A commit reads all levels, so they have to stay few: one for a policy that charges every place once.
    ledger, total = DayLedger(), Total()
    for place in range(20):
        for charge in data.draw(st.permutations(kinds))[: data.draw(st.integers(0, len(kinds)))]:
            assert ledger.charge_if_room(policy(limit=1e9), str(place), charge, total)
    levels = ledger.policies["p"].levels if ledger.policies else {}
    assert len(levels) <= 2 ** len(kinds) - 1


def a_day(own: dict[int, int], releases: int, epsilon_sum: int, fineness: dict[int, int]) -> DaySummary:
    return DaySummary(
        releases=releases,
        epsilon_sum=epsilon_sum,
        epsilon_user_day=0,
        shared=True,
        limit=None,
        sequence=releases,
        levels=own,
        total=Total(),
        policy_levels=own,
        fineness=fineness,
    )


def test_a_days_fineness_is_known_where_our_charges_are_equal_and_each_is_on_a_place_of_its_own() -> None:
    assert a_day({NANO: 5}, 5, 5 * NANO, {9: 4, 7: 1}).least_fineness == 7
    assert a_day({NANO: 3}, 5, 5 * NANO, {9: 5}).least_fineness == 9  # three of five are what a user may have met
    assert a_day({}, 0, 0, {}).least_fineness is None
    twice_on_a_place = a_day({2 * NANO: 1, NANO: 2}, 4, 4 * NANO, {9: 4})
    twice_on_each = a_day({2 * NANO: 2}, 4, 4 * NANO, {9: 4})
    two_kinds_of_charge = a_day({NANO: 3}, 4, 3 * NANO + 7, {9: 4})
    begun_before_it_was_kept = a_day({NANO: 5}, 5, 5 * NANO, {9: 3})
    for day in (twice_on_a_place, twice_on_each, two_kinds_of_charge, begun_before_it_was_kept):
        assert day.least_fineness is None


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.0"),
        (NANO, "1.0"),
        (105 * NANO, "105.0"),
        (NANO // 2, "0.5"),
        (1, "1E-9"),
        (1_500_000_001, "1.500000001"),
        (10**15, "1000000.0"),
    ],
)
def test_a_charge_is_published_as_an_exact_decimal(nano: int, text: str) -> None:
    assert str(decimal(nano)) == text
    assert decimal(nano) * NANO == Decimal(nano)
