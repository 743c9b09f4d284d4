"""`hatcast.batch` with data of any columns, values and formats, in frames and files."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from tests.api_data import EXACT, NOON, readings
from tests.services.data import ROOT
from tests.unit.test_api_policy import policy

COLUMNS = {"vehicle": "bus", "time": "when", "lat": "y", "lon": "x", "speed": "v"}


def renamed(*, as_local_text: bool = False) -> pl.DataFrame:
    """The readings with other columns, in m/s."""
    frame = pl.DataFrame(readings()).drop("unit").rename(COLUMNS)
    if as_local_text:
        local = pl.from_epoch("when", time_unit="ms").dt.offset_by("5h30m").dt.strftime("%d.%m.%Y %H:%M:%S")
        frame = frame.with_columns(local)
    return frame.with_columns(pl.col("v") / 3.6)


@pytest.mark.parametrize("to", ["polars", "pandas", "csv", "csv.gz", "parquet", "jsonl"])
def test_columns_are_named_for_frames_and_files_alike(tmp_path: Path, to: str) -> None:
    frame, path = renamed(), tmp_path / f"r.{to}"
    data: Any = {"polars": frame, "pandas": frame.to_pandas()}.get(to, path)
    if to.startswith("csv"):
        frame.to_pandas().to_csv(path, index=False)
    elif to == "parquet":
        frame.write_parquet(path)
    elif to == "jsonl":
        frame.write_ndjson(path)
    found = hatcast.raw_means(data, policy(), columns=COLUMNS, unit="m/s").to_polars()
    true = hatcast.raw_means(pl.DataFrame(readings()), policy()).to_polars()
    assert found.drop("mean", "maximum").equals(true.drop("mean", "maximum"))
    assert (found["mean"] - true["mean"]).abs().max() < 0.002  # type: ignore[operator]  # of four rows
    released = hatcast.batch(data, policy(), ledger=tmp_path / "ledger", columns=COLUMNS, unit="m/s")
    assert released.outcomes == {"accepted": 180, "undecodable": 1}


def test_columns_may_have_a_format_and_a_zone_of_times() -> None:
    columns = hatcast.Columns(COLUMNS, unit="m/s", time_format="%d.%m.%Y %H:%M:%S", times_in="Asia/Kolkata")
    found = hatcast.raw_means(renamed(as_local_text=True), policy(), columns=columns).to_polars()
    true = hatcast.raw_means(pl.DataFrame(readings()), policy()).to_polars()
    assert found.select("cell", "date", "slot", "users", "readings").equals(
        true.select("cell", "date", "slot", "users", "readings")
    )


def test_plain_names_of_columns_need_only_a_unit() -> None:
    frame = pl.DataFrame(readings()).drop("unit")
    with_unit = hatcast.raw_means(frame, policy(), unit="km/h").to_arrow()
    assert with_unit.equals(hatcast.raw_means(frame.rename({"speed": "speed_kmh"}), policy()).to_arrow())
    assert with_unit.equals(hatcast.raw_means(pl.DataFrame(readings()), policy()).to_arrow())


def test_another_value_than_the_speed_has_its_own_range_and_unit(tmp_path: Path) -> None:
    late = hatcast.Policy(
        name="delays",
        timezone="UTC",
        hours=(0, 24),
        value={"name": "delay", "unit": "s", "lower": -600, "upper": 3600},
        privacy=EXACT | {"epsilon": 1e6, "daily_limit": 4e7, "acknowledge_weak_privacy": True},  # type: ignore[arg-type]  # a plain dict
        estimator="baseline",
    )
    frame = pl.DataFrame(readings()[:-1]).with_columns(delay=-pl.col("speed")).drop("speed")
    [true, *_] = hatcast.raw_means(frame, late).to_arrow().to_pylist()
    assert (true["mean"] < 0, true["unit"]) == (True, "s")
    released = hatcast.batch(frame, late, ledger=tmp_path / "ledger")
    assert released.outcomes == {"accepted": 180}
    joined = released.to_polars().join(hatcast.raw_means(frame, late).to_polars(), on=["cell", "slot"], suffix="_true")
    assert (joined["mean"] - joined["mean_true"]).abs().max() < 1.0  # type: ignore[operator]  # of four rows
    assert joined["unit"].to_list() == ["s"] * 4


@pytest.mark.parametrize("to", ["frame", "file"])
def test_speeds_of_a_frame_are_derived_as_those_of_a_file(tmp_path: Path, to: str) -> None:
    moving = [
        {"bus": f"bus {bus}", "ts": NOON + timedelta(seconds=30 * at + bus), "lat": 21.19 + at * 0.0015, "lon": 72.81}
        for at in range(20)
        for bus in range(5)
    ]
    frame, path = pl.DataFrame(moving), tmp_path / "positions.parquet"
    frame.write_parquet(path)
    data: Any = frame if to == "frame" else path
    [row, *_] = (
        hatcast.raw_means(data, policy(), columns={"vehicle": "bus"}, derive_speed="missing").to_arrow().to_pylist()
    )
    assert row["mean"] == pytest.approx(20.0, abs=0.1)  # 166.8 m in 30 s
    released = hatcast.batch(data, policy(), ledger=tmp_path / "ledger", derive_speed="always")
    assert released.outcomes is not None
    assert released.outcomes["undecodable"] == 5  # the first position of each
    with pytest.raises(HatcastError, match="derive_speed: 'all' is unknown; use missing or always"):
        hatcast.batch(data, policy(), ledger=tmp_path / "ledger", derive_speed="all")  # type: ignore[arg-type]  # a mistake


def test_a_frame_of_a_recorded_format_is_read_as_its_file() -> None:
    path, chicago = ROOT / "tests" / "data" / "feeds" / "capmetro.csv", policy(timezone="America/Chicago")
    frame = pl.read_csv(path, infer_schema=False)
    of_file = hatcast.raw_means(path, chicago, format="capmetro").to_arrow()
    assert of_file.num_rows > 0
    assert hatcast.raw_means(frame, chicago, format="capmetro").to_arrow().equals(of_file)
    assert hatcast.raw_means(frame.to_pandas(), chicago, format="capmetro").to_arrow().equals(of_file)


def test_duckdb_reads_releases_and_its_relations_are_data(tmp_path: Path) -> None:
    rows = pl.DataFrame(readings())  # noqa: F841 - DuckDB finds it by its name
    with duckdb.connect() as database:
        relation = database.sql("SELECT * FROM rows")
        releases = hatcast.batch(relation, policy(), ledger=tmp_path / "ledger")
        [[number, mean]] = database.sql("SELECT count(*), sum(mean) FROM releases").fetchall()
    assert number == len(releases) == 4
    assert mean == pytest.approx(releases.to_polars()["mean"].sum())
