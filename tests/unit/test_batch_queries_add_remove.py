"""`hatcast batch --ledger` under `add_remove`: each listed cell gets its answers to queries, whoever was there."""

from pathlib import Path
from typing import Any

import pytest

from tests.batching import recording_of
from tests.folding import DAY, HOUR, NOON
from tests.unit.test_batch_add_remove import CELLS, HIDDEN, PLACES
from tests.unit.test_batch_queries import DATE, FAST, Ride, Runs, answers, query, recorded

CONFIG = HIDDEN.replace("hours = [12, 15]", "hours = [12, 14]") + query(**FAST)
LATER = "2022-01-03"
TWO_DAYS = ("--days", f"{DATE},{LATER}")
COUNTED = {"seq", "user_days", "raw", "mean", "interval95"}


@pytest.fixture
def run(tmp_path: Path) -> Runs:
    (tmp_path / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
    return Runs(tmp_path)


def told(records: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(each["date"], each["slot"], each["cell"]) for each in answers(records)]


def test_each_listed_cell_of_a_closing_slot_is_answered_right_after_the_slots_hats(tmp_path: Path, run: Runs) -> None:
    path = recorded(tmp_path / "log", [Ride("bus", NOON + DAY, PLACES[0][0], 60.0)])
    records = run(CONFIG, path, *TWO_DAYS)
    assert told(records) == [(LATER, slot, cell) for slot in ("12:00", "13:00") for cell in CELLS]
    assert [each["slot"] for each in records if each["date"] == LATER] == ["12:00"] * 6 + ["13:00"] * 6
    assert sorted(each["mean"] for each in answers(records)) == [0.0] * 5 + [0.5]
    assert run(CONFIG, path, *TWO_DAYS) == records


def test_nothing_but_the_noisy_number_tells_whether_somebody_was_there(tmp_path: Path, run: Runs) -> None:
    other = Runs(tmp_path / "other")
    other.folder.mkdir()
    (other.folder / "cells.txt").write_bytes((tmp_path / "cells.txt").read_bytes())
    crowd = recording_of(tmp_path / "crowd", NOON, NOON + HOUR, NOON + DAY)
    nobody = recorded(tmp_path / "nobody", [])
    found, empty = (answers(each(CONFIG, path, *TWO_DAYS)) for each, path in ((run, crowd), (other, nobody)))
    assert [{key: each[key] for key in each.keys() - COUNTED} for each in found] == [
        {key: each[key] for key in each.keys() - COUNTED} for each in empty
    ]
    for each in found + empty:
        assert each.keys() & COUNTED == COUNTED - {"seq", "user_days"}
        assert each["released_at"] == f"{LATER}T{int(each['slot'][:2]) + 1}:05:00.000Z"


def test_a_slot_before_the_policys_first_one_is_missing_though_somebody_was_there(tmp_path: Path, run: Runs) -> None:
    config = CONFIG + query(**FAST | {"name": "without", "missing_days": "leave_out"})
    rides = [Ride("bus", at, PLACES[0][0], 60.0) for at in (NOON, NOON + HOUR, NOON + DAY, NOON + DAY + HOUR)]
    path = recorded(tmp_path / "log", rides)
    found = answers(run(config, path, "--days", f"{LATER},{LATER}"))
    assert {(each["query"], each["status"], each.get("reason")) for each in found} == {
        ("fast", "suppressed", "missing_days"),
        ("without", "released", None),
    }
    assert all(each["missing"] == [DATE] for each in found)
    assert sorted(each["mean"] for each in found if "mean" in each) == [0.0] * 4 + [1.0] * 2
    # Without --days the slot of the first arrival is the first one.
    begun = Runs(tmp_path / "begun")
    begun.folder.mkdir()
    (begun.folder / "cells.txt").write_bytes((tmp_path / "cells.txt").read_bytes())
    found = answers(begun(CONFIG, recorded(tmp_path / "from-one", rides[1:])))
    assert {(each["slot"], each["status"]) for each in found} == {("12:00", "suppressed"), ("13:00", "released")}


def test_a_period_whose_last_day_is_not_named_is_not_answered(tmp_path: Path, run: Runs) -> None:
    path = recorded(tmp_path / "log", [Ride("bus", NOON + DAY, PLACES[0][0], 60.0)])
    assert told(run(CONFIG, path, "--days", f"{DATE},{DATE}")) == []


def test_a_period_with_a_day_that_had_no_room_is_exhausted_for_every_cell(tmp_path: Path, run: Runs) -> None:
    # Six HATs a day are listed: 60 for the HATs and 60 for the query, and all days together may cost 150.
    limits = 'unit = "user"\ntotal_limit = 150.0\ndaily_limit = 120.0'
    config = CONFIG.replace("daily_limit = 1e9", limits).replace("epsilon = 1e7", "epsilon = 10.0")
    found = run(config.replace("epsilon = 1000000.0", "epsilon = 10.0"), recorded(tmp_path / "log", []), *TWO_DAYS)
    assert {each["status"] for each in answers(found)} == {"budget_exhausted"}
    assert len(answers(found)) == 6
    assert not {"mean", "raw", "noise", "days_used"} & {key for each in answers(found) for key in each if each[key]}
