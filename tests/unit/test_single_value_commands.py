"""Commands with a policy of a value other than the speed: each names the value and its unit."""

import json
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from hatcast.agents.cli.budget import command as budget
from hatcast.agents.cli.init import command as init
from hatcast.agents.cli.query import command as query
from hatcast.agents.config.settings import load_settings
from hatcast.agents.tables.terminal import read_shown, record_line
from hatcast.lab.cli.evaluate import command as evaluate
from hatcast.lab.cli.plan import command as plan
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of
from tests.contracts.goldens import CROWD, NOW_MS, released
from tests.contracts.goldens import DELAY as OF_DELAYS
from tests.folding import NOON, record
from tests.services.data import ROOT
from tests.unit.test_single_value import CONFIG, PLACE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--speed-limit", 50), "the policy's value is delay: use --threshold"),
        (("--threshold", 3600), "--threshold 3600 is not below policy.value.upper 3600: no value exceeds it"),
        (("--threshold", -601), "--threshold -601 is below policy.value.lower -600, as which smaller values count"),
    ],
)
def test_a_requested_limit_that_does_not_fit_the_value_is_one_line(
    arguments: tuple[object, ...], line: str, tmp_path: Path
) -> None:
    keys = 'name = "late"\nkind = "over_threshold"\ndays = 1\nepsilon = 1.0\non_request = true\n'
    asked = f"{CONFIG}[[policy.query]]\n{keys}"
    (tmp_path / "hatcast.toml").write_text(asked)
    done = CliRunner().invoke(query, ["late", "--config", str(tmp_path / "hatcast.toml"), *map(str, arguments)])
    assert line in (done.output + str(done.exception))


def test_tail_shows_the_value_with_its_name_and_unit() -> None:
    lines = {path.stem: shown(path) for path in GOLDENS.glob("*/*value*") if path.parent.name != "telemetry"}
    assert lines["value_suppressed"].endswith("87608b0d2ffffff suppressed")
    assert " s delay " in lines["live_value"]
    assert " vehicles/day " in lines["value_released_over_threshold"]
    assert lines["value_released_over_threshold"].endswith(
        "9.125 vehicles/day 6.123 to 12.127 delay above -30.5 released"
    )


GOLDENS = ROOT / "schemas" / "golden" / "0.1.0"


def golden(name: str) -> bytes:
    value: bytes = msgspec.json.encode(json.loads((GOLDENS / f"{name}.json").read_text())["value"])
    return value


def shown(path: Path) -> str:
    return " ".join(record_line(read_shown(golden(f"{path.parent.name}/{path.stem}"))).plain.split())


def recorded(folder: Path) -> tuple[str, ...]:
    """Options of commands that read a recording of delays: of four buses, in one hour."""
    (folder / "hatcast.toml").write_text(CONFIG)
    lines = [record(**PLACE, vehicle=f"bus-{n}", value=30.0 * n - 45, time=NOON + 1000 * n) for n in range(4)]
    (folder / "some.jsonl").write_bytes(b"\n".join(lines))
    return "--data", str(folder / "some.jsonl"), "--format", "jsonl", "--config", str(folder / "hatcast.toml")


@pytest.mark.parametrize(
    ("command", "options", "text"),
    [
        (evaluate, ("worst-case", "--estimators", "baseline"), "In s; m and arrays"),
        (evaluate, ("means", "--estimators", "baseline", "--runs", "2"), "mean absolute error in s;"),
        (evaluate, ("days", "--daily-limit", "4", "--min-users", "3"), "mean absolute error in s against"),
        (
            plan,
            ("tracker", "--daily-limit", "5"),
            "mean in s, by the variances of the model, which were found on bus speeds",
        ),
    ],
)
def test_commands_that_simulate_give_errors_in_the_values_unit(
    command: click.Command, options: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    given = [options[0], *recorded(tmp_path), *options[1:]]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(command, given)
    assert done.exit_code == 0, done.output
    assert text in " ".join(done.output.split())
    of_json = CliRunner().invoke(command, [*given, "--json"])
    assert json.loads(of_json.stdout)["settings"]["unit"] == "s"


def test_the_explained_budget_names_the_value(tmp_path: Path) -> None:
    (tmp_path / "hatcast.toml").write_text(CONFIG)
    done = CliRunner(env={"COLUMNS": "300"}).invoke(budget, ["explain", "--config", str(tmp_path / "hatcast.toml")])
    text = " ".join(done.output.split())
    assert "differ only in the delay in each reading of one bus" in text
    assert "Hidden is the delay in each reading of a bus." in text
    assert "that a reading was exactly 0" not in text


def test_init_writes_the_value_and_asks_for_no_upper_bound(tmp_path: Path) -> None:
    path = tmp_path / "first.toml"
    options = ["--yes", "--timezone", "UTC", "--config", str(path)]
    done = CliRunner().invoke(init, [*options, "--value", "delay,s,-600,3600"])
    assert done.exit_code == 0, done.output
    made = load_settings(path).policy
    assert (made.name, made.released_value.name, made.released_value.unit) == ("mean-delay", "delay", "s")
    assert (made.lower, made.upper_bound) == (-600_000, 4_200_000)
    assert "upper_bound" not in path.read_text()
    assert made.released_value.usual is None
    CliRunner().invoke(init, [*options, "--force", "--value", "delay,s,-600,3600,-120,300"])
    assert load_settings(path).policy.released_value.usual == (-120_000, 300_000)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--value", "delay,s,-600"), 'write name, unit and bounds, such as "delay,s,-600,3600"'),
        (("--value", "delay,s,-600,3600,0"), "usual: is a list of 1, not a list of 2 numbers; write usual = [0, 300]"),
        (("--value", "delay,s,0,1", "--upper-bound", "65"), "--value has its own bounds: leave --upper-bound out"),
        (("--value", "delay,s,1,0"), "policy.value.upper: 0 is not above lower"),
        (("--value", "pm25,ug/m3,0,500", "--format", "itms"), "itms records have no value but the speed"),
    ],
)
def test_init_rejects_a_value_that_no_policy_can_have(options: tuple[str, ...], line: str, tmp_path: Path) -> None:
    given = ["--yes", "--timezone", "UTC", "--config", str(tmp_path / "first.toml"), *options]
    done = CliRunner().invoke(init, given)
    assert line in (done.output + str(done.exception))
    assert not (tmp_path / "first.toml").exists()


def test_a_recovered_record_has_the_fineness_and_the_charge_of_the_release() -> None:
    release = released(OF_DELAYS, CROWD, -441)
    value = numbered(release.record(NOW_MS), 7)
    read = published_of(value, OF_DELAYS.policy_id, fineness_of(OF_DELAYS))
    assert (read.fineness, read.charge) == (release.fineness, release.charge)
    assert release.fineness > 0
