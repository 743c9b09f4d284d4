"""`hatcast.batch`: files and frames give the records, the warnings and the errors of `hatcast batch`."""

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from tests.api_data import EXACT, FRAMES, readings, written
from tests.batching import CONFIG, batch, releases
from tests.unit.test_api_policy import policy

TODAY: Any = {"name": "today", "window": "today"}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("shuffled", [None, 3])
def test_a_frame_in_any_order_gives_the_figures_of_the_file(tmp_path: Path, kind: str, shuffled: int | None) -> None:
    path = written(tmp_path / "readings.jsonl", readings())
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    printed = json.loads(batch(path, "--format", "jsonl", "--config", config, "--contributions", "--json").stdout)
    found = hatcast.raw_means(FRAMES[kind](readings(shuffled)), policy()).to_arrow().to_pylist()
    assert {f"{row['cell']}/{row['date']}/{row['slot']}": [row["users"], row["readings"]] for row in found} == {
        hat: totals[:2] for hat, totals in printed["hats"].items()
    }
    for row in found:
        users, count, total, maximum = printed["hats"][f"{row['cell']}/{row['date']}/{row['slot']}"]
        assert (row["mean"], row["maximum"]) == (total / count / 1000, maximum / 1000)
        assert users >= 4
    released = hatcast.batch(FRAMES[kind](readings(shuffled)), policy(), ledger=tmp_path / "ledger")
    assert released.outcomes == printed["outcomes"] == {"accepted": 180, "undecodable": 1}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_and_the_command_share_a_ledger_and_get_the_same_bytes(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "readings.jsonl", readings())
    config, ledger = tmp_path / "hatcast.toml", tmp_path / "ledger"
    config.write_text(CONFIG)
    first = hatcast.batch(FRAMES[kind](readings()), policy(), ledger=ledger)
    printed = batch(path, "--format", "jsonl", "--config", config, "--ledger", ledger, "--json").stdout
    assert b"".join(value + b"\n" for value in first.values).decode() == printed
    assert hatcast.batch(path, config, ledger=ledger, format="jsonl").values == first.values
    [day] = first.budget
    assert (day.releases, day.epsilon_user_day) == (4, 4.0)


def test_without_noise_to_speak_of_the_means_are_the_true_ones(tmp_path: Path) -> None:
    precise = policy(privacy=EXACT | {"epsilon": 1e6, "daily_limit": 4e7, "acknowledge_weak_privacy": True})
    released = hatcast.batch(pl.DataFrame(readings()), precise, ledger=tmp_path / "ledger").to_polars()
    true = hatcast.raw_means(pl.DataFrame(readings()), precise).to_polars()
    joined = released.join(true, on=["cell", "date", "slot"], suffix="_true")
    assert joined.height == true.height == 4
    assert (joined["mean"] - joined["mean_true"]).abs().max() < 0.05  # type: ignore[operator]  # of four rows


def test_without_a_ledger_every_call_draws_again_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(hatcast.HatcastWarning, match="costs the budget again") as caught:
        first = hatcast.batch(pl.DataFrame(readings()), policy())
    assert [Path(each.filename) for each in caught] == [Path(__file__)]
    with pytest.warns(hatcast.HatcastWarning):
        second = hatcast.batch(pl.DataFrame(readings()), policy())
    assert [each.raw for each in first] != [each.raw for each in second]
    assert [each.release_id for each in first] == [each.release_id for each in second]
    assert [*tmp_path.iterdir()] == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hatcast.batch(pl.DataFrame(readings()), policy(), ledger="ledger")


def test_hints_of_the_command_are_warnings_and_private_counts_are_not_shown(tmp_path: Path) -> None:
    cells = tmp_path / "cells.txt"
    cells.write_text('source = "public"\n8742d9d68ffffff\n')
    far = policy(timezone="America/Chicago", hours=(9, 10))
    with pytest.warns(hatcast.HatcastWarning, match=r"none of 181 records accepted; .* outside_hours"):
        assert hatcast.batch(pl.DataFrame(readings()), far, ledger=tmp_path / "1").outcomes is not None
    hidden = policy(
        timezone="America/Chicago",
        hours=(9, 10),
        cells=cells,
        privacy={"epsilon": 1.0, "max_hats_per_day": 1, "daily_limit": 1.0, "relation": "add_remove"},
        estimator={"name": "capped_ratio", "array_length": 20},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = hatcast.batch(pl.DataFrame(readings()), hidden, ledger=tmp_path / "2", days=("2022-01-02", "2022-01-02"))
    assert done.outcomes is None
    assert [each.date for each in done] == ["2022-01-02"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"format": "josnl"}, "format: 'josnl' is not a format; did you mean jsonl? use one of jsonl, itms,"),
        ({"format": "gtfs-rt"}, "data: is a table, and gtfs-rt has no columns; name the format that its columns have"),
        ({"format": "capmetro"}, "data: "),
        ({"days": ("2022-01-01", "2022-01-02")}, '`days` is for `ledger` under relation = "add_remove"'),
        ({"days": ("2022-01-01", "x")}, "days: 'x' is not a date; write two dates"),
        ({"reports": "r.jsonl"}, "`reports` is for estimators that read reports; baseline does not"),
        ({"data": 7}, "data is of the type int, which is neither a file nor a table: give a path"),
        (
            {"data": pl.LazyFrame({"a": [1]})},
            "data is of the type LazyFrame, which is neither a file nor a table",
        ),
        ({"data": []}, "data is of the type list, which is neither"),
        ({"data": "absent.jsonl", "format": "jsonl"}, "absent.jsonl: is missing; check the path"),
        ({"data": "absent.txt"}, "absent.txt: is missing; check the path"),
        ({"format": "itms", "columns": {"vehicle": "v"}}, "columns: itms records have fixed columns"),
        ({"columns": {"vehicle": "plate"}}, "data: has no column plate"),
        ({"columns": {"plate": "vehicle"}}, "columns: 'plate' is not a field"),
        (
            {"data": pl.DataFrame(readings()).drop("unit")},
            "unit: the unit of column speed is unknown; name it with `--unit` (in Python `unit`): km/h",
        ),
        ({"format": "kafka", "columns": {"vehicle": "v"}}, "format: 'kafka' is not a format"),
        ({"policy": "absent.toml"}, "absent.toml: no such file; create it with `hatcast init`, or name another file"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_the_fix_in_python(
    tmp_path: Path, arguments: dict[str, Any], line: str
) -> None:
    given: dict[str, Any] = {
        "data": pl.DataFrame(readings()),
        "policy": policy(),
        "ledger": tmp_path / "ledger",
    } | arguments
    with pytest.raises(HatcastError) as refused:
        hatcast.batch(given.pop("data"), given.pop("policy"), **given)
    text = str(refused.value)
    assert text.startswith(line)
    assert "\n" not in text
    assert "--" not in text.replace("`--unit` (in Python `unit`)", "")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (pd.DataFrame({"vehicle": [5, "SECRET"]}), "data cannot be converted to an Arrow table: column vehicle"),
        (pd.DataFrame({"vehicle": ["SECRET", 5]}), "data cannot be converted to an Arrow table: column vehicle"),
        (pl.Series("vehicle", ["SECRET"]), "data cannot be converted to an Arrow table; give each column one type"),
        ("vehicle,time\nSECRET,1\n", "data is a text of several lines, which is no path: write it to a file"),
    ],
)
def test_data_that_are_no_table_are_refused_without_their_values(data: Any, line: str) -> None:
    with pytest.raises(HatcastError) as refused:
        hatcast.batch(data, policy())
    assert str(refused.value).startswith(line)
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)  # a traceback prints both
    assert "SECRET" not in str(refused.value)


def test_the_records_are_typed_and_a_frame_of_every_library(tmp_path: Path) -> None:
    released = hatcast.batch(pl.DataFrame(readings()), policy(), ledger=tmp_path / "ledger")
    assert len(released) == 4
    assert [each.status for each in released] == ["released"] * 4
    polars, pandas, arrow = released.to_polars(), released.to_pandas(), released.to_arrow()
    assert polars["mean"].to_list() == pandas["mean"].to_list() == arrow["mean"].to_pylist()
    assert pl.DataFrame(released).equals(polars)
    assert pa.table(released).equals(arrow)
    assert pa.schema(released).equals(arrow.schema)
    assert [json.loads(each) for each in arrow["record"].to_pylist()] == [json.loads(each) for each in released.values]
    assert "record" not in repr(released)
    assert repr(released).startswith("BatchReleases: 4 rows\ndate        slot ")


def test_of_a_tracker_the_estimates_are_shown_and_are_those_of_the_ledger(tmp_path: Path) -> None:
    tracker = hatcast.Policy(
        "test", upper_bound=65.0, timezone="UTC", hours=(0, 24), privacy={"daily_limit": 10.0}, running=[TODAY]
    )
    ledger = tmp_path / "ledger"
    released = hatcast.batch(pl.DataFrame(readings()), tracker, ledger=ledger)
    assert released.estimates.values == hatcast.estimates(ledger, tracker).values
    assert released.running.values == hatcast.running_means(ledger, tracker).values
    assert len(released.estimates) > 0
    assert repr(released).endswith(repr(released.estimates))
    assert "single queries" in repr(released)
    page = released._repr_html_()
    assert page.count("<tr>") == 1 + min(10, len(released.estimates))
    assert f"<td>{released.estimates[0].cell}</td>" in page
    assert [each.estimate_id for each in released.estimates[1:]] == [each.estimate_id for each in released.estimates][
        1:
    ]
    moved = hatcast.batch(pl.DataFrame(readings()), tracker, ledger=ledger)
    ledger.rename(tmp_path / "moved")
    assert "no such file" in repr(moved)
    assert "no such file" in moved._repr_html_()
    with pytest.warns(hatcast.HatcastWarning):
        kept = hatcast.batch(pl.DataFrame(readings()), tracker)
    assert len(kept.estimates) == len(released.estimates)


def test_records_are_written_and_read_again(tmp_path: Path) -> None:
    released = hatcast.batch(pl.DataFrame(readings()), policy(), ledger=tmp_path / "ledger")
    for name in ("releases.jsonl", "releases.parquet", "releases.csv", "releases.geojson"):
        released.write(tmp_path / name)
    assert hatcast.read(tmp_path / "releases.jsonl").values == released.values
    assert hatcast.read(tmp_path / "releases.parquet").values == released.values
    assert len(json.loads((tmp_path / "releases.geojson").read_text())["features"]) == 4
    with pytest.raises(HatcastError, match=r"releases\.csv exists already"):
        released.write(tmp_path / "releases.csv")


def test_the_command_prints_what_batch_returns_for_a_policy_with_queries(tmp_path: Path) -> None:
    asking = policy(
        query=[{"name": "fast", "kind": "mean_speed", "days": 1, "epsilon": 0.5, "min_n": 1, "from_date": "2022-01-02"}]
    )
    released = hatcast.batch(pl.DataFrame(readings()), asking, ledger=tmp_path / "ledger")
    assert len(released.answers) > 0
    assert {each.query for each in released.answers} == {"fast"}
    found = releases(
        batch(
            written(tmp_path / "r.jsonl", readings()),
            *("--format", "jsonl", "--config", _file(tmp_path, asking), "--ledger", tmp_path / "ledger", "--json"),
        )
    )
    assert {each["release_id"] for each in found} == {
        *(each.release_id for each in released),
        *(each.release_id for each in released.answers),
    }


def _file(folder: Path, asking: hatcast.Policy) -> Path:
    path = folder / "asking.toml"
    [query] = asking.keys["query"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in query.items()]
    path.write_text(CONFIG + "[[policy.query]]\n" + "\n".join(lines) + "\n")
    return path


def test_the_budget_has_each_date_that_an_answer_is_charged_to(tmp_path: Path) -> None:
    query = {"name": "two-days", "kind": "mean_speed", "days": 2, "epsilon": 0.5, "min_n": 1, "from_date": "2022-01-01"}
    asking = policy(query=[query | {"missing_days": "leave_out"}])
    released = hatcast.batch(pl.DataFrame(readings()), asking, ledger=tmp_path / "ledger")
    assert {release.date for release in released} == {"2022-01-02"}
    assert {answer.first_date for answer in released.answers} == {"2022-01-01"}
    assert [(day.date, day.epsilon_user_day) for day in released.budget] == [("2022-01-01", 20.0), ("2022-01-02", 24.0)]


def test_a_file_that_cannot_be_read_costs_nothing_and_no_warning_says_that_it_does(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HatcastError, match="is missing"):
            hatcast.batch(tmp_path / "absent.jsonl", policy())
