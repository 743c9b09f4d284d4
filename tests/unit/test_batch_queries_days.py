"""`hatcast batch --ledger`: when a query over days is due, which of its days are missing, and whose they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest

from tests.batching import dump_of, telemetry
from tests.folding import DAY, HOUR, MINUTE, NOON
from tests.unit.test_batch_queries import (
    DATE,
    EXACT,
    FAST,
    MEAN,
    Ride,
    Runs,
    answers,
    by_definition,
    near,
    query,
    recorded,
    rides,
    run,
)

__all__ = ["run"]  # the fixture


def test_what_a_period_has_not_reached_is_asked_of_a_later_run_that_has_all_its_days(tmp_path: Path, run: Runs) -> None:
    config = EXACT + query(**MEAN)
    some = run(config, recorded(tmp_path / "some", rides([0])))
    assert answers(some) == []
    whole = run(config, recorded(tmp_path / "whole", rides([0, 1])))
    assert [each["days_used"] for each in answers(whole)] == [2] * 4
    reached = [ride for ride in rides([0, 1]) if ride.date == DATE or ride.place[0] == "12:00"]
    cut = Runs(tmp_path / "cut")
    cut.folder.mkdir()
    assert {each["slot"] for each in answers(cut(config, recorded(tmp_path / "log", reached)))} == {"12:00"}


@pytest.mark.parametrize("query_of", [MEAN, FAST])
def test_a_day_without_data_is_missing_and_the_policy_says_what_comes_of_it(
    tmp_path: Path, run: Runs, query_of: dict[str, Any]
) -> None:
    keys = query_of | {"days": 3}
    config = EXACT + query(**keys) + query(**keys | {"name": "without", "missing_days": "leave_out"})
    ridden = rides([0, 2, 3])
    told = answers(run(config, recorded(tmp_path / "log", ridden)))
    expected = by_definition(ridden, [DATE, "2022-01-04"])
    assert len(told) == 2 * len(expected) == 8
    for each in told:
        assert (each["missing"], each["days_used"]) == (["2022-01-03"], 2)
        if each["query"] == "without":
            assert near(each["mean"], expected[each["slot"], each["cell"]][query_of is FAST])
        else:
            assert (each["status"], each["reason"]) == ("suppressed", "missing_days")
            assert "mean" not in each


def test_a_day_on_which_another_cell_has_data_is_not_missing(tmp_path: Path, run: Runs) -> None:
    ridden = [Ride(bus, NOON, lat, 50.0) for lat, bus in ((21.2, "a"), (21.2, "b"), (21.6, "c"))]
    ridden += [Ride("a", NOON + DAY, 21.6, 50.0)]
    told = answers(run(EXACT + query(**FAST), recorded(tmp_path / "log", ridden)))
    cells = [h3.latlng_to_cell(lat, 72.8, 7) for lat in (21.2, 21.6)]
    assert {each["cell"]: each["mean"] for each in told} == dict.fromkeys(cells, 1.0)
    assert all(each["days_used"] == 2 for each in told)


def test_periods_with_days_of_a_successor_are_nobodys(tmp_path: Path, run: Runs) -> None:
    def of(name: str, succession: str, **keys: object) -> str:
        return EXACT.replace('name = "test"', f'name = "{name}"\n{succession}') + query(**FAST | keys)

    assert run(of("old", ""), recorded(tmp_path / "none", [])) == []
    path = recorded(tmp_path / "log", rides([0, 1, 2, 3, 4, 5]))
    new = of("new", 'replaces = "old"\nfrom = "2022-01-05"', **{"from": "2022-01-05"})
    assert {(each["first_date"], each["last_date"]) for each in answers(run(new, path))} == {
        ("2022-01-05", "2022-01-06")
    }
    # Of the old one, 2022-01-04 to 05 would be the next period.
    assert {each["last_date"] for each in answers(run(of("old", ""), path))} == {"2022-01-03"}


def dumped(path: Path, *closing: int, starts: Sequence[int] = (), first: int = NOON - 13 * HOUR) -> Path:
    """Every bus at noon on two days, in two partitions that end with these ticks."""
    logs = telemetry(2, NOON, NOON + DAY)
    return dump_of(path, [[(first, b""), *log, (end, b"")] for log, end in zip(logs, closing, strict=True)], starts)


def test_of_a_dump_only_what_every_partitions_clock_has_closed_is_answered(tmp_path: Path, run: Runs) -> None:
    closes = NOON + DAY + HOUR + 5 * MINUTE
    slow = dumped(tmp_path / "slow", closes, closes - 1)
    assert answers(run(EXACT + query(**FAST), slow, form="kafka")) == []
    [one] = answers(run(EXACT + query(**FAST), dumped(tmp_path / "dump", closes, closes), form="kafka"))
    assert (one["status"], one["mean"]) == ("released", 0.0)


def test_the_days_of_a_dump_that_lost_records_are_missing(tmp_path: Path, run: Runs) -> None:
    closes, config = NOON + 30 * HOUR, EXACT + query(**FAST, missing_days="leave_out")
    dump = dumped(tmp_path / "dump", closes, closes, starts=[0, 7], first=NOON)
    [one] = answers(run(config, dump, form="kafka"))
    assert (one["status"], one["missing"], one["days_used"]) == ("released", [DATE], 1)
    other = Runs(tmp_path / "other")
    other.folder.mkdir()
    whole = dumped(tmp_path / "whole", closes, closes, starts=[0, 7])  # from the evening before on
    [one] = answers(other(config, whole, form="kafka"))
    assert ("missing" in one, one["days_used"]) == (False, 2)
