"""Commands that read recordings with named columns, as recordings of a fixed format."""

import csv
import gzip
import io
import json
from itertools import islice
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from hatcast.agents.cli import hatcast
from tests.invoked import printed, refusal, run
from tests.services.data import DATA

DAY = DATA / "capmetro" / "2017-03-21.csv.gz"
LINES = 4_000
COLUMNS = ("--columns", "vehicle=plate,lat=y", "--columns", "lon=x,speed=v", "--unit", "m/s")
CONFIG = """
[policy]
name = "t"
upper_bound = 65
timezone = "America/Chicago"
hours = [0, 24]
[policy.privacy]
epsilon = 1
max_hats_per_day = 89
daily_limit = 89
[policy.estimator]
name = "baseline"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy, and the same readings in a fixed format and with other names."""
    folder = tmp_path_factory.mktemp("columns")
    (folder / "hatcast.toml").write_text(CONFIG)
    with gzip.open(DAY, "rt", encoding="utf-8") as file:
        lines = list(islice(file, LINES))
    (folder / "day.csv").write_text("".join(lines))
    header = "plate,ts,v,route,trip,y,x,sign\n"
    (folder / "mapped.csv").write_text("".join((header, *lines[1:])))
    rows = list(csv.DictReader(io.StringIO("".join((header, *lines[1:])))))
    (folder / "mapped.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "mapped.csv"), folder / "mapped.parquet")
    return folder


@pytest.mark.parametrize("name", ["csv", "parquet", "jsonl"])
def test_batch_counts_the_same_by_named_columns_as_by_fixed_ones(folder: Path, name: str) -> None:
    arguments = ("--config", folder / "hatcast.toml", "--contributions", "--json")
    expected = printed("batch", folder / "day.csv", "--format", "capmetro", *arguments)
    columns = (*COLUMNS, "--columns", "time=ts")  # JSON has no header, so each name is given
    assert printed("batch", folder / f"mapped.{name}", "--format", name, *columns, *arguments) == expected
    assert json.loads(expected)["outcomes"]["accepted"] > 100


@pytest.mark.parametrize(
    "arguments",
    [
        ("survey", "{file}", "--hours", "0,24", "--timezone", "America/Chicago"),
        ("evaluate", "means", "--data", "{file}", "--runs", "2"),
        ("plan", "tracker", "--data", "{file}", "--min-users", "1", "--daily-limit", "5"),
    ],
    ids=lambda each: each[0],
)
def test_other_commands_read_named_columns(folder: Path, arguments: tuple[str, ...]) -> None:
    command, *others = arguments
    rest = [*others, "--config", str(folder / "hatcast.toml"), "--json"]
    fixed = [each.format(file=folder / "day.csv") for each in rest]
    mapped = [each.format(file=folder / "mapped.csv") for each in rest]
    expected = printed(command, *fixed, "--format", "capmetro")
    found = printed(command, *mapped, "--format", "csv", *COLUMNS)
    assert found.replace("mapped.csv", "day.csv") == expected


def test_a_pipe_and_json_are_not_polluted_and_logs_have_no_rows(folder: Path) -> None:
    done = run(
        "batch", folder / "mapped.csv", "--format", "csv", *COLUMNS, "--config", folder / "hatcast.toml", "--json"
    )
    assert json.loads(done.stdout)["outcomes"]
    assert done.stderr == ""


def test_three_decoded_rows_are_shown_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    done = run(
        "batch", folder / "mapped.csv", "--format", "csv", *COLUMNS, "--config", folder / "hatcast.toml", "--json"
    )
    assert "mapped.csv: the first rows as they are read (raw data, not private)" in done.stderr
    assert "2017-03-21 00:00:31-05:00" in done.stderr
    assert "17.43456 m/s" in done.stderr
    assert done.stderr.count("2017-03-21 ") == 3
    assert json.loads(done.stdout)["outcomes"]


NO_UNIT = "unit: the unit of column v is unknown; name it with `--unit` (in Python `unit`): km/h, m/s, mph or kn"
NO_PLACE = (
    "mapped.csv: its columns (those that `hatcast check` prints) do not plainly show lat, lon, value; write columns"
    " such as lat=COLUMN,lon=COLUMN,value=COLUMN"
)
NO_TIME = (
    "mapped.csv: none of its first 1000 rows can be decoded: time is not a time of this format: name it with"
    " `--time-format`, such as '%d.%m.%Y %H:%M:%S'; or correct --columns"
)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), NO_PLACE),
        (
            COLUMNS[:-2],
            NO_UNIT,
        ),
        (
            (*COLUMNS, "--columns", "time=at"),
            "mapped.csv: has no column at, named as time; name one of those that `hatcast check` prints",
        ),
        ((*COLUMNS, "--time-format", "%d.%m.%Y %H:%M"), NO_TIME),
        ((*COLUMNS, "--time-format", "secs"), "time_format: 'secs' is not a time format; "),
        ((*COLUMNS, "--times-in", "Chicago"), "times_in: 'Chicago' is not a known time zone; "),
        (("--columns", "plate"), "columns: 'plate' is not FIELD=COLUMN; "),
        (("--where", "kind"), "where: 'kind' is not COLUMN=VALUE; write a column and its value, such as kind=bus"),
    ],
)
def test_wrong_columns_end_with_one_line_that_names_no_data(folder: Path, options: tuple[str, ...], line: str) -> None:
    found = refusal("batch", folder / "mapped.csv", "--format", "csv", *options, "--config", folder / "hatcast.toml")
    assert line in found.replace(f"{folder}/", "")
    assert "2619" not in found


def test_decimal_commas_are_refused_by_name(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "comma.csv"
    path.write_text("bus;time;lat;lon;speed_kmh\n" + "7;2022-01-02 10:00:00;52,5;13,4;38\n" * 20)
    found = refusal("batch", path, "--format", "csv", "--config", folder / "hatcast.toml")
    assert "lat has a decimal comma: `--decimal ,` reads it" in found


def test_few_rows_that_cannot_be_decoded_are_counted(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("bus,time,lat,lon,speed_kmh\n7,2022-01-02 10:00:00,52.5,13.4,\n")
    found = printed("batch", path, "--format", "csv", "--config", folder / "hatcast.toml", "--json")
    assert json.loads(found)["outcomes"] == {"undecodable": 1}


def test_options_of_columns_need_a_format_that_has_columns(folder: Path) -> None:
    config = ("--config", folder / "hatcast.toml")
    found = refusal("batch", folder / "day.csv", "--format", "capmetro", *COLUMNS, *config)
    assert found == "columns: capmetro records have fixed columns; remove it, or use csv, parquet, jsonl"
    found = refusal("batch", folder / "day.csv", "--format", "capmetro", "--unit", "km/h", *config)
    assert found == "unit: capmetro records have fixed columns; remove it, or use csv, parquet, jsonl"
    assert "columns: kafka records have" in refusal("batch", folder / "day.csv", "--format", "kafka", *COLUMNS, *config)
    done = run("evaluate", "means", "--counts", folder / "no.json", "--unit", "m/s")
    assert done.exit_code == 2
    assert "--columns and the other options of a format need --format" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--format", "csv", *COLUMNS), "a message of CSV has no header"),
        (("--format", "parquet"), "parquet is a format of files"),
        (("--format", "jsonl", "--columns", "vehicle=bus"), "unit: the unit of the speeds is unknown"),
    ],
)
def test_live_sources_need_columns_that_no_header_shows(folder: Path, options: tuple[str, ...], line: str) -> None:
    topic = ("feed", "mqtt", "--host", "127.0.0.1", "--topic", "bus", "--config", folder / "hatcast.toml")
    assert line in refusal(*topic, *options)


def test_the_format_is_that_of_the_contents_unless_it_is_given(tmp_path: Path) -> None:
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    text = "vehicle,time,lat,lon,speed_kmh\n" + "".join(f"{n},2022-01-03T12:00:00Z,21.2,72.8,30\n" for n in range(5))
    (tmp_path / "day.txt").write_text(text)
    named = CliRunner().invoke(hatcast, ["batch", str(tmp_path / "day.txt"), "--config", str(config), "--json"])
    given = CliRunner().invoke(
        hatcast, ["batch", str(tmp_path / "day.txt"), "--format", "csv", "--config", str(config), "--json"]
    )
    assert named.exit_code == 0, named.stderr
    assert json.loads(named.stdout)["outcomes"] == json.loads(given.stdout)["outcomes"] == {"accepted": 5}


def test_check_takes_options_of_columns_without_a_format(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("vehicle,time,lat,lon,speed\n7,2022-01-03T12:00:00Z,21.2,72.8,7.5\n")
    done = CliRunner().invoke(hatcast, ["check", str(path), "--unit", "m/s"])
    assert (done.exit_code, "format: csv" in done.stdout) == (0, True), done.output
    (tmp_path / "export.txt").write_text(path.read_text())
    assert (
        CliRunner().invoke(hatcast, ["check", str(tmp_path / "export.txt")]).stdout
        == CliRunner().invoke(hatcast, ["check", str(path)]).stdout
    )
