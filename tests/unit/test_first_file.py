"""`hatcast init`: what it writes is what was asked for, and nothing that would be refused is written."""

import gzip
import json
import re
import tomllib
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatcast.agents.cli.init import command
from hatcast.agents.config.settings import load_settings
from hatcast.agents.config.template import TEMPLATE_ESTIMATORS, machine_timezone
from hatcast.lab.cli.plan import command as plan
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import TrackerKeys
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.readings.formats import FORMATS
from tests.services.data import DATA
from tools.configuration_reference import TABLES, table_keys

ZONES = ("Asia/Kolkata", "Europe/Helsinki", "America/Chicago", "UTC")
names = st.from_regex(r"[A-Za-z0-9._][-A-Za-z0-9._]{0,79}", fullmatch=True)
epsilons = st.floats(0.001, 10)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(lambda text: text[0] != "-")


def run(path: Path, *arguments: str, **extra: Any) -> Result:
    return CliRunner().invoke(command, ["--config", str(path), *arguments], **extra)


wishes = st.fixed_dictionaries(
    {
        "--name": names,
        "--timezone": st.sampled_from(ZONES),
        "--hours": st.sampled_from(["0,24", "9,21", "7,8"]),
        "--upper-bound": st.floats(0.001, 150),
        "--epsilon": epsilons,
        "--max-hats": st.integers(1, 65535),
        "--daily-limit": st.floats(10, 10_000),
        "--estimator": st.sampled_from(sorted({*TEMPLATE_ESTIMATORS} - {TRACKER})),
        "--kafka": texts,
        "--format": st.sampled_from([*FORMATS]),
    }
)


@given(wish=wishes)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_loads_and_is_the_policy_that_was_asked_for(tmp_path: Path, wish: dict[str, Any]) -> None:
    path = tmp_path / "hatcast.toml"
    result = run(path, "--force", *(str(part) for pair in wish.items() for part in pair))
    assert result.exit_code == 0, result.output
    found = load_settings(path, {})
    policy = found.policy
    assert policy.upper_bound == pytest.approx(wish.pop("--upper-bound") * 1000, abs=0.5)
    assert wish == {
        "--name": policy.name,
        "--timezone": policy.timezone,
        "--hours": "{},{}".format(*policy.hours),
        "--epsilon": policy.epsilon,
        "--max-hats": policy.max_hats_per_day,
        "--daily-limit": policy.daily_limit,
        "--estimator": policy.estimator,
        "--kafka": found.kafka.bootstrap_servers,
        "--format": found.topics.telemetry_format,
    }


@given(limit=st.floats(0.02, 10), zone=st.sampled_from(ZONES), bound=st.floats(1, 150))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_without_an_estimator_it_is_a_tracker_with_this_limit(
    tmp_path: Path, limit: float, zone: str, bound: float
) -> None:
    path = tmp_path / "hatcast.toml"
    options = ["--timezone", zone, "--daily-limit", repr(limit), "--upper-bound", repr(bound), "--force"]
    result = run(path, *options)
    assert result.exit_code == 0, result.output
    policy = load_settings(path, {}).policy
    assert isinstance(policy.method, TrackerKeys)
    assert (policy.estimator, policy.daily_limit, policy.timezone) == (TRACKER, limit, zone)
    assert f"up to epsilon {limit:g};" in result.output


def test_the_default_is_a_total_of_two_for_each_bus_and_day(tmp_path: Path) -> None:
    path = tmp_path / "hatcast.toml"
    assert run(path, "--timezone", "UTC").exit_code == 0
    assert load_settings(path, {}).policy.daily_limit == 2.0
    assert "max_hats_per_day" not in path.read_text()


def test_a_tracker_is_of_the_journey_speed_and_a_papers_estimator_of_that_while_moving_unless_one_is_chosen(
    tmp_path: Path,
) -> None:
    path = tmp_path / "hatcast.toml"

    def chosen(*options: str) -> tuple[bool, int, str]:
        done = run(path, "--timezone", "UTC", "--force", *options)
        assert done.exit_code == 0, done.output
        policy = load_settings(path, {}).policy
        return policy.drop_zero, policy.min_interval_ms, policy.quantity

    assert chosen() == chosen("--epsilon", "1", "--speed", "journey") == (False, 30_000, "journey speed")
    assert 'min_interval = "30s"' in path.read_text()
    assert chosen("--min-interval", "20s") == (False, 20_000, "journey speed")
    assert chosen("--epsilon", "1") == chosen("--speed", "moving") == (True, 1_000, "speed while moving")
    assert "drop_zero = true                      # speed while moving: " in path.read_text()


def test_of_a_journey_speed_the_usual_interval_of_reports_is_read_off_a_recording(tmp_path: Path) -> None:
    day, path = tmp_path / "day.jsonl", tmp_path / "hatcast.toml"
    records = (
        {"vehicle": f"bus {bus}", "time": 1_641_095_983_000 + 25_000 * at, "lat": 21.2, "lon": 72.8, "speed": 30}
        for at in range(40)
        for bus in range(4)
    )
    day.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    options = ["--timezone", "Asia/Kolkata", "--format", "jsonl", "--recording", str(day), "--speed", "journey"]
    result = run(path, *options)
    assert result.exit_code == 0, result.output
    assert load_settings(path, {}).policy.min_interval_ms == 25_000


@pytest.mark.parametrize("option", [("--epsilon", "0.5"), ("--max-hats", "40")])
def test_an_epsilon_or_a_cap_means_an_estimator_of_plain_releases(tmp_path: Path, option: tuple[str, str]) -> None:
    path = tmp_path / "hatcast.toml"
    assert run(path, "--timezone", "UTC", *option).exit_code == 0
    assert load_settings(path, {}).policy.estimator == "array_averaging"
    refused = run(path, "--timezone", "UTC", "--force", "--estimator", TRACKER, *option)
    assert refused.exit_code == 2
    assert "leave --epsilon and --max-hats out" in refused.output


def test_a_recording_chooses_the_keys_that_plan_finds(tmp_path: Path) -> None:
    day = DATA / "capmetro" / "2016-11-24.csv.gz"
    with gzip.open(day, "rt") as lines:
        few = tmp_path / "morning.csv"
        few.write_text("".join(islice(lines, 8_000)))
    path = tmp_path / "hatcast.toml"
    options = ["--timezone", "America/Chicago", "--format", "capmetro", "--recording", str(few), "--daily-limit", "2"]
    result = run(path, *options)
    assert result.exit_code == 0, result.output
    assert "Errors to expect of a mean, in km/h: " in result.output
    assert (
        "Workers expect capmetro on topic telemetry. If `hatcast feed` is to send, which sends jsonl" in result.output
    )
    assert load_settings(path, {}).retention_ms is None  # or Kafka would delete it when it is replayed
    written = load_settings(path, {}).policy.keys_of(TrackerKeys)
    # The same as `hatcast plan tracker` for this policy.
    arguments = ["--data", str(few), "--format", "capmetro", "--config", str(path), "--daily-limit", "2", "--json"]
    found = json.loads(CliRunner().invoke(plan, ["tracker", *arguments]).stdout)
    planned = found["plans"]["2"]
    assert (written.share, written.price) == (planned["keys"]["share"], planned["keys"]["price"])
    # What has a star there is said not to be worth having here.
    (warning,) = (line for line in result.output.splitlines() if line.startswith("Not worth having: "))
    named = {
        f"{planned[stage][name]:.1f} {when} {since}"
        for stage, since in (("first", "in the first days"), ("30", "after a month"))
        for name, when in (("live", "as an hour closes"), ("end", "at the day's end"))
        if not planned[stage]["worth_having"][name]
    }
    assert named
    text, _, constant = warning.removeprefix("Not worth having: ").partition("; ")
    assert set(text.split(", ")) == named
    assert f"has {min(found['constant'].values()):.1f}." in constant


def test_of_a_recording_format_and_time_zone_are_recognised_and_telemetry_is_what_feeds_send(tmp_path: Path) -> None:
    with gzip.open(DATA / "capmetro" / "2016-11-24.csv.gz", "rt") as lines:
        text = "".join(islice(lines, 3_000))
    (tmp_path / "day").write_text(text)
    (tmp_path / "own").write_text(text.replace("trip_headsign", "to", 1))
    known = run(tmp_path / "day.toml", "--recording", str(tmp_path / "day"))
    own = "--recording", str(tmp_path / "own"), "--unit", "m/s", "--timezone", "America/Chicago"
    named = run(tmp_path / "own.toml", *own)
    assert f"hatcast batch {tmp_path / 'own'} --format csv --unit m/s " in named.output
    for name, result in (("day", known), ("own", named)):
        assert result.exit_code == 0, result.output
        settings = load_settings(tmp_path / f"{name}.toml", {})
        assert (settings.policy.timezone, settings.topics.telemetry_format) == ("America/Chicago", "jsonl")
        assert settings.policy.min_interval_ms > 30_000  # as the recording shows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--speed", "journey", "--value", "delay,s,0,60"], "leave it out with --value"),
        (["--speed", "moving", "--min-interval", "30s"], "give both"),
        (["--epsilon", "1", "--min-interval", "30s"], "give both"),
        (["--format", "csv"], "is a format of files: give --recording"),
        (["--recording", "a.csv", "--format", "capmetro", "--estimator", "levy"], "use --estimator tracker"),
        (["--recording", "a.csv", "--format", "capmetro", "--epsilon", "1"], "use --estimator tracker"),
    ],
)
def test_a_recording_without_what_it_needs_is_wrong_usage(tmp_path: Path, options: list[str], says: str) -> None:
    result = run(tmp_path / "hatcast.toml", "--timezone", "UTC", *options)
    assert result.exit_code == 2
    assert says in result.output
    assert not [*tmp_path.iterdir()]


@given(epsilon=epsilons, hats=st.integers(1, 65535))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_without_a_limit_a_day_has_room_for_all_its_hats_and_no_more(tmp_path: Path, epsilon: float, hats: int) -> None:
    path = tmp_path / "hatcast.toml"
    result = run(path, "--timezone", "UTC", "--epsilon", repr(epsilon), "--max-hats", str(hats), "--force")
    assert result.exit_code == 0, result.output
    policy = load_settings(path, {}).policy
    assert hats * policy.epsilon_nano <= policy.daily_limit_nano < (hats + 1) * policy.epsilon_nano


@pytest.mark.parametrize("table", TABLES)
def test_every_key_of_the_reference_is_written_or_has_a_default(tmp_path: Path, table: str) -> None:
    assert run(tmp_path / "hatcast.toml", "--timezone", "UTC", "--estimator", "levy").exit_code == 0
    written: Any = tomllib.loads((tmp_path / "hatcast.toml").read_text())
    for part in table.split("."):
        written = written.get(part, {})
    required = {key for key, field in table_keys(table).items() if field.required}
    assert set(written) <= table_keys(table).keys() | {"privacy", "estimator"}
    optional = "policy.query", "policy.value", "policy.continual", "policy.running"
    assert table in optional or required <= set(written)


def test_a_file_that_is_there_is_not_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "hatcast.toml"
    path.write_text("mine")
    result = run(path, "--timezone", "UTC")
    assert isinstance(result.exception, HatcastError)
    assert "--force" in str(result.exception)
    assert path.read_text() == "mine"
    assert run(path, "--timezone", "UTC", "--force").exit_code == 0
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--timezone", "Mars/Olympus"], "policy.timezone"),
        (["--timezone", "UTC", "--epsilon", "nan"], "policy.privacy.epsilon"),
        (["--timezone", "UTC", "--epsilon", "11"], "acknowledge_weak_privacy"),
        (["--timezone", "UTC", "--epsilon", "2", "--daily-limit", "1"], "daily_limit"),
        (["--timezone", "UTC", "--max-hats", "0"], "max_hats_per_day"),
        (["--timezone", "UTC", "--name", "a b"], "policy.name"),
        (["--timezone", "UTC", "--hours", "5,3"], "policy.hours"),
    ],
)
def test_what_would_be_refused_is_not_written(tmp_path: Path, arguments: list[str], says: str) -> None:
    result = run(tmp_path / "hatcast.toml", *arguments)
    assert isinstance(result.exception, HatcastError)
    assert says in str(result.exception)
    assert "is not written" in str(result.exception)
    assert not [*tmp_path.iterdir()]


def test_without_a_terminal_the_time_zone_has_to_be_named(tmp_path: Path) -> None:
    result = run(tmp_path / "hatcast.toml")
    assert result.exit_code == 2
    assert "--timezone" in result.output


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path / "none" / "hatcast.toml", "--timezone", "UTC")
    assert isinstance(result.exception, HatcastError)
    assert "cannot be written" in str(result.exception)


def test_on_a_terminal_it_asks_for_what_no_option_names_and_again_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hatcast.agents.cli.init._on_terminal", lambda: True)
    path = tmp_path / "hatcast.toml"
    answers = [
        "Mars/Olympus",
        "Asia/Kolkata",
        "noon",
        "22,27",
        "6,22",
        "fast",
        "journey",
        "45",
        "45s",
        "eighty",
        "80",
        "levy",
        "0.5",
        "20",
        "",
        "",
        "",
        "itms",
        "5",
        "none",
    ]
    result = run(path, "--name", "asked", input="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    assert "not a known time zone" in result.output
    policy = load_settings(path, {}).policy
    assert (policy.name, policy.timezone, policy.upper_bound) == ("asked", "Asia/Kolkata", 80_000)
    assert (policy.epsilon, policy.max_hats_per_day, policy.daily_limit) == (0.5, 20, 10.0)
    assert (policy.estimator, policy.hours) == ("levy", (6, 22))
    assert (policy.drop_zero, policy.min_interval_ms) == (False, 45_000)
    assert "How often a bus usually reports" in result.output
    assert "is not a range of hours" in result.output
    assert load_settings(path, {}).topics.telemetry_format == "itms"
    assert load_settings(path, {}).retention_ms is None
    assert "set 72h or more before live telemetry is sent" in result.output


def test_on_a_terminal_a_tracker_is_asked_for_its_limit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatcast.agents.cli.init._on_terminal", lambda: True)
    path = tmp_path / "hatcast.toml"
    result = run(path, input="\n".join(["", "Asia/Kolkata", "", "", "", "", "", "-1", "2", "", "", "", ""]) + "\n")
    assert result.exit_code == 0, result.output
    policy = load_settings(path, {}).policy
    assert (policy.estimator, policy.daily_limit, policy.hours) == (TRACKER, 2.0, (9, 21))
    assert "Epsilon of one release" not in result.output
    assert "How often a bus usually reports" in result.output


def test_the_machines_zone_is_offered_where_it_is_a_place() -> None:
    assert machine_timezone({"TZ": "Asia/Kolkata"}) == "Asia/Kolkata"
    assert machine_timezone({"TZ": ":Europe/Helsinki"}) == "Europe/Helsinki"
    assert machine_timezone({"TZ": "CET-1CEST"}) != "CET-1CEST"


def test_doctor_runs_on_it_where_that_is_asked(tmp_path: Path) -> None:
    asked: list[Path] = []

    @click.command
    @click.option("--config")
    @click.option("--json", "as_json", is_flag=True)
    def doctor(config: Path, *, as_json: bool) -> None:
        assert not as_json
        asked.append(config)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hatcast.agents.cli.doctor.command", doctor)
        result = run(tmp_path / "hatcast.toml", "--timezone", "UTC", "--check-services")
    assert (result.exit_code, asked) == (0, [tmp_path / "hatcast.toml"])


def test_strings_are_written_as_toml_has_them(tmp_path: Path) -> None:
    awkward = 'a"b\\c\x7f\u00e9\n#\t\U0001f68c'
    assert run(tmp_path / "hatcast.toml", "--timezone", "UTC", "--kafka", awkward).exit_code == 0
    assert load_settings(tmp_path / "hatcast.toml", {}).kafka.bootstrap_servers == awkward


def test_a_timetable_is_written_and_the_streets_to_fetch_are_those_around_its_stops(
    tmp_path: Path,
) -> None:
    tables = {
        "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\na,Railway Station,21.10,72.75\nb,Airport,21.30,72.95\n",
        "routes.txt": "route_id,route_short_name,route_type\nr,12,3\n",
        "trips.txt": "route_id,service_id,trip_id\nr,s,t\n",
        "stop_times.txt": "trip_id,stop_id,stop_sequence,arrival_time\nt,a,1,8:00:00\nt,b,2,8:40:00\n",
    }
    with zipfile.ZipFile(tmp_path / "city.zip", "w") as archive:
        for name, text in tables.items():
            archive.writestr(name, text)
    path = tmp_path / "hatcast.toml"
    done = run(path, "--timezone", "Asia/Kolkata", "--gtfs", str(tmp_path / "city.zip"))
    assert done.exit_code == 0, done.output
    settings = load_settings(path, {})
    assert settings.display.gtfs == tmp_path / "city.zip"
    assert settings.policy.keys_of(TrackerKeys).timetable == str(tmp_path / "city.zip")
    assert re.search(r"Estimates of [12][0-9] hexagons begin with their scheduled speeds", done.output)
    assert "--bbox=72.73,21.08,72.97,21.32" in done.output
    assert re.search(r"https://build\.protomaps\.com/20\d{6}\.pmtiles", done.output)
    (tmp_path / "none.zip").write_bytes(b"")
    wrong = run(tmp_path / "other.toml", "--timezone", "UTC", "--gtfs", str(tmp_path / "none.zip"))
    assert wrong.exit_code != 0
    assert not (tmp_path / "other.toml").exists()
    for options in (("--estimator", "levy"), ("--value", "delay,s,-600,3600")):  # of which a timetable says nothing
        assert run(path, "--force", "--timezone", "UTC", "--gtfs", str(tmp_path / "city.zip"), *options).exit_code == 0
        assert "timetable =" not in path.read_text()
