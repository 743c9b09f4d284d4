"""Ledger arithmetic: the K largest, the limit, and the tighter figure that is reported beside them."""

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.accounting import DayLedger, composed, day_cost, decimal
from stream.units import NANO

costs = st.lists(st.integers(1, 5 * NANO), max_size=30)
caps = st.integers(1, 20)
charges = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3 * NANO)), max_size=40)


@given(costs, caps)
def test_a_day_costs_the_sum_of_the_k_largest(spent: list[int], cap: int) -> None:
    assert day_cost(Counter(spent), cap) == sum(sorted(spent, reverse=True)[:cap])


def test_levels_that_nothing_has_any_more_cost_nothing() -> None:
    assert day_cost({5: 0, 3: 2}, 10) == 6
    assert day_cost({}, 10) == 0


@given(charges, caps, st.integers(0, 20 * NANO))
def test_a_day_never_passes_its_limit_and_refuses_only_what_would(
    wanted: list[tuple[str, int]], cap: int, limit: int
) -> None:
    ledger = DayLedger()
    plain: Counter[str] = Counter()
    for place, charge in wanted:
        would_cost = sum(sorted((plain + Counter({place: charge})).values(), reverse=True)[:cap])
        accepted = ledger.charge(place, charge, cap, limit)
        assert accepted == (would_cost <= limit)
        if accepted:
            plain[place] += charge
        assert day_cost(ledger.levels, cap) == sum(sorted(plain.values(), reverse=True)[:cap]) <= limit
    assert ledger.costs == dict(plain)
    assert ledger.levels == Counter(plain.values())


def test_a_refused_charge_leaves_the_day_as_it_was() -> None:
    ledger = DayLedger()
    assert ledger.charge("a", 5, 2, 10)
    before = dict(ledger.costs), Counter(ledger.levels)
    assert not ledger.charge("a", 6, 2, 10)
    assert (ledger.costs, ledger.levels) == before


def test_two_charges_on_one_place_are_one_larger_cost() -> None:
    ledger = DayLedger()
    assert all(ledger.charge(place, 3, 1, 6) for place in ("a", "b", "c", "a"))
    assert (ledger.costs, day_cost(ledger.levels, 1)) == ({"a": 6, "b": 3, "c": 3}, 6)


epsilons = st.sampled_from([NANO // 10, NANO // 2, NANO, 3 * NANO])
levels_of_a_day = st.dictionaries(epsilons, st.integers(1, 40), min_size=1, max_size=2)
few = settings(max_examples=15, deadline=None)


@few
@given(levels_of_a_day, st.integers(1, 60), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_the_composed_epsilon_is_never_above_the_plain_sum(levels: dict[int, int], cap: int, delta: float) -> None:
    assert 0 <= composed(levels, cap, delta) <= day_cost(levels, cap) / NANO


@few
@given(levels_of_a_day, st.integers(1, 60), epsilons)
def test_the_composed_epsilon_does_not_fall_when_more_is_spent(levels: dict[int, int], cap: int, more: int) -> None:
    after = Counter(levels) + Counter({more: 1})
    slack = 1e-9  # of floating point
    assert composed(levels, cap, 1e-6) <= composed(after, cap, 1e-6) + slack
    assert composed(levels, cap, 1e-6) <= composed(levels, cap + 1, 1e-6) + slack
    assert composed(levels, cap, 1e-3) <= composed(levels, cap, 1e-6) + slack


def test_many_small_charges_compose_to_far_less_than_their_sum() -> None:
    assert composed({NANO // 10: 100}, 100, 1e-6) < 6  # sum: 10


def test_nothing_spent_composes_to_nothing() -> None:
    assert composed({}, 10, 1e-6) == 0


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
