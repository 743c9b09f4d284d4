"""Laws of every query over days: its value by definition, and how far one user's day can move it (sections 1 and 7)."""

import inspect
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream import queries
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Kind, Query
from hatcast.stream.queries import KINDS, QueryKind, RetainedDay, SuppressionReason, answer_of
from hatcast.stream.release.queries import query_periods_of, query_release_of
from tests.replayed import policy_of
from tests.support import Scripted

U = 65_000
LIMIT = 40_000
Row = tuple[int, int, int]
"""count, sum, greatest of one user's day"""
Days = list[list[Row]]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
KEYS: dict[Kind, dict[str, Any]] = {
    Kind.MEAN_SPEED: {"kind": "mean_speed", "min_n": 1},
    Kind.OVER_SPEED_LIMIT: {"kind": "over_speed_limit", "speed_limit": LIMIT / 1000},
}


def asking(kind: Kind, days: int = 1, grid: float = 0.001, **keys: object) -> Policy:
    """A policy with one query of this kind, from 2022-01-01 on."""
    asked = {"name": "q", "days": days, "from": "2022-01-01", **KEYS[kind], **keys}
    if not {"epsilon", "scale"} & keys.keys():
        asked["epsilon"] = 0.1
    privacy = {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 1e9, "acknowledge_weak_privacy": True}
    return policy_of(grid=grid, privacy=privacy, query=[asked])


POLICIES = {kind: asking(kind) for kind in KINDS}


def kept(rows: Sequence[Row]) -> RetainedDay:
    return RetainedDay(*(np.array([row[i] for row in rows], np.int64) for i in range(3)))


def value(kind: Kind, days: Days) -> Fraction:
    return KINDS[kind].value([kept(day) for day in days], POLICIES[kind].queries[0])


def sensitivity(kind: Kind, days: Days) -> Fraction:
    return KINDS[kind].sensitivity(sum(map(len, days)), len(days), POLICIES[kind])


def by_definition(kind: Kind, days: Days) -> Fraction:
    """The formula, in plain Python."""
    if kind is Kind.OVER_SPEED_LIMIT:
        return Fraction(1000 * sum(greatest > LIMIT for day in days for _, _, greatest in day), len(days))
    means = [Fraction(total, count) for day in days for count, total, _ in day]
    return sum(means, Fraction(0)) / len(means)


counts = st.one_of(st.integers(1, 5), st.sampled_from([3600, 86_400, 2**31 - 1]))
speeds = st.one_of(st.sampled_from([0, LIMIT - 1, LIMIT, LIMIT + 1, U]), st.integers(0, U))


@st.composite
def rows(draw: st.DrawFn, count: int | None = None) -> Row:
    """A user's day whose readings are in [0, U]: between the greatest alone and all of them as great."""
    number, greatest = draw(counts) if count is None else count, draw(speeds)
    return number, draw(st.integers(greatest, greatest * number)), greatest


some_days = st.lists(st.lists(rows(), max_size=6), min_size=1, max_size=5).filter(any)


def test_every_kind_of_query_is_in_the_suite() -> None:
    classes = {each for each in vars(queries).values() if inspect.isclass(each) and hasattr(each, "sensitivity")}
    assert {type(each) for each in KINDS.values()} == classes - {QueryKind}
    assert KINDS.keys() == set(Kind) == KEYS.keys()


@every_kind
def test_the_sensitivity_is_handed_numbers_of_user_days_and_cannot_look_at_a_speed(kind: Kind) -> None:
    parameters = inspect.signature(KINDS[kind].sensitivity).parameters
    assert {name: each.annotation for name, each in parameters.items()} == {
        "user_days": int,
        "days": int,
        "policy": Policy,
    }


@every_kind
@given(some_days, st.randoms(use_true_random=False))
def test_the_value_is_that_of_the_definition_in_whatever_order_users_and_days_come(
    kind: Kind, days: Days, order: random.Random
) -> None:
    found, exact = value(kind, days), by_definition(kind, days)
    assert 0 <= exact - found <= Fraction(1, 2**20)  # milli-units: of mean_speed each mean is rounded down
    top = KINDS[kind].top(POLICIES[kind])
    assert 0 <= found <= (top if top is not None else 1000 * sum(map(len, days)))
    shuffled = [order.sample(day, len(day)) for day in days]
    order.shuffle(shuffled)
    assert value(kind, shuffled) == found


def test_over_speed_limit_counts_only_what_is_strictly_faster() -> None:
    days = [[(1, speed, speed) for speed in (LIMIT - 1, LIMIT, LIMIT + 1, U)], []]
    assert value(Kind.OVER_SPEED_LIMIT, days) == 1000


@every_kind
@given(data=st.data(), days=some_days)
def test_another_day_of_a_user_of_the_same_count_moves_the_value_by_at_most_the_sensitivity(
    kind: Kind, data: st.DataObject, days: Days
) -> None:
    moved = [[*day] for day in days]
    at = data.draw(st.sampled_from([(d, i) for d, day in enumerate(days) for i in range(len(day))]))
    moved[at[0]][at[1]] = data.draw(rows(days[at[0]][at[1]][0]))
    assert abs(value(kind, moved) - value(kind, days)) <= sensitivity(kind, days)


@given(data=st.data(), days=some_days)
def test_a_user_who_comes_or_goes_on_one_date_moves_over_speed_limit_by_at_most_its_sensitivity(
    data: st.DataObject, days: Days
) -> None:
    kind, more = Kind.OVER_SPEED_LIMIT, [[*day] for day in days]
    more[data.draw(st.integers(0, len(days) - 1))].append(data.draw(rows()))
    assert abs(value(kind, more) - value(kind, days)) <= sensitivity(kind, days) == sensitivity(kind, more)


@given(data=st.data(), days=some_days, limit=st.integers(0, U - 1))
def test_whatever_limit_is_requested_one_user_moves_the_value_by_at_most_the_sensitivity(
    data: st.DataObject, days: Days, limit: int
) -> None:
    """docs/proofs.md, Queries over days, step 9: neither the sensitivity nor the charge depends on the limit."""
    kind = Kind.OVER_SPEED_LIMIT
    query = replace(POLICIES[kind].queries[0], speed_limit=limit)
    moved = [[*day] for day in days]
    at = data.draw(st.sampled_from([(d, i) for d, day in enumerate(days) for i in range(len(day))]))
    moved[at[0]][at[1]] = data.draw(rows(days[at[0]][at[1]][0]))
    values = [KINDS[kind].value([kept(day) for day in each], query) for each in (days, moved)]
    assert abs(values[0] - values[1]) <= sensitivity(kind, days)
    assert query.epsilon_nano == POLICIES[kind].queries[0].epsilon_nano


def test_a_query_whose_limit_was_not_requested_reads_nothing_and_draws_nothing() -> None:
    policy = asking(Kind.OVER_SPEED_LIMIT, speed_limit=None, on_request=True)
    for days in ({"2022-01-01": kept([(1, U, U)])}, {"2022-01-01": kept([(1, 0, 0)])}):
        answer = answer_of(policy, policy.queries[0], days, Scripted())
        assert (answer.estimate, answer.reason) == (None, SuppressionReason.NOT_REQUESTED)
    with pytest.raises(ValueError, match="no speed limit was requested"):
        KINDS[Kind.OVER_SPEED_LIMIT].value([kept([(1, U, U)])], policy.queries[0])


def reaches(kind: Kind, query: QueryKind, days: Days, share: Fraction = Fraction(1)) -> bool:
    """Whether some user's day can move the value by as much as this share of what the query claims."""
    claimed = share * query.sensitivity(sum(map(len, days)), len(days), POLICIES[kind])
    (count, _, _), *others = days[0]
    slow, fast = ([[(count, speed * count, speed), *others], *days[1:]] for speed in (0, U))
    return abs(value(kind, fast) - value(kind, slow)) >= claimed


@every_kind
@given(days=st.lists(st.lists(rows(), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_sensitivity_is_attained_and_nine_tenths_of_it_would_be_too_little(kind: Kind, days: Days) -> None:
    assert reaches(kind, KINDS[kind], days)
    assert not reaches(kind, KINDS[kind], days, Fraction(11, 10))
    if kind is Kind.OVER_SPEED_LIMIT:
        gone = [[], *days[1:]]
        come = [[(1, U, U)], *days[1:]]
        assert abs(value(kind, come) - value(kind, gone)) == sensitivity(kind, come)


# Noise


def drawn(policy: Policy, days: Sequence[RetainedDay | None]) -> Scripted:
    """What one answer asks of the noise."""
    noise, calendar = Scripted([0]), Calendar(policy)
    [asked] = query_periods_of(policy, calendar, "2022-01-01", "09:00")
    dates = dict(zip(asked.period.dates, days, strict=True))
    assert query_release_of(asked, calendar, "87608b0d2ffffff", dates, noise).status == "released"
    return noise


users = st.integers(1, 400)
grids = st.sampled_from([0.001, 0.0005, 0.3, 1.0, 2.5])
exponents = st.floats(-3, 1.8).map(lambda power: round(10**power, 6))


@every_kind
@given(user_days=users, days=st.integers(1, 40), lost=st.integers(0, 5), grid=grids, scale=exponents)
def test_noise_of_a_scale_is_as_wide_as_asked_up_to_the_grid_and_costs_no_more_than_its_charge(
    kind: Kind, user_days: int, days: int, lost: int, grid: float, scale: float
) -> None:
    least = {"min_n": max(1, user_days - 7)} if kind is Kind.MEAN_SPEED else {}
    policy = asking(kind, days, grid, scale=scale, missing_days="leave_out", **least)
    query, lost = policy.queries[0], min(lost, days - 1)
    given = [kept([(1, 30_000, 30_000)] * user_days), *[kept([])] * (days - 1 - lost), *[None] * lost]
    [(_, distance, epsilon)] = drawn(policy, given).asked
    step, most = Fraction(str(grid)), charge(query)
    sensitivity = KINDS[kind].sensitivity(user_days, days - lost, policy) / 1000
    assert 0 < epsilon <= most
    assert distance * step > sensitivity
    width, asked = distance * step / Fraction(epsilon), Fraction(str(scale))
    slack = 1 + Fraction(1, 10**6)  # epsilon is charged in 1e-9, and drawn for in floats
    assert width >= asked
    if sensitivity / asked <= most:
        assert width <= asked * (1 + step / sensitivity) * slack
    else:  # days are missing: no more than the charge is spent, and the noise is wider
        assert kind is Kind.OVER_SPEED_LIMIT
        assert lost
        assert width <= (sensitivity + step) / most * slack


def charge(query: Query) -> Fraction:
    return Fraction(query.epsilon_nano, 10**9)


@every_kind
@given(epsilon=st.floats(0.001, 20), user_days=users)
def test_noise_of_an_epsilon_is_drawn_for_exactly_that_and_charged_rounded_up(
    kind: Kind, epsilon: float, user_days: int
) -> None:
    policy = asking(kind, 3, epsilon=epsilon)
    day = kept([(2, 60_000, 30_000)] * user_days)
    [(asked, distance, spent)] = drawn(policy, [day, day, day]).asked
    assert spent == epsilon
    assert charge(policy.queries[0]) - Fraction(1, 10**9) < Fraction(repr(epsilon)) <= charge(policy.queries[0])
    found = KINDS[kind].sensitivity(3 * user_days, 3, policy)
    assert distance == Grid(policy.grid).distance(found)
    assert asked == (30_000 if kind is Kind.MEAN_SPEED else 0)
