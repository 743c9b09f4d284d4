"""What the map keeps: the last day, whatever comes in whatever order."""

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.map import history as kept_module
from hatcast.agents.map.history import MAX_POLICIES, History
from hatcast.agents.map.record import read_budget, read_release
from tests.displaying import CELLS, DAY_MS, budget, release

comings = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(CELLS)), max_size=30)


def taken(records: list[bytes]) -> History:
    kept = History(DAY_MS)
    for offset, record in enumerate(records):
        kept.add(read_release(record, 0, offset))
    return kept


def records_of(kept: History) -> set[bytes]:
    policies = kept.policies.values()
    return {each.record for policy in policies for slot in policy.slots.values() for each in slot.releases.values()}


@given(comings)
def test_what_ended_within_a_day_of_the_newest_slot_is_kept_and_nothing_else(coming: list[tuple[int, str]]) -> None:
    records = [release(hour, cell) for hour, cell in coming]
    newest = max((hour for hour, _ in coming), default=0)
    assert records_of(taken(records)) == {release(hour, cell) for hour, cell in coming if hour > newest - 24}


@given(comings)
def test_the_log_of_changes_holds_what_is_kept_and_no_more(coming: list[tuple[int, str]]) -> None:
    kept = taken([release(hour, cell) for hour, cell in coming])
    assert {each.record for each in kept.since({})} == records_of(kept)
    assert sum(1 for _ in kept.since({})) == sum(policy.count for policy in kept.policies.values())


@given(comings, st.integers(0, 60))
def test_what_is_told_since_an_offset_is_what_came_from_there_on(coming: list[tuple[int, str]], begin: int) -> None:
    kept = taken([release(hour, cell) for hour, cell in coming])
    told = [each.offset for each in kept.since({0: begin})]
    assert told == sorted(each.offset for each in kept.since({}) if each.offset >= begin)


def test_a_release_that_comes_twice_changes_nothing() -> None:
    kept = History(DAY_MS)
    assert [kept.add(read_release(release(1), 0, offset)) for offset in (0, 1)] == [True, False]
    assert kept.policies["city"].version == 1


def test_two_months_of_releases_leaves_one_day_of_them() -> None:
    kept = History(DAY_MS)
    for hour in range(24 * 60):
        kept.add(read_release(release(hour), 0, hour))
    assert len(records_of(kept)) == 24
    assert sum(1 for _ in kept.since({})) == 24


def test_the_oldest_slot_is_forgotten_where_there_are_too_many_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MAX_RELEASES", 6)
    kept = taken([release(hour, cell) for hour in range(4) for cell in CELLS[:2]])
    assert sorted(kept.policies["city"].slots) == ["2022-01-02T10:00", "2022-01-02T11:00", "2022-01-02T12:00"]


def test_of_many_policies_those_with_the_newest_slots_are_kept() -> None:
    kept = taken([release(hour, policy=f"policy-{hour}") for hour in range(MAX_POLICIES + 3)])
    assert kept.names()[0] == f"policy-{MAX_POLICIES + 2}"
    assert len(kept.policies) == MAX_POLICIES
    assert {each.policy for each in kept.since({})} == set(kept.names())


def test_of_a_days_budgets_the_one_with_the_greatest_number_holds() -> None:
    kept = History(DAY_MS)
    for offset, seq in enumerate((2, 3, 1)):
        kept.add_budget(read_budget(budget(seq=seq), offset))
    assert [json.loads(each.record)["seq"] for each in kept.budgets()] == [3]


def test_the_budgets_of_days_that_are_over_are_forgotten() -> None:
    kept = History(DAY_MS)
    for day in (1, 2, 3, 4):
        kept.add_budget(read_budget(budget(date=f"2022-01-0{day}"), day))
    kept.add(read_release(release(24 + 10), 0, 0))
    assert sorted(each.date for each in kept.budgets()) == ["2022-01-03", "2022-01-04"]


@given(st.lists(st.integers(0, 65_000), min_size=1, max_size=80))
def test_the_colours_span_whole_steps_and_nearly_all_means(milli: list[int]) -> None:
    means = [each / 1000 for each in milli]
    kept = taken([release(hour % 24, CELLS[hour // 24], f"{mean:.3f}") for hour, mean in enumerate(means)])
    low, high = kept.policies["city"].value_range()
    assert low % 5 == high % 5 == 0
    assert low < high
    assert sum(low <= mean <= high for mean in means) >= len(means) - 2 * (len(means) // 40)


def test_an_instant_without_an_offset_is_no_release() -> None:
    record = release(1).replace(b"+05:30", b"")
    with pytest.raises(ValueError, match="offset"):
        read_release(record, 0, 0)


def test_a_release_is_filed_by_the_instants_of_its_own_text() -> None:
    filed = read_release(release(1), 3, 17)
    assert datetime.fromtimestamp(filed.start_ms / 1000).astimezone() == datetime.fromisoformat(filed.start)
    assert (filed.partition, filed.offset, filed.slot, filed.policy) == (3, 17, "2022-01-02T10:00", "city")
