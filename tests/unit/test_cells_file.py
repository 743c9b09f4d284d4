"""The file that `policy.cells` names."""

from datetime import date, timedelta

import h3.api.basic_int as h3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.policy.cells_file import SOURCES, CellsFile, SelectionCost, read_cells_file
from hatcast.stream.policy.policy import Policy, read_policy
from tests.replayed import policy_of

CELLS = frozenset(h3.grid_disk(0x87608B0D2FFFFFF, 1))
COST = 'epsilon = 0.5\ndays = "2022-01-02,2022-01-08"\ntimezone = "UTC"\n'
chosen = st.builds(
    lambda epsilon, first, days: SelectionCost(epsilon, first, first + timedelta(days=days)),
    st.floats(1e-3, 10),
    st.dates(date(2000, 1, 1), date(2100, 1, 1)),
    st.integers(0, 400),
)


@given(source=st.sampled_from(SOURCES), cost=chosen, cells=st.frozensets(st.sampled_from(sorted(CELLS))))
def test_a_file_is_read_again_with_its_source_and_its_cost_and_without_its_remarks(
    source: str, cost: SelectionCost, cells: frozenset[int]
) -> None:
    listed = CellsFile(source, cells, *((cost, "Asia/Kolkata") if source == "private" else ()))
    text = listed.text(["# a remark", "and another"])
    assert text.startswith(f'source = "{source}"\n# # a remark\n')
    assert read_cells_file(text, "cells", 7) == listed
    assert read_cells_file(text.replace("# and another", ""), "cells", 7).canonical == listed.canonical


@pytest.mark.parametrize(
    "cost",
    [
        "",
        COST.splitlines()[0],
        COST.replace("0.5", "0"),
        COST.replace("0.5", "x"),
        COST.replace("0.5", "nan"),
        COST.replace("0.5", "1e-999999999"),
        COST.replace(",2022-01-08", ",2021"),
    ],
)
def test_a_private_list_that_does_not_say_what_it_has_cost_is_refused(cost: str) -> None:
    with pytest.raises(SettingError, match="does not state its privacy cost; let `hatcast survey --private` write"):
        read_cells_file(f'source = "private"\n{cost}\n87608b0d2ffffff\n', "cells", 7)


def test_a_list_that_is_not_private_has_no_cost() -> None:
    with pytest.raises(SettingError, match="line 2 is not an H3 index of resolution 7"):
        read_cells_file(f'source = "survey"\n{COST}87608b0d2ffffff\n', "cells", 7)


@pytest.mark.parametrize("line", ["-1", "-87608b0d2ffffff", "f" * 17, "1" + "0" * 5000, "87608b0d2ffffff 1", "x"])
def test_a_line_that_is_no_unsigned_number_of_64_bits_is_no_index(line: str) -> None:
    with pytest.raises(SettingError, match="line 2 is not an H3 index of resolution 7"):
        read_cells_file(f'source = "public"\n{line}\n', "cells", 7)


def test_a_policy_with_a_private_list_is_another_one_when_the_list_has_cost_something_else() -> None:
    def policy(text: str) -> Policy:
        table = {"name": "p", "upper_bound": 65.0, "timezone": "UTC", "cells": "cells.txt"}
        privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 9.0}
        tables = {"privacy": privacy, "estimator": {"name": "baseline"}}
        return read_policy(table | tables, {"baseline": ESTIMATORS["baseline"].keys}, lambda _: text)

    text = f'source = "private"\n{COST}87608b0d2ffffff\n'
    first = policy(text)
    assert first.selection_cost == SelectionCost(0.5, date(2022, 1, 2), date(2022, 1, 8))
    assert first.policy_id != policy(text.replace("0.5", "0.25")).policy_id
    assert policy_of().selection_cost is None


@pytest.mark.parametrize("key", ["cells", "fine_cells"])
def test_a_private_list_of_another_time_zone_is_refused_since_other_days_would_be_charged(key: str) -> None:
    cell, resolutions = ("87608b0d2ffffff", {}) if key == "cells" else ("88608b0d21fffff", {"resolutions": [7, 8]})
    text = f'source = "private"\n{COST}{cell}\n'

    def policy(timezone: str, listed: str = text) -> Policy:
        return policy_of(files={"kept.txt": listed}, timezone=timezone, **{key: "kept.txt"}, **resolutions)

    assert policy("UTC").selection_cost is not None
    with pytest.raises(SettingError) as refused:
        policy("Asia/Kolkata")
    assert str(refused.value) == (
        f"policy.{key} (kept.txt): has cost days of UTC, and policy.timezone is Asia/Kolkata: other days would be"
        ' charged; use timezone = "UTC", or select again by `hatcast survey --private` under this one'
    )
    with pytest.raises(SettingError, match="does not state the time zone of its days; add the line timezone = "):
        policy("UTC", text.replace('timezone = "UTC"\n', ""))


@pytest.mark.parametrize(("last", "is_read"), [("2032-01-08", True), ("2032-01-09", False)])
def test_a_list_that_names_more_than_ten_years_of_days_is_refused(last: str, *, is_read: bool) -> None:
    text = f'source = "private"\nepsilon = 0.5\ndays = "2022-01-01,{last}"\ntimezone = "UTC"\n'
    if is_read:
        listed = read_cells_file(text, "cells", 7).cost
        assert listed is not None
        assert len(listed.dates) == 3_660
        return
    with pytest.raises(SettingError, match="names more than 3,660 days"):
        read_cells_file(text, "cells", 7)
