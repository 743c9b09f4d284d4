"""Records of queries over days: their fields under both relations, and that no field tells what is hidden."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import RetainedDay
from hatcast.stream.records import QUERY
from hatcast.stream.release.queries import QueryPeriod, QueryRelease, query_periods_of, query_release_of
from tests.folding import NOW
from tests.support import Scripted
from tests.unit import test_policy, test_policy_add_remove
from tests.unit.test_policy_add_remove import CELLS
from tests.unit.test_query_keys import FAST, MEAN, changed
from tests.unit.test_release_add_remove import Deaf
from tools.schemas import schema_of

SCHEMA = jsonschema.Draft202012Validator(schema_of("query"))
OVER_TWO = changed(MEAN, days=2, min_n=3)
FAST_TWO = changed(FAST, days=2, scale=None, epsilon=0.5, from_="2022-01-01")
VALUES = {"mean", "raw", "interval95"}
FIRST, LAST = "2022-01-01", "2022-01-02"

Day = list[tuple[int, int]]
"""For each user: readings and their sum, all as fast"""


def open_policy(*queries: dict[str, Any], **changes: Any) -> Policy:
    return test_policy.policy(query=list(queries), privacy__daily_limit=1e6, **changes)


def hidden(*queries: dict[str, Any], **changes: Any) -> Policy:
    return test_policy_add_remove.policy(query=list(queries), privacy__daily_limit=1e6, **changes)


def kept(day: Day) -> RetainedDay:
    rows = [(count, total, total // count) for count, total in day]
    return RetainedDay(*np.array(rows, np.int64).reshape(-1, 3).T)


def asked_of(policy: Policy, date: str = LAST, slot: str = "09:00") -> QueryPeriod:
    [asked] = query_periods_of(policy, Calendar(policy), date, slot)
    return asked


def release(policy: Policy, days: Mapping[str, Day], noise: Scripted | None = None) -> QueryRelease:
    found = {date: kept(day) for date, day in days.items()}
    return query_release_of(asked_of(policy), Calendar(policy), CELLS[0], found, noise or Scripted([0]))


def record(found: QueryRelease, now_ms: int = NOW) -> dict[str, Any]:
    """As it stands on the topic; its schema, its type and its bytes agree."""
    line = numbered(found.record(now_ms), 4711)
    read: dict[str, Any] = json.loads(line)
    SCHEMA.validate(read)
    typed = QUERY.decode(line)
    for key, value in read.items():
        held = getattr(typed, key)
        if key == "noise":
            assert {"kind": held.kind, **({} if held.scale is None else {"scale": held.scale})} == value
        else:
            assert (list(held) if isinstance(held, tuple) else held) == value
    return read


CROWD: Day = [(2, 60_000), (1, 65_000), (3, 30_000)]


def test_an_answer_tells_what_was_asked_of_when_and_what_it_costs() -> None:
    policy = open_policy(OVER_TWO, timezone="Europe/Helsinki", max_ahead="1m")
    found = record(release(policy, {FIRST: CROWD, LAST: CROWD[:1]}, Scripted([7])))
    assert found == {
        "release_id": f"surat-speed/{LAST}T09:00/{CELLS[0]}/report",
        "policy_id": policy.policy_id,
        "status": "released",
        "seq": 4711,
        "query": "report",
        "kind": "mean_speed",
        "cell": CELLS[0],
        "date": LAST,
        "slot": "09:00",
        "start": f"{FIRST}T09:00:00+02:00",
        "end": f"{LAST}T10:00:00+02:00",
        "first_date": FIRST,
        "last_date": LAST,
        "days": 2,
        "days_used": 2,
        "user_days": 4,
        "mean": 33.757,  # (30 + 65 + 10 + 30) / 4 and 7 steps of noise
        "raw": 33.757,
        "unit": "km/h",
        "noise": {"kind": "laplace", "scale": 162.51},  # 65 / 4 rounded up by a step, over 0.1
        "interval95": [0.0, 65.0],
        "covers": "noise",
        "epsilon": 0.1,
        "epsilon_user_day": 8.9,
        "most_hats": 89,
        "relation": "replace",
        "released_at": "2027-01-15T08:00:00.000Z",
    }


def test_under_add_remove_it_tells_nothing_that_counts_decide_and_a_public_instant() -> None:
    policy = hidden(FAST_TWO)
    found = record(release(policy, {FIRST: CROWD, LAST: []}))
    assert (found["mean"], found["unit"], found["speed_limit"]) == (0.5, "vehicles/day", 50.0)
    assert found["noise"] == {"kind": "laplace", "scale": 1.002}
    assert not {"seq", "user_days"} & found.keys()
    assert (found["most_hats"], found["epsilon_user_day"]) == (8, 4.0)
    assert found["released_at"] == f"{LAST}T04:35:00.000Z"
    assert record(release(policy, {FIRST: CROWD, LAST: []}), NOW + 99) == found


def test_a_number_of_vehicles_is_published_down_to_0_and_without_an_upper_end() -> None:
    policy = open_policy(changed(FAST_TWO, missing_days="leave_out"))
    low = record(release(policy, {FIRST: [], LAST: []}, Scripted([-3000])))
    assert (low["mean"], low["raw"], low["interval95"]) == (0.0, -3.0, [0.0, 0.002])
    high = record(release(policy, {FIRST: [(1, 60_000)] * 5000, LAST: []}))
    assert high["mean"] == high["raw"] == 2500.0
    assert high["interval95"][1] > 2500.0


@pytest.mark.parametrize(
    ("days", "reason", "missing", "user_days"),
    [
        ({FIRST: CROWD[:1], LAST: CROWD[:1]}, "too_few_user_days", None, 2),
        ({FIRST: CROWD}, "missing_days", [LAST], 3),
        ({LAST: CROWD[:1]}, "missing_days", [FIRST], 1),
        ({}, "missing_days", [FIRST, LAST], 0),
    ],
)
def test_what_is_suppressed_tells_why_draws_no_noise_and_is_charged_all_the_same(
    days: dict[str, Day], reason: str, missing: list[str] | None, user_days: int
) -> None:
    noise = Scripted()
    found = record(release(open_policy(OVER_TWO), days, noise))
    assert (found["status"], found["reason"], found.get("missing")) == ("suppressed", reason, missing)
    assert (found["user_days"], found["days_used"]) == (user_days, 2 - len(missing or []))
    assert (found["epsilon"], found["epsilon_user_day"]) == (0.1, 8.9)
    assert not (VALUES | {"noise", "unit", "covers"}) & found.keys()
    assert noise.asked == []


def test_a_missing_day_that_is_left_out_is_told_and_at_least_one_has_to_be_there() -> None:
    policy = open_policy(changed(OVER_TWO, missing_days="leave_out"))
    found = record(release(policy, {LAST: CROWD}))
    assert (found["status"], found["missing"], found["days_used"], found["user_days"]) == ("released", [FIRST], 1, 3)
    assert found["mean"] == 35.0
    assert record(release(policy, {}))["reason"] == "missing_days"


def test_a_query_without_room_tells_nothing_of_its_answer() -> None:
    for policy in (open_policy(FAST_TWO), hidden(FAST_TWO)):
        full, empty = release(policy, {FIRST: CROWD, LAST: CROWD}), release(policy, {})
        assert full.exhausted().record(NOW) == empty.exhausted().record(NOW)
        found = record(full.exhausted())
        assert (found["status"], found["days_used"]) == ("budget_exhausted", 0)
        assert not (VALUES | {"noise", "unit", "covers", "user_days", "missing", "reason"}) & found.keys()


# Periods on the local clock


def test_a_slot_that_the_clock_skips_on_the_last_date_closes_with_the_date_before() -> None:
    query = changed(FAST_TWO, days=2, from_="2022-03-26", missing_days="leave_out")
    policy = open_policy(query, timezone="Europe/Helsinki", hours=[0, 24])
    asked = asked_of(policy, "2022-03-26", "03:00")  # of the 27th there is no 03:00
    assert [slot.date for slot in asked.slots] == ["2022-03-26"]
    found = query_release_of(asked, Calendar(policy), CELLS[0], {"2022-03-26": kept(CROWD)}, Scripted([0]))
    told = record(found)
    assert (told["date"], told["last_date"], told["missing"]) == ("2022-03-26", "2022-03-27", ["2022-03-27"])
    assert found.date == "2022-03-26"
    assert [asked.closing.date for asked in query_periods_of(policy, Calendar(policy), "2022-03-26", "04:00")] == [
        "2022-03-27"
    ]


def test_nothing_is_asked_before_the_first_period_outside_of_the_hours_or_of_no_slot() -> None:
    policy = open_policy(FAST_TWO)
    for date, slot in (("2021-12-31", "09:00"), (FIRST, "08:00"), (FIRST, "21:00"), (FIRST, "09:30")):
        assert list(query_periods_of(policy, Calendar(policy), date, slot)) == []


# Privacy

readings = st.integers(1, 3600).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 65_000 * n)))
some_days = st.lists(st.lists(readings, max_size=5), min_size=2, max_size=2)
HIDDEN = hidden(changed(FAST_TWO, missing_days="leave_out"))
OPEN = [open_policy(query) for query in (OVER_TWO, FAST_TWO)]


@given(some_days, some_days, st.integers(-(10**6), 10**6), st.sampled_from([[LAST], [FIRST, LAST]]))
def test_under_add_remove_any_two_inputs_give_the_same_bytes_where_noise_drowns_the_values(
    one: Sequence[Day], other: Sequence[Day], draw: int, dates: list[str]
) -> None:
    noises = Deaf([draw]), Deaf([draw])
    first, second = (
        release(HIDDEN, dict(zip(dates, days, strict=False)), noise).record(NOW + number)
        for number, (days, noise) in enumerate(zip((one, other), noises, strict=True))
    )
    assert first == second
    assert noises[0].asked == noises[1].asked
    assert len(noises[0].asked) == 1, "noise is drawn also where nobody was"


@given(some_days, st.data(), st.sampled_from(OPEN))
def test_under_replace_speeds_are_told_by_the_noisy_number_alone(
    days: Sequence[Day], data: st.DataObject, policy: Policy
) -> None:
    other = [[(count, data.draw(st.integers(0, 65_000 * count))) for count, _ in day] for day in days]
    noises = Deaf([5]), Deaf([5])
    first, second = (
        release(policy, dict(zip([FIRST, LAST], given, strict=True)), noise).record(NOW)
        for given, noise in zip((days, other), noises, strict=True)
    )
    assert first == second
    assert noises[0].asked == noises[1].asked
