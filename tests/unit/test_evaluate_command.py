"""`hatcast evaluate`: what it prints and what it refuses. Who may use its simulation: test_imports.py."""

import json
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from hatcast.lab.cli.evaluate import command
from hatcast.lab.evaluate.contenders import DEFAULT, GRID
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.estimators.vectors import LINEAR
from tests.invoked import run
from tests.services.data import DATA

pytestmark = pytest.mark.usefixtures("elsewhere")

COUNTS = DATA / "itms_like_counts.json"


def evaluate(*arguments: object, what: str = "means") -> Result:
    return run("evaluate", what, *arguments)


def test_json_has_settings_and_an_error_for_each_estimator_and_epsilon() -> None:
    done = evaluate("--counts", COUNTS, "--json", "--runs", 50, "--eps", "0.5,2", "--estimators", "baseline,levy:20")
    found = json.loads(done.stdout)
    assert set(found) == {"settings", "mae"}
    assert found["settings"]["runs"] == 50
    assert found["settings"]["users"] == 217
    assert {name: [*row] for name, row in found["mae"].items()} == {"baseline": ["0.5", "2"], "levy:20": ["0.5", "2"]}
    assert all(error > 0 for row in found["mae"].values() for error in row.values())


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, again, other = (evaluate("--counts", COUNTS, "--json", "--runs", 20, "--seed", seed) for seed in (3, 3, 4))
    assert one.stdout == again.stdout != other.stdout


def test_the_table_has_a_row_an_estimator_and_says_that_nothing_is_private() -> None:
    done = evaluate("--counts", COUNTS, "--runs", 20, "--values", "user_effects")
    assert all(name[:12] in done.stdout for name in DEFAULT)
    assert "nothing that it prints is private" in done.stderr
    assert "reads raw data" not in done.stderr


def test_a_row_that_promises_more_says_so_and_what_to_compare_it_with(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    rows = ("--counts", COUNTS, "--runs", 50, "--eps", "0.5,1", "--estimators", "levy,capped_ratio:1000")
    table = " ".join(evaluate(*rows, "--plot", out).stdout.split())
    assert "capped_ratio:1000 (add_remove)" in table
    assert "compare its eps with twice that of the others: 0.5 with 1." in table
    assert "Noise suppressed capped_ratio:1000 in" in table
    assert "capped_ratio:1000 (add_remove), at 2 eps" in "".join(ET.parse(out).getroot().itertext())
    found = json.loads(evaluate(*rows, "--json").stdout)
    assert found["suppressed"].keys() == {"capped_ratio:1000"}
    assert 0.5 < found["suppressed"]["capped_ratio:1000"]["0.5"] <= 1


def test_a_row_that_is_suppressed_in_all_runs_has_no_error() -> None:
    rows = ("--counts", COUNTS, "--runs", 5, "--eps", 1, "--estimators", "capped_ratio:1000000")
    assert json.loads(evaluate(*rows, "--json").stdout)["mae"] == {"capped_ratio:1000000": {"1": None}}
    assert "100% of runs at eps 1" in " ".join(evaluate(*rows).stdout.split())


def test_without_a_number_the_array_length_is_the_median_count() -> None:
    rows = ("--counts", COUNTS, "--runs", 20, "--json", "--estimators")
    guessed, written = (evaluate(*rows, name).stdout for name in ("capped_ratio", "capped_ratio:46"))
    assert [*json.loads(guessed)["mae"].values()] == [*json.loads(written)["mae"].values()]
    assert "median count" in " ".join(evaluate(*rows[:-2], "--estimators", "capped_ratio").stdout.split())
    assert "median count" not in evaluate(*rows[:-2], "--estimators", "capped_ratio:46").stdout


def test_a_bar_shows_how_far_it_is_where_somebody_watches() -> None:
    arguments = ["--counts", str(COUNTS), "--runs", "5000", "--estimators", "baseline"]
    watched = CliRunner().invoke(command, ["means", *arguments], env={"FORCE_COLOR": "1"})
    assert "simulating" in watched.stderr
    assert "100%" in watched.stderr
    assert "simulating" not in CliRunner().invoke(command, ["means", *arguments]).stderr


def test_a_recording_is_read_and_said_to_be_raw_data() -> None:
    day = DATA / "capmetro" / "2017-03-21.csv.gz"
    done = evaluate("--data", day, "--format", "capmetro", "--json", "--runs", 20, "--estimators", "baseline")
    assert done.stderr.startswith("reads raw data; nothing that it prints is private")
    found = json.loads(done.stdout)["settings"]
    assert found["users"] > 100
    hat = found["source"].split(", ")[1]
    again = evaluate(
        "--data", day, "--format", "capmetro", "--json", "--runs", 20, "--hat", hat, "--scaling", "users", 2
    )
    assert json.loads(again.stdout)["settings"]["users"] == 2 * found["users"]
    with pytest.raises(HatcastError, match="has no reading"):
        evaluate("--data", day, "--format", "capmetro", "--hat", "nowhere")


def test_vectors_are_compared_by_the_estimators_that_have_a_form_for_them(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    found = json.loads(evaluate("--counts", COUNTS, "--dimensions", 3, "--runs", 20, "--json", "--plot", out).stdout)
    assert found["settings"]["dimensions"] == 3
    assert {name.split(":")[0] for name in found["mae"]} == set(LINEAR)
    assert found["mae"]["baseline"]["1"] > 5, "of three coordinates, each with noise for a diameter of 2 U"
    assert "mean l1 error" in "".join(ET.parse(out).getroot().itertext())
    assert "mean l1 error" in evaluate("--counts", COUNTS, "--dimensions", 2, "--runs", 20).stdout
    assert json.loads(evaluate("--counts", COUNTS, "--runs", 2, "--json").stdout)["settings"]["dimensions"] == 1
    for name in {each.split(":")[0] for each in DEFAULT} - LINEAR.keys():
        with pytest.raises(HatcastError, match=f"{name} has no vector form") as refused:
            evaluate("--counts", COUNTS, "--dimensions", 2, "--estimators", f"baseline,{name}")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("scaling", "users", "readings"), [("samples", 217, 17166 * 3), ("users", 217 * 3, 17166 * 3)])
def test_scaling_repeats_samples_or_users(scaling: str, users: int, readings: int) -> None:
    done = evaluate("--counts", COUNTS, "--json", "--runs", 2, "--scaling", scaling, 3)
    found = json.loads(done.stdout)["settings"]
    assert (found["users"], found["readings"], found["scaling"]) == (users, readings, {scaling: 3})


def test_a_plot_is_an_svg_file_with_a_line_an_estimator(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    evaluate("--counts", COUNTS, "--runs", 20, "--plot", out, "--estimators", "baseline,levy")
    text = "".join(ET.parse(out).getroot().itertext())
    assert "baseline" in text
    assert "levy" in text
    with pytest.raises(HatcastError, match="cannot be written"):
        evaluate("--counts", COUNTS, "--runs", 2, "--plot", tmp_path / "no" / "out.svg")
    assert "ends in .svg" in evaluate("--counts", "absent", "--plot", tmp_path / "out.nonsense").stderr


@pytest.mark.parametrize("text", ["[]", "[0, 3]", "{}", "[1.5]", "nonsense", '{"counts": [3], "U": 0}', "[2147483648]"])
def test_counts_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(text)
    with pytest.raises(RecordingError) as refused:
        evaluate("--counts", path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("eps", ["", "0", "-1", "nan", "inf", "1;2"])
def test_epsilons_that_are_none_are_refused(eps: str) -> None:
    with pytest.raises(HatcastError, match="--eps"):
        evaluate("--counts", COUNTS, "--eps", eps)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--counts", COUNTS, "--data", COUNTS],
        ["--counts", COUNTS, "--hat", "x"],
        ["--counts", COUNTS, "--runs", 1],
        ["--counts", COUNTS, "--dimensions", 0],
        ["--counts", COUNTS, "--dimensions", 2, "--values", "iid"],
        ["--data", COUNTS, "--format", "jsonl", "--dimensions", 2],
    ],
)
def test_wrong_usage_is_told_as_such(arguments: list[object]) -> None:
    assert evaluate(*arguments).exit_code == 2


def test_the_simulation_releases_on_the_grid_of_a_policy() -> None:
    assert GRID.step == Decimal("0.001")
