"""What the map keeps: the last day, whatever comes in whatever order."""

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.map import history as kept_module
from hatcast.agents.map.history import MAX_POLICIES, History, names_of
from hatcast.agents.map.record import RecordKind, read_budget
from tests.displaying import CELLS, DAY_MS, budget, estimate, feed, filed, publish, release

comings = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(CELLS)), max_size=30)


def taken(records: list[bytes]) -> History:
    kept = History(DAY_MS)
    for offset, record in enumerate(records):
        kept.add(filed(record, 0, offset))
    return kept


def records_of(kept: History) -> set[bytes]:
    policies = kept.policies.values()
    return {each.record for policy in policies for slot in policy.slots.values() for each in slot.records.values()}


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
    assert [kept.add(filed(release(1), 0, offset)) for offset in (0, 1)] == [True, False]
    assert kept.policies["city"].version == 1


def test_two_months_of_releases_leaves_one_day_of_them() -> None:
    kept = History(DAY_MS)
    for hour in range(24 * 60):
        kept.add(filed(release(hour), 0, hour))
    assert len(records_of(kept)) == 24
    assert sum(1 for _ in kept.since({})) == 24


def test_the_oldest_slot_is_forgotten_where_there_are_too_many_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MAX_RECORDS", 6)
    kept = taken([release(hour, cell) for hour in range(4) for cell in CELLS[:2]])
    assert sorted(kept.policies["city"].slots) == ["2022-01-02T10:00", "2022-01-02T11:00", "2022-01-02T12:00"]


def test_of_many_policies_those_with_the_newest_slots_are_kept() -> None:
    kept = taken([release(hour, policy=f"policy-{hour}") for hour in range(MAX_POLICIES + 3)])
    assert names_of(kept)[0] == f"policy-{MAX_POLICIES + 2}"
    assert len(kept.policies) == MAX_POLICIES
    assert {each.policy for each in kept.since({})} == set(names_of(kept))


def test_of_a_days_budgets_the_one_with_the_greatest_number_holds() -> None:
    kept = History(DAY_MS)
    for offset, seq in enumerate((2, 3, 1)):
        kept.add_budget(read_budget(budget(seq=seq), offset))
    assert [json.loads(each.record)["seq"] for each in kept.budgets()] == [3]


def test_the_budgets_of_days_that_are_over_are_forgotten() -> None:
    kept = History(DAY_MS)
    for day in (1, 2, 3, 4):
        kept.add_budget(read_budget(budget(date=f"2022-01-0{day}"), day))
    kept.add(filed(release(24 + 10), 0, 0))
    assert sorted(each.date for each in kept.budgets()) == ["2022-01-03", "2022-01-04"]


@given(st.lists(st.integers(0, 65_000), min_size=1, max_size=80))
def test_the_colours_span_whole_steps_and_nearly_all_means(milli: list[int]) -> None:
    means = [each / 1000 for each in milli]
    kept = taken([release(hour % 24, CELLS[hour // 24], f"{mean:.3f}") for hour, mean in enumerate(means)])
    low, high = kept.policies["city"].value_range()
    assert low % 5 == high % 5 == 0
    assert low < high
    assert sum(low <= mean <= high for mean in means) >= len(means) - 2 * (len(means) // 40)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((-120.5, 300.0), (-200.0, 300.0)),
        ((0.12, 0.3), (0.12, 0.3)),
        ((12_000.0, 12_001.0), (12_000.0, 12_001.0)),
        ((-7.0, -7.0), (-7.0, -6.0)),
        ((0.0, 0.0), (0.0, 0.2)),
    ],
)
def test_the_colours_of_another_value_span_round_steps_of_its_own_range(
    means: tuple[float, ...], expected: tuple[float, float]
) -> None:
    records = [release(hour, mean=str(mean)).replace(b"km/h", b"s") for hour, mean in enumerate(means)]
    assert taken(records).policies["city"].value_range() == expected


def test_an_instant_without_an_offset_is_no_release() -> None:
    record = release(1).replace(b"+05:30", b"")
    with pytest.raises(ValueError, match="offset"):
        filed(record, 0, 0)


def test_a_release_is_filed_by_the_instants_of_its_own_text() -> None:
    found = filed(release(1), 3, 17)
    assert datetime.fromtimestamp(found.start_ms / 1000).astimezone() == datetime.fromisoformat(found.start)
    assert (found.partition, found.offset, found.slot, found.policy) == (3, 17, "2022-01-02T10:00", "city")


stages = st.sampled_from(["live", "predicted", "settled"])


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(CELLS), stages), max_size=60))
def test_of_a_hats_estimates_the_last_one_is_kept_and_those_of_a_day(coming: list[tuple[int, str, str]]) -> None:
    kept = taken([estimate(hour, cell, stage) for hour, cell, stage in coming])
    newest = max((hour for hour, *_ in coming), default=0)
    last = {(hour, cell): estimate(hour, cell, stage) for hour, cell, stage in coming if hour > newest - 24}
    # One that came before it was too old, and was not sent again, is gone.
    assert records_of(kept) == set(last.values())
    assert {each.record for each in kept.since({})} == set(last.values())
    assert sum(policy.count for policy in kept.policies.values()) == len(last)


def test_an_estimate_that_comes_twice_changes_nothing_and_one_that_differs_does() -> None:
    kept = History(DAY_MS)
    records = [estimate(1), estimate(1), estimate(1, stage="settled"), estimate(1, stage="settled")]
    assert [kept.add(filed(record, 0, offset)) for offset, record in enumerate(records)] == [True, False, True, False]
    assert kept.policies["city"].version == 2


def test_an_estimate_that_is_replaced_for_ever_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "_MIN_COMPACTION", 10)
    kept = taken([estimate(1, road=at / 100) for at in range(500)])
    assert sum(map(len, kept._log.values())) <= 13
    assert [each.offset for each in kept.since({})] == [499]


@pytest.mark.parametrize("kind", ["settlement", "pulse"])
def test_a_query_of_several_hats_is_not_a_release_of_the_cell_and_hour_that_it_names(kind: str) -> None:
    query = json.loads(release(1)) | {"release_id": f"city/2022-01-02T{kind}/00001"}
    made = feed([json.dumps(query).encode(), release(1)])
    assert [each.record for each in made.histories[RecordKind.RELEASES].since({})] == [release(1)]


def test_releases_and_estimates_of_a_hat_are_kept_apart() -> None:
    made = feed([release(1), estimate(1), estimate(2, stage="predicted")])
    publish(made, [release(3)])
    assert {each.record for each in made.histories[RecordKind.RELEASES].since({})} == {release(1), release(3)}
    assert {each.record for each in made.histories[RecordKind.ESTIMATES].since({})} == {
        estimate(1),
        estimate(2, stage="predicted"),
    }
