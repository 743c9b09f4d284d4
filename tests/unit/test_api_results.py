"""Results of the Python API: what follows from frames, typed frames of pandas, single queries, files and figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import msgspec
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection

import hatcast
from tests.stored_map import ledger_in


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> hatcast.BatchReleases:
    folder = tmp_path_factory.mktemp("results")
    ledger, _ = ledger_in(folder)
    return hatcast.batch(folder / "rides.jsonl", folder / "hatcast.toml", ledger=ledger)


FRAMES: list[Callable[[hatcast.Releases], Any]] = [
    hatcast.Releases.to_polars,
    hatcast.Releases.to_pandas,
    hatcast.Releases.to_arrow,
]


@pytest.mark.parametrize("to", FRAMES)
def test_estimates_and_running_means_follow_from_a_frame(
    to: Callable[[hatcast.Releases], Any], released: hatcast.BatchReleases
) -> None:
    policy = released._settings
    assert hatcast.estimates(to(released), policy).values == released.estimates.values
    assert hatcast.running_means(to(released), policy).values == released.running.values


def test_a_frame_without_the_records_is_one_line(released: hatcast.BatchReleases) -> None:
    with pytest.raises(hatcast.HatcastError, match="the frame has no column 'record'"):
        hatcast.estimates(released.to_polars().drop("record"), released._settings)


def test_pandas_has_types_also_where_values_are_missing(released: hatcast.BatchReleases) -> None:
    types = released.to_pandas().dtypes
    assert isinstance(types["users"], pd.Int64Dtype)
    assert isinstance(types["running_count"], pd.Int64Dtype), "no row has one"
    assert isinstance(types["settlement"], pd.BooleanDtype)
    assert str(types["date"]).startswith("datetime64")
    assert str(types["mean"]) == "float64"


def test_the_single_queries_are_a_frame_that_shows_them(released: hatcast.BatchReleases) -> None:
    assert released.queries.values == released.values
    assert repr(released.queries).startswith(f"Releases: {len(released)} rows")


def test_the_estimates_that_are_shown_have_a_mean(released: hatcast.BatchReleases) -> None:
    estimates = released.estimates
    without = [msgspec.json.encode({**msgspec.json.decode(each), "stage": "predicted"}) for each in estimates.values]
    bare = hatcast.Estimates.of(_without_mean(each) for each in without)
    mixed = hatcast.Estimates([*bare.values, *estimates.values])
    shown = repr(mixed).splitlines()
    means = [f"{each.mean.value:.2f}" for each in estimates if each.mean is not None][:10]
    assert [line.split()[4] for line in shown[2 : 2 + len(means)]] == means
    assert shown[-1] == f".. {len(mixed) - len(means):,} more"
    assert len(repr(bare).splitlines()) >= 2 + min(10, len(bare)), "none has a mean: they are shown as they are"


def _without_mean(record: bytes) -> bytes:
    fields = msgspec.json.decode(record)
    return msgspec.json.encode({name: fields[name] for name in fields if name not in ("mean", "residual_z")})


def test_an_hour_is_drawn_with_all_its_hexagons_and_the_last_one_if_none_is_named(
    released: hatcast.BatchReleases,
) -> None:
    mpl.use("Agg")
    for given, title in (((), "2022-01-04, 13:00"), (("2022-01-02", "12:00"), "2022-01-02, 12:00")):
        axes = released.plot(*given)
        [hexagons] = [each for each in axes.collections if isinstance(each, PolyCollection)]
        assert axes.get_title() == title
        date, slot = title.split(", ")
        shown = [each for each in released.estimates if (each.date, each.slot) == (date, slot)]
        values = hexagons.get_array()
        assert values is not None
        assert values.tolist() == [(each.mean or each.road).value for each in shown]
        mpl.pyplot.close("all")
    with pytest.raises(hatcast.HatcastError, match="no estimate of this date and hour"):
        released.plot(hour="03:00")


def test_results_are_written_for_spreadsheets_and_as_a_map(released: hatcast.BatchReleases, tmp_path: Path) -> None:
    released.estimates.to_csv(tmp_path / "out.csv", decimal=",")
    assert (tmp_path / "out.csv").read_text().startswith("hexagon;latitude;")
    released.write(tmp_path / "all.csv", all_fields=True)
    assert "record" in (tmp_path / "all.csv").read_text().partition("\n")[0].split(",")
    released.write_map(tmp_path / "map.html")
    assert (tmp_path / "map.html").read_text().startswith("<!doctype html>")
