"""`hatcast device` before it has sent anything: what it takes as its source, and what it refuses."""

import io
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents.cli.device import command
from hatcast.agents.device.sources import FleetFilter, MqttTopic, SingleVehicleFilter, read_lines, vehicles_in
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS, jsonl
from hatcast.stream.readings.reading import Reading
from tests.devices import NOON, line, policy_table, recording


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name one source"),
        (["a.jsonl", "--synthetic", "--fleet", "2"], "name one source"),
        (["-", "--mqtt", "mqtt://broker/bus"], "name one source"),
        (["-", "a.jsonl"], "only source"),
        (["--synthetic"], "--fleet N"),
        (["-", "--fleet", "2"], "recording or --synthetic"),
        (["-", "--speedup", "2"], "for recordings"),
        (["a.jsonl", "--seed", "1"], "--synthetic"),
        (["a.jsonl", "--fleet", "2"], "--state FILE"),
        (["a.jsonl", "--fleet", "2", "--vehicle", "bus", "--state", "s"], "--vehicle is for one device"),
        (["a.jsonl", "--vehicle", " "], "not a vehicle id"),
        (["a.jsonl", "--vehicles-file", "missing", "--state", "s"], "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())


def config(folder: Path, **policy: Any) -> Path:
    table = policy_table(**policy)
    lines = ["[policy]"]
    lines += [f"{key} = {value!r}" for key, value in table.items() if not isinstance(value, dict)]
    for part in ("privacy", "estimator"):
        lines += [f"[policy.{part}]", *(f"{key} = {value!r}" for key, value in table[part].items())]
    path = folder / "hatcast.toml"
    path.write_text("\n".join(lines))
    return path


def refusal(*arguments: object) -> str:
    result = CliRunner().invoke(command, [str(each) for each in arguments])
    assert isinstance(result.exception, HatcastError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_recording_of_several_vehicles_needs_to_be_told_whose_device_it_is(tmp_path: Path) -> None:
    path = recording(tmp_path / "two.jsonl", [line("GJ05BX1111", NOON, 20), line("GJ05BX2222", NOON, 30)])
    said = refusal(path, "--config", config(tmp_path), "--state", tmp_path / "state")
    assert "--vehicle" in said
    assert "GJ05" not in said


def test_a_fleet_of_vehicles_that_are_not_there_is_refused(tmp_path: Path) -> None:
    path = recording(tmp_path / "one.jsonl", [line("GJ05BX1111", NOON, 20)])
    (tmp_path / "fleet").write_text("another\n")
    given = ("--vehicles-file", tmp_path / "fleet", "--config", config(tmp_path), "--state", tmp_path / "state")
    assert "correct the file" in refusal(path, *given)


def test_a_policy_without_reports_is_refused_before_kafka_is_asked(tmp_path: Path) -> None:
    path = recording(tmp_path / "one.jsonl", [line("bus", NOON, 20)])
    wrong = config(tmp_path, estimator={"name": "baseline"})
    assert "takes no reports" in refusal(path, "--config", wrong, "--state", tmp_path / "state")


def test_the_help_says_what_is_hidden_and_what_is_not() -> None:
    said = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for sentence in ("the operator never learns the mean", "does not hide where and when", "hatcast device -"):
        assert sentence in said


def test_readings_of_one_vehicle_are_taken_and_a_second_one_is_refused() -> None:
    own = SingleVehicleFilter("standard input")
    assert own(Reading(" bus ", NOON, 1.0, 2.0, 3.0))
    assert own(Reading("bus", NOON, 1.0, 2.0, 3.0))
    assert not own(Reading("", NOON, 1.0, 2.0, 3.0))
    with pytest.raises(HatcastError, match="--vehicle"):
        own(Reading("another", NOON, 1.0, 2.0, 3.0))


def test_a_fleet_takes_its_vehicles_however_their_ids_are_written() -> None:
    fleet = FleetFilter(frozenset(("bus",)))
    assert [fleet(Reading(sent, NOON, 1.0, 2.0, 3.0)) for sent in ("bus", "bus ", "other", "")] == [
        True,
        True,
        False,
        False,
    ]


def test_lines_that_are_no_readings_are_left_out_whatever_they_hold() -> None:
    lines = [line("bus", NOON, 20), "", "{", "x" * 200_000, line("bus", NOON + 1, 30)]
    arrived = read_lines(io.BytesIO("\r\n".join(lines).encode()), jsonl.decode)
    found = []
    while (each := arrived.get(timeout=30)) is not None:
        found.append(each[1].time)
    assert found == [NOON, NOON + 1]


def test_the_vehicles_of_a_recording_are_counted_by_their_canonical_ids(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", [line("bus", NOON, 20), line("bus ", NOON, 20), line("two", NOON, 20), "{"])
    with path.open("rb") as stream:
        records = [(NOON, each) for each in FORMATS["jsonl"].records(stream, "a")]
    assert vehicles_in(records) == {"bus", "two"}


@pytest.mark.parametrize(
    ("url", "host", "port", "user", "topic"),
    [
        ("mqtt://broker.example/bus/7", "broker.example", 1883, None, "bus/7"),
        ("mqtts://me@broker.example/bus/+", "broker.example", 8883, "me", "bus/+"),
        ("mqtt://[::1]:18830/bus/#", "::1", 18830, None, "bus/#"),
        ("mqtt://me%40home@broker.example//bus", "broker.example", 1883, "me@home", "/bus"),
    ],
)
def test_an_mqtt_address_names_broker_user_and_topic(
    *, url: str, host: str, port: int, user: str | None, topic: str
) -> None:
    found = MqttTopic.parse(url, {"HATCAST_FEED_PASSWORD": "secret"})
    broker = found.broker
    assert (broker.host, broker.port, broker.user, found.topic) == (host, port, user, topic)
    assert (broker.tls is not None) == url.startswith("mqtts")
    assert broker.password == "secret"
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "url", ["broker/bus", "http://broker/bus", "mqtt://broker", "mqtt://u:p@broker/b", "mqtt://b:x/t"]
)
def test_what_is_no_mqtt_address_is_refused_and_no_password_is_taken_from_it(url: str) -> None:
    with pytest.raises(HatcastError, match="HATCAST_FEED_PASSWORD"):
        MqttTopic.parse(url, {})
