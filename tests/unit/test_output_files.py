"""`-o FILE` of the commands: the records and figures of standard output, in the format of the extension."""

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from hatcast.agents.tables.arrow import table_of_records
from hatcast.agents.tables.columns import layout_of
from hatcast.agents.tables.records import ANSWERS, BUDGET_DAYS, ESTIMATES, RELEASES
from hatcast.stream.errors import HatcastError
from tests.batching import CONFIG, config, recording_of
from tests.folding import DAY, HOUR, NOON
from tests.invoked import run
from tests.services.data import DATA
from tests.unit.surveyed import DAYS
from tests.unit.test_batch_queries import MEAN, query

pytestmark = pytest.mark.usefixtures("elsewhere")

__all__ = ["config"]  # the fixture

COUNTS = DATA / "itms_like_counts.json"
FORMATS = (".jsonl", ".csv", ".parquet", ".geojson")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, read with the format's own library."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".geojson":
        return [each["properties"] for each in json.loads(path.read_bytes())["features"]]
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def released(tmp_path: Path, config: Path) -> list[object]:
    """A `batch` of two days and a query over them; its ledger is new with each test."""
    config.write_text(CONFIG + query(**MEAN | {"epsilon": 1.0}))
    log = recording_of(tmp_path / "log.jsonl", NOON, NOON + HOUR, NOON + DAY, NOON + 2 * DAY)
    return ["batch", log, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger"]


@pytest.mark.parametrize("extension", FORMATS)
def test_batch_writes_the_records_that_it_prints(extension: str, released: list[object], tmp_path: Path) -> None:
    printed = run(*released, "--json").stdout.encode().splitlines()
    path = tmp_path / f"out{extension}"
    done = run(*released, "-o", path, "--all-fields")
    assert done.exit_code == 0
    names = sorted(tmp_path.glob("out*"))
    found = [row for name in names[::-1] for row in rows_of(name)]
    assert len(found) == len(printed) > 4
    assert all(f"{name}: {len(rows_of(name))} rows\n" in done.stderr for name in names)
    if extension in (".csv", ".geojson"):
        assert names == [tmp_path / f"out.answers{extension}", path]
    else:
        assert names == [path]
    if extension == ".jsonl":
        assert path.read_bytes().splitlines() == printed
    elif extension == ".geojson":
        assert all(any(record in name.read_bytes() for name in names) for record in printed)
    else:
        assert sorted(each["record"].encode() for each in found) == sorted(printed)
    if extension == ".parquet":
        assert {each["table"] for each in found} == {"releases", "answers"}
        assert found == table_of_records(layout_of([RELEASES, ANSWERS]), printed).to_pylist()


def test_batch_with_a_file_prints_the_summary_only(released: list[object], tmp_path: Path) -> None:
    done = run(*released, "-o", tmp_path / "out.csv")
    assert "Records by outcome" in done.stdout
    assert "2022-01-02" in done.stdout  # the budget of the day
    assert "Releases: private means" not in done.stdout
    assert "Answers to" not in done.stdout
    assert run(*released).stdout.count("Answers to") == 1


def test_batch_writes_estimates_after_the_releases(released: list[object], tmp_path: Path) -> None:
    printed = run(*released, "--estimates", "--json").stdout.encode().splitlines()
    run(*released, "--estimates", "-o", tmp_path / "out.parquet")
    layout = layout_of([RELEASES, ANSWERS, ESTIMATES])
    assert rows_of(tmp_path / "out.parquet") == table_of_records(layout, printed).to_pylist()


@pytest.mark.parametrize("raw", [(), ("--contributions",)])
def test_true_figures_do_not_become_a_file(raw: tuple[str, ...], released: list[object], tmp_path: Path) -> None:
    done = run(*released[:-2], *raw, "-o", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert "-o writes what is published: add --ledger" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_a_full_folder_or_a_taken_name_is_refused_before_anything_is_charged(
    released: list[object], tmp_path: Path
) -> None:
    (tmp_path / "out.csv").write_text("mine")
    for name, says in (("out.csv", "exists already"), ("none/out.csv", "does not exist"), ("out.xls", ".geojson")):
        with pytest.raises(HatcastError, match=says):
            run(*released, "-o", tmp_path / name)
    assert not (tmp_path / "ledger").exists()
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_a_file_and_json_on_standard_output_exclude_each_other(released: list[object], tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    for command in (
        released,
        ["tail"],
        ["budget", "show"],
        ["evaluate", "means", "--counts", COUNTS],
        ["survey", DAYS[0], "--format", "capmetro"],
    ):
        done = run(*command, "--json", "-o", path)
        assert done.exit_code == 2
        assert "-o writes to a file what --json prints: choose one" in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("command", ["batch", "tail", "budget show", "evaluate means", "survey"])
def test_the_help_names_the_formats(command: str) -> None:
    shown = " ".join(run(*command.split(), "--help").stdout.split())
    assert "-o, --output FILE" in shown
    assert ".jsonl, .csv" in shown
    assert (".geojson" in shown) == (command not in ("budget show", "evaluate means"))


def test_budget_writes_its_days_and_has_no_map(released: list[object], tmp_path: Path) -> None:
    run(*released)
    ledger = ("budget", "show", "--config", tmp_path / "hatcast.toml", "--ledger", tmp_path / "ledger")
    printed = json.loads(run(*ledger, "--json").stdout)
    for extension in FORMATS[:3]:
        done = run(*ledger, "-o", tmp_path / f"out{extension}")
        assert (done.stdout, done.stderr) == ("", f"{tmp_path / f'out{extension}'}: {len(printed)} rows\n")
    assert rows_of(tmp_path / "out.jsonl") == printed
    records = [msgspec.json.encode(each) for each in printed]
    assert rows_of(tmp_path / "out.parquet") == table_of_records(BUDGET_DAYS, records).to_pylist()
    assert [row["limit"] for row in rows_of(tmp_path / "out.csv")] == [str(each["limit"]) for each in printed]
    with pytest.raises(HatcastError, match=r"would have no place on a map; name a file that ends in .jsonl, .csv"):
        run(*ledger, "-o", tmp_path / "out.geojson")


def test_evaluate_writes_a_row_for_each_estimator_and_epsilon(tmp_path: Path) -> None:
    compared = (
        "evaluate",
        "means",
        "--counts",
        COUNTS,
        "--runs",
        20,
        "--eps",
        "0.5,1",
        "--estimators",
        "levy,capped_ratio:1000",
    )
    printed = json.loads(run(*compared, "--json").stdout)
    done = run(*compared, "-o", tmp_path / "out.parquet")
    assert done.stdout == ""
    assert "nothing that it prints is private" in done.stderr
    found = rows_of(tmp_path / "out.parquet")
    assert {(row["estimator"], f"{row['epsilon']:g}"): row["mae"] for row in found} == {
        (name, epsilon): error for name, row in printed["mae"].items() for epsilon, error in row.items()
    }
    assert found[-1]["suppressed"] == printed["suppressed"]["capped_ratio:1000"]["1"]
    assert [json.loads(row["settings"]) for row in found] == [printed["settings"]] * 4
    with pytest.raises(HatcastError, match="no place on a map"):
        run(*compared, "-o", tmp_path / "out.geojson")


def test_evaluate_writes_worst_cases_and_the_hybrid_model_without_loss(tmp_path: Path) -> None:
    worst = ("evaluate", "worst-case", "--counts", COUNTS, "--eps", "0.5,1")
    printed = json.loads(run(*worst, "--json").stdout)
    run(*worst, "-o", tmp_path / "worst.jsonl")
    rows = [row for row in rows_of(tmp_path / "worst.jsonl") if row["table"] == "worst_case"]
    expected = {(name, epsilon): each for name, row in printed["worst_case"].items() for epsilon, each in row.items()}
    assert len(rows) == len(expected)
    for row in rows:
        each = expected[row["estimator"], f"{row['epsilon']:g}"]
        assert {key: row[key] for key in each} == each
    hybrid = ("evaluate", "hybrid", "--runs", 20)
    printed = json.loads(run(*hybrid, "--json").stdout)
    run(*hybrid, "-o", tmp_path / "hybrid.csv")
    tables = [row["table"] for row in rows_of(tmp_path / "hybrid.csv")]
    points = [len(p) for each in printed["improvement"].values() for e in each.values() for p in e.values()]
    assert tables.count("improvement") == sum(points)
    assert tables.count("heatmap") == sum(
        len(row) for each in printed["heatmap"].values() for row in each["improvement"]
    )
    assert tables.count("amplification") == sum(map(len, printed["amplification"].values()))


def test_evaluate_writes_a_row_for_each_design_limit_and_time(tmp_path: Path) -> None:
    days = ("evaluate", "days", "--data", DAYS[0], "--format", "capmetro", "--daily-limit", "5", "--runs", 1)
    done = run(*days, "-o", tmp_path / "days.csv")
    assert (done.stdout, done.stderr.splitlines()[0]) == ("", "reads raw data; nothing that it prints is private")
    rows = rows_of(tmp_path / "days.csv")
    assert [(row["design"], row["daily_limit"], row["when"]) for row in rows if row["daily_limit"]] == [
        *(("tracker", "5.0", when) for when in ("live", "end")),
        *(("array_averaging", "5.0", when) for when in ("live", "end", "released")),
    ]
    assert {row["design"] for row in rows if row["when"] == "constant"} == {"half_bound", "city", "cell"}
    assert all(float(row["mae"]) > 0 for row in rows)
    assert [*rows[0]][-1] == "settings"


def test_survey_writes_resolutions_or_cells_and_warns_as_always(tmp_path: Path) -> None:
    surveyed = ("survey", DAYS[0], "--format", "capmetro")
    printed = json.loads(run(*surveyed, "--json").stdout)
    done = run(*surveyed, "-o", tmp_path / "out.parquet")
    assert done.stdout == ""
    assert "reads raw data; nothing that it prints or writes is private" in done.stderr
    rows = rows_of(tmp_path / "out.parquet")
    assert [str(row["resolution"]) for row in rows] == [*printed["resolutions"]]
    seven = printed["resolutions"]["7"]
    assert (rows[2]["hats"], rows[2]["users_of_a_hat_p95"]) == (seven["hats"], seven["users_of_a_hat"]["p95"])
    assert json.loads(rows[2]["users_of_a_hat_histogram"]) == seven["users_of_a_hat"]["histogram"]
    run(*surveyed, "-o", tmp_path / "out.geojson")
    cells = rows_of(tmp_path / "out.geojson")
    assert {each["cell"] for each in cells if each["busy"]} == set(printed["busy_cells"])
    assert len(cells) == seven["cells"]
