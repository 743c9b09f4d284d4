"""What queries over days cost, against the definition: the K largest of (e + q) over all places of a user's day."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as local_date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.ledger.day import DayLedger, Reserved, Total, reservations
from hatcast.stream.ledger.summary import DaySummary, fits
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.placed import decimal
from hatcast.stream.units import NANO
from tests.replayed import policy_of

DATES = ("2022-01-02", "2022-01-03")
DAY = "2022-01-02"


def asking(*queries: dict[str, Any], **privacy: Any) -> Policy:
    """K = 89 and epsilon 1 on each HAT, as in [T]'s own table."""
    keys = {"days": 31, "from": "2022-01-01"}
    return policy_of(
        privacy={"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0} | privacy,
        query=[{"name": f"q{n}"} | keys | query for n, query in enumerate(queries)],
    )


MEAN = {"kind": "mean_speed", "min_n": 468}
FAST = {"kind": "over_speed_limit", "speed_limit": 40.0, "scale": 1.0}


def whole_day(policy: Policy, hats: int = 100) -> DayLedger:
    """A day on which more HATs are released than a user can enter, each for all that it costs."""
    day, total = DayLedger(), Total()
    assert day.reserve_if_room(policy, reservations(policy, DAY), total) == [query.name for query in policy.queries]
    assert all(day.charge_if_room(policy, str(hat), policy.epsilon_nano, total) for hat in range(hats))
    assert total.spent == day.cost
    return day


def test_what_a_private_choice_of_cells_has_cost_is_booked_on_each_of_its_days_whatever_the_limit_says() -> None:
    first, last = map(local_date.fromisoformat, DATES)
    policy = replace(asking(FAST, daily_limit=95.0), selection_cost=SelectionCost(5.0, first, last))
    assert reservations(policy, "2022-01-04").keys() == {"q0"}
    for day in DATES:
        ledger, total = DayLedger(), Total()
        wanted = reservations(policy, day)
        assert wanted["cells"] == Reserved(1, 5 * NANO)
        assert ledger.charge_if_room(policy, "another's", 94 * NANO, total)
        ledger.reserve_if_room(policy, wanted, total)
        assert ledger.policies[policy.name].queries == {"cells": Reserved(1, 5 * NANO), "q0": Reserved(0, 32_258_065)}
        assert ledger.cost == total.spent == 99 * NANO
        assert not ledger.charge_if_room(policy, "a HAT", NANO, total)


# Numbers of the spec, section 7


def test_query_one_over_314_user_days_with_noise_of_scale_1_costs_65_over_314() -> None:
    policy = asking(MEAN | {"min_n": 314, "scale": 1.0})
    [reserved] = reservations(policy, DAY).values()
    assert 0 <= Fraction(reserved.epsilon, NANO) - Fraction(65, 314) < Fraction(1, NANO)


def test_query_two_over_31_days_with_noise_of_scale_1_costs_a_user_89_over_31() -> None:
    [reserved] = reservations(asking(FAST), DAY).values()
    assert 0 <= Fraction(reserved.amount, NANO) - Fraction(89, 31) < Fraction(89, NANO)
    assert f"{decimal(reserved.amount):.3f}" == "2.871"


def test_both_queries_of_the_spec_on_all_hats_cost_k_times_their_sum_and_not_k() -> None:
    day = whole_day(asking(MEAN | {"epsilon": 0.1}, FAST))
    assert 0 <= Fraction(day.cost, NANO) - 89 * (Fraction(11, 10) + Fraction(1, 31)) < Fraction(89, NANO)


def test_the_honest_day_of_the_papers_own_table_costs_104_232() -> None:
    policy = asking(MEAN | {"scale": 1.0}, FAST)
    first, second = reservations(policy, DAY).values()
    amounts = [decimal(first.amount), decimal(second.amount), decimal(first.amount + second.amount)]
    assert [f"{each:.3f}" for each in amounts] == ["12.361", "2.871", "15.232"]
    day = whole_day(policy)
    assert f"{decimal(day.cost):.3f}" == "104.232"
    assert decimal(day.cost) < Decimal(105)
    assert day.levels == {NANO: 89, first.epsilon: 89, second.epsilon: 89}


# Any order of commits


@dataclass
class Plain:
    """A day of one policy by the definition, without levels: every place that there could be, K of which a user meets.

    e        place -> the sum of its charges
    queries  what is reserved; one that had no room costs nothing
    """

    policy: Policy
    e: Counter[str] = field(default_factory=Counter)
    queries: dict[str, Reserved] = field(default_factory=dict)

    def cost(self) -> int:
        """All places have all queries: also those without a HAT, of which there are as many as a user can enter."""
        q = sum(reserved.epsilon for reserved in self.queries.values() if reserved.places)
        places = [*self.e.values(), *[0] * self.policy.most_hats]
        return sum(sorted((each + q for each in places), reverse=True)[: self.policy.max_hats_per_day])


class Definition:
    """Both days of both policies: tries a charge or a reservation, and takes it back where it does not fit."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.plain = {(date, each.name): Plain(each) for each in policies for date in DATES}
        self.limits: dict[str, float] = dict.fromkeys(DATES, float("inf"))
        self.total_limit = float("inf")

    def cost(self, date: str) -> int:
        return sum(one.cost() for (of, _), one in self.plain.items() if of == date)

    def total(self) -> int:
        return sum(map(self.cost, DATES))

    def charge(self, date: str, policy: Policy, place: str, charge: int) -> bool:
        e = self.plain[date, policy.name].e
        e[place] += charge
        fit = self._fits(date, policy)
        e[place] -= 0 if fit else charge
        return fit

    def reserve(self, date: str, policy: Policy, wanted: Mapping[str, Reserved]) -> list[str]:
        queries = self.plain[date, policy.name].queries
        new = [name for name in wanted if name not in queries]
        for name in new:
            queries[name] = wanted[name]
            if not self._fits(date, policy):
                queries[name] = Reserved(0, wanted[name].epsilon)
        return new

    def _fits(self, date: str, policy: Policy) -> bool:
        """Whether the costs, as they would be now, are within all limits; then those of the policy bind too."""
        day = min(self.limits[date], policy.daily_limit_nano)
        total = min(self.total_limit, float("inf") if policy.total_limit_nano is None else policy.total_limit_nano)
        fit = self.cost(date) <= day and self.total() <= total
        if fit:
            self.limits[date], self.total_limit = day, total
        return fit


def a_policy(name: str, cap: int, epsilons: Sequence[int], limit: float, total: float | None) -> Policy:
    """Its limits leave room for its queries and one HAT, or it would be refused."""
    least = (cap * sum(epsilons) + NANO) / NANO
    unit = {"unit": "user_day"} if total is None else {"unit": "user", "total_limit": total + least}
    return policy_of(
        name=name,
        privacy={"epsilon": 1.0, "max_hats_per_day": cap, "daily_limit": limit + least, **unit},
        query=[
            {"name": f"q{n}", "days": 2, "from": DAY, **FAST, "scale": None, "epsilon": epsilon / NANO}
            | {"kind": "over_speed_limit"}
            for n, epsilon in enumerate(epsilons)
        ],
    )


def steps(most: int) -> st.SearchStrategy[int]:
    """1e-9, in twentieths: few enough that a limit is often met exactly, or just not."""
    return st.integers(1, 20 * most).map(lambda twentieths: twentieths * NANO // 20)


limits = steps(12).map(lambda nano: nano / NANO)
policies = st.tuples(st.integers(1, 6), st.lists(steps(1), max_size=3), limits, st.one_of(st.none(), limits))
wanted = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(DATES),
        st.one_of(st.sampled_from("abcde"), st.sampled_from([("q0",), ("q1",), ("q2",), ("q0", "q1", "q2")])),
        steps(2),
    ),
    max_size=40,
)


Made = tuple[int, list[int], float, float | None]
QueryPeriod = tuple[int, str, str | tuple[str, ...], int]


@given(st.tuples(policies, policies), wanted)
def test_reservations_and_charges_in_any_order_cost_what_the_definition_says_and_only_what_would_not_fit_is_refused(
    made: tuple[Made, ...], asked: list[QueryPeriod]
) -> None:
    both = [a_policy(str(n), *one) for n, one in enumerate(made)]
    definition, days, total = Definition(both), {date: DayLedger() for date in DATES}, Total()
    for number, date, what, charge in asked:
        policy = both[number]
        if isinstance(what, str):
            assert days[date].charge_if_room(policy, what, charge, total) == definition.charge(
                date, policy, what, charge
            )
        else:
            queries = {name: one for name, one in reservations(policy, date).items() if name in what}
            assert days[date].reserve_if_room(policy, queries, total) == definition.reserve(date, policy, queries)
        for each in DATES:
            assert days[each].cost == definition.cost(each) <= definition.limits[each]
        assert total.spent == definition.total() <= definition.total_limit
    for (date, name), plain in definition.plain.items():
        own = days[date].policies.get(name)
        assert (own.queries if own else {}) == plain.queries
    for date, day in days.items():
        assert sum(level * places for level, places in day.levels.items()) == day.cost
        assert day.limit == (None if definition.limits[date] == float("inf") else definition.limits[date])


@given(st.tuples(policies, policies), wanted, st.integers(1, 8), steps(12))
def test_releases_fit_beside_what_is_not_reserved_yet_exactly_if_commits_would_book_them_all(
    made: tuple[Made, ...], asked: list[QueryPeriod], more: int, left: int
) -> None:
    both = [a_policy(str(n), *one) for n, one in enumerate(made)]
    day, total = DayLedger(), Total()
    for number, date, what, _ in asked:
        policy = both[number]
        if isinstance(what, tuple):
            day.reserve_if_room(policy, {k: v for k, v in reservations(policy, DAY).items() if k in what}, total)
        elif f"{date} {what}" not in getattr(day.policies.get(policy.name), "costs", {}):
            day.charge_if_room(policy, f"{date} {what}", policy.epsilon_nano, total)
    own = replace(both[0], daily_limit=(day.cost + left) / NANO)  # so that it often matters
    mine = day.policies.get("0")
    summary = DaySummary(
        releases=0,
        epsilon_sum=0,
        epsilon_user_day=day.cost,
        shared=True,
        limit=day.limit,
        sequence=0,
        levels={},
        total=total,
        policy_levels=day.policy_levels("0"),
        queries={} if mine is None else dict(mine.queries),
    )
    before = (total.spent, total.limit)
    room = fits(summary, own, more, reservations(own, DAY))
    assert (total.spent, total.limit) == before, "asking changes nothing"
    day.reserve_if_room(own, reservations(own, DAY), total)
    assert room == all(day.charge_if_room(own, f"new {n}", own.epsilon_nano, total) for n in range(more))


def test_what_is_settled_stays_settled_though_there_would_be_room_or_none_later() -> None:
    policy = asking(FAST, max_hats_per_day=2, daily_limit=1.1)
    other = policy_of(name="other", privacy={"epsilon": 1.0, "max_hats_per_day": 2, "daily_limit": 9.0})
    day, total = DayLedger(), Total()
    assert day.charge_if_room(other, "a", NANO, total)
    assert day.charge_if_room(other, "b", 40_000_000, total)
    assert day.reserve_if_room(policy, reservations(policy, DAY), total) == ["q0"]
    assert day.policies[policy.name].queries["q0"].places == 0
    assert day.reserve_if_room(policy, reservations(policy, DAY), total) == []
    assert (day.cost, total.spent, day.limit) == (1_040_000_000, 1_040_000_000, 9 * NANO)


@pytest.mark.parametrize("date", ["2021-12-31", "1999-01-01"])
def test_a_day_before_the_first_period_reserves_nothing(date: str) -> None:
    assert reservations(asking(FAST, MEAN | {"epsilon": 0.1}), date) == {}


def test_what_is_settled_is_not_asked_for_again_when_the_room_is_looked_at() -> None:
    policy = asking(
        {"kind": "over_speed_limit", "speed_limit": 40.0, "epsilon": 0.5}, max_hats_per_day=2, daily_limit=2.0
    )
    wanted = reservations(policy, DAY)
    day = DaySummary(0, 0, NANO, shared=False, limit=2 * NANO, sequence=1, levels={}, total=Total(NANO), queries=wanted)
    assert fits(day, policy, 1, wanted)
    assert not fits(day, policy, 2, wanted)
    assert not fits(replace(day, epsilon_user_day=2 * NANO), policy, 1, wanted)
