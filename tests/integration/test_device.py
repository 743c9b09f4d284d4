"""`hatcast device` against a real Kafka: what it sends, once, and what it never sends.
A device's readings from a real mosquitto.
"""

import asyncio
import gzip
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from aiomqtt import Client, MqttError
from click.testing import CliRunner

from hatcast.agents.cli import keys
from hatcast.agents.clock import now_ms
from hatcast.agents.device.closing import Arrived, LiveRun
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.sources import MqttTopic, mqtt_readings, single_vehicle_filter
from hatcast.agents.device.store import open_store
from hatcast.stream.hybrid import DeviceReport, accepts, decode_report
from hatcast.stream.hybrid.reports import parse_report_keys
from hatcast.stream.hybrid.signatures import ReportVerifier
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import by_murmur2
from tests.devices import EXACT, HOUR, NOON, PRIVACY, line, recording, rules_of, two_hours
from tests.integration.crashing_device import METHODS, die_after
from tests.integration.forked import Forked, Wrap, plain
from tests.services import KafkaServer, Received, data
from tests.services.fixtures import MakeTopic
from tests.services.mosquitto import Mosquitto
from tests.support import Scripted

HATCAST = [sys.executable, "-c", "from hatcast.agents.cli import main; main()"]
FLEET = ["GJ05BX1111", "GJ05BX2222", "GJ05BX3333"]


@dataclass(frozen=True)
class Devices:
    """The command, with a configuration, a state file and a topic of its own."""

    config: Path
    state: Path
    topic: str
    kafka: KafkaServer

    def start(self, *arguments: object, wrap: Wrap = plain) -> Forked:
        given = ["device", *map(str, arguments), "--state", str(self.state), "--config", str(self.config)]
        return Forked(given, self.config.with_name("out"), self.config.with_name("err"), wrap)

    def run(self, *arguments: object, wrap: Wrap = plain) -> int:
        """The exit code. What it says is added to what it said before."""
        return self.start(*arguments, wrap=wrap).wait(110)

    @property
    def summary(self) -> dict[str, object]:
        """The last one."""
        found: dict[str, object] = json.loads(self.config.with_name("out").read_text().splitlines()[-1])
        return found

    @property
    def said(self) -> str:
        return self.config.with_name("err").read_text()

    def records(self) -> tuple[list[tuple[Received, DeviceReport]], list[Received]]:
        """Reports and ticks on the topic."""
        received = self.kafka.read(self.topic)
        reports = [(each, report) for each in received if each.value and (report := decode_report(each.value))]
        ticks = [each for each in received if not each.value]
        assert len(reports) + len(ticks) == len(received)
        return reports, ticks


@pytest.fixture
def devices(kafka: KafkaServer, make_topic: MakeTopic, tmp_path: Path) -> Callable[..., Devices]:
    """A function that makes them, of a policy with such privacy."""

    def make(**privacy: object) -> Devices:
        topic = make_topic("-reports", partitions=4)
        config = tmp_path / "hatcast.toml"
        given = {**PRIVACY, **privacy}
        config.write_text(
            f"""
            [kafka]
            bootstrap_servers = "{kafka.bootstrap_servers}"
            [topics]
            reports = "{topic}"
            [policy]
            name = "devices"
            upper_bound = 65.0
            timezone = "UTC"
            hours = [0, 24]
            [policy.privacy]
            {chr(10).join(f"{key} = {json.dumps(value)}" for key, value in given.items())}
            [policy.estimator]
            name = "pwh"
            """
        )
        return Devices(config, tmp_path / "state.db", topic, kafka)

    return make


def values(reports: Sequence[tuple[Received, DeviceReport]]) -> dict[tuple[str, str, str], set[bytes]]:
    """(id, slot, cell) -> the bytes on the topic."""
    found: dict[tuple[str, str, str], set[bytes]] = {}
    for each, report in reports:
        found.setdefault((report.id, report.slot, report.cell), set()).add(each.value or b"")
    return found


def test_a_fleet_sends_one_report_a_hat_in_time_and_ticks_the_topic(
    devices: Callable[..., Devices], tmp_path: Path
) -> None:
    """Three of four vehicles, each at another speed, and next to no noise."""
    fleet, path = devices(**EXACT), recording(tmp_path / "two.jsonl", two_hours([*FLEET, "GJ05BX9999"]))
    assert fleet.run(path, "--speedup", 0, "--fleet", 3, "--json") == 0, fleet.said
    reports, ticks = fleet.records()
    rules = rules_of(privacy=EXACT)
    assert len(reports) == len(values(reports)) == 3 * 2 * 2
    assert {key: n for key, n in fleet.summary.items() if key in ("reported", "sent", "unsent")} == {
        "reported": 12,
        "sent": 12,
        "unsent": 0,
    }
    # Minutes 0, 2, .. 58 of the hour, and 1, 3, .. 59; bus n at 20 + n and a tenth more each minute.
    wanted = {f"{20 + n + hour * 6 + minute:.3f}" for n in range(3) for hour in range(2) for minute in (2.9, 3.0)}
    assert {f"{report.value}" for _, report in reports} == wanted
    assert len({report.id for _, report in reports}) == 3
    for each, report in reports:
        assert accepts(report.value, report.epsilon, rules.parameters)
        assert each.key == report.id.encode()
        assert each.partition == by_murmur2(each.key, 4)
        end = NOON + HOUR * (1 if report.slot == "12:00" else 2)
        assert end <= each.timestamp_ms < end + 300_000
    closing = NOON + 2 * HOUR + 300_000
    assert {tick.partition for tick in ticks if tick.timestamp_ms == closing} == {0, 1, 2, 3}
    for partition in range(4):  # a report behind a tick that closed its slot would be late
        log = [each for each in fleet.kafka.read(fleet.topic) if each.partition == partition]
        assert [each.timestamp_ms for each in log] == sorted(each.timestamp_ms for each in log)
    everything = b"".join((each.key or b"") + (each.value or b"") for each in fleet.kafka.read(fleet.topic))
    assert not any(vehicle.encode() in everything for vehicle in FLEET)
    assert not any(vehicle in fleet.said for vehicle in FLEET)


@pytest.mark.parametrize("step", METHODS)
def test_a_fleet_killed_anywhere_sends_one_value_of_a_hat_ever(
    step: str, devices: Callable[..., Devices], tmp_path: Path
) -> None:
    """Killed at its first slot, then run from the start to the end; the recording once more changes nothing."""
    fleet, path = devices(), recording(tmp_path / "two.jsonl", two_hours(FLEET))
    arguments = (path, "--speedup", 0, "--vehicles-file", tmp_path / "fleet.txt", "--json")
    (tmp_path / "fleet.txt").write_text("\n".join(FLEET))
    assert fleet.run(*arguments, wrap=partial(die_after, step, 1)) == -signal.SIGKILL
    with open_store(fleet.state) as store:
        drawn = {stored.body for stored in store.unsent()}
    assert len(drawn) == (0 if step == "drawn" else 6)
    assert fleet.run(*arguments) == 0, fleet.said
    assert fleet.summary["reported"] == 12 - len(drawn)
    if step == "sent":
        assert fleet.run(*arguments) == 0, fleet.said
        assert (fleet.summary["reported"], fleet.summary["reported_before"]) == (0, 12)
    reports, _ = fleet.records()
    found = values(reports)
    assert Counter(map(len, found.values())) == {1: 12}
    assert drawn <= {each.value for each, _ in reports}


def test_a_recording_that_comes_again_read_in_another_way_is_not_reported_on_another_date_or_as_another_bus(
    devices: Callable[..., Devices], tmp_path: Path
) -> None:
    """At 23:00, which is tomorrow in UTC if it is a time in New York; a trip is the bus to the wrong column."""
    device, path = devices(), tmp_path / "rides.csv"
    path.write_text("plate,trip,at,lat,lon,kmh\nGJ05BX1111,trip,2022-01-02T23:00:00,21.2,72.8,30\n")
    packed = tmp_path / "again.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plates, trips = (
        ("--format", "csv", "--unit", "km/h", "--columns", f"vehicle={column},time=at,lat=lat,lon=lon,value=kmh")
        for column in ("plate", "trip")
    )
    once = ("--speedup", 0, "--json")
    assert device.run(path, *plates, *once) == 0, device.said
    assert device.summary["reported"] == 1
    assert device.run(path, *plates, "--times-in", "America/New_York", *once) == 1
    assert f"{device.state}: times_in is America/New_York, and earlier runs had UTC" in device.said
    assert device.run(packed, *trips, *once) == 1
    assert f"{packed}: an earlier run used readings of the same content as format csv, columns" in device.said
    assert device.run(packed, *plates, *once) == 0, device.said
    assert (device.summary["reported"], device.summary["reported_before"]) == (0, 1)
    reports, _ = device.records()
    assert [report.date for _, report in reports] == ["2022-01-02"]


def test_a_fleet_that_signs_sends_genuine_reports_and_after_a_kill_the_bytes_that_it_stored(
    devices: Callable[..., Devices], tmp_path: Path
) -> None:
    fleet, path = devices(), recording(tmp_path / "two.jsonl", two_hours(FLEET))
    secret, arguments = tmp_path / "authority.key", (path, "--speedup", 0, "--fleet", 3, "--sign", "--json")
    assert fleet.run(*arguments) == 1
    assert "has no certified key" in fleet.said
    requested = keys_command("request", "--state", fleet.state, "--from", "2022-01-02", "--days", 1, "--devices", 3)
    line = keys_command("authority", secret)
    certificates = keys_command("sign", "--authority", secret, given=requested)
    keys_command("install", "--state", fleet.state, given=certificates)
    assert fleet.run(*arguments, wrap=partial(die_after, "committed", 1)) == -signal.SIGKILL
    with open_store(fleet.state) as store:
        drawn = {stored.body for stored in store.unsent()}
    assert len(drawn) == 6
    assert fleet.run(*arguments) == 0, fleet.said
    reports, _ = fleet.records()
    verifier = ReportVerifier(parse_report_keys(line))
    assert len(reports) == 12
    assert drawn <= {each.value for each, _ in reports}
    assert len({report.id for _, report in reports}) == 3
    for each, report in reports:
        assert verifier.is_genuine(each.value or b"", report)
        assert each.key == report.id.encode()


def keys_command(*arguments: object, given: str = "") -> str:
    """`hatcast keys`, in this process."""
    done = CliRunner().invoke(keys.command, [str(each) for each in arguments], input=given)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_live_device_reports_its_slot_by_its_clock_and_ticks_nobody(
    devices: Callable[..., Devices], tmp_path: Path
) -> None:
    """The clock stands within the hour until the source has ended, and then half of the lateness after it."""
    device, rules = devices(), rules_of()
    source: queue.Queue[Arrived] = queue.Queue()
    for minute in range(60):
        source.put((NOON + minute * 60_000, Reading("bus", NOON + minute * 60_000, 21.2, 72.8, 30.0)))
    source.put(None)

    def clock() -> int:
        return NOON + HOUR + (150_000 if source.empty() else -1_000)

    with (
        open_store(device.state) as store,
        Outbox({"bootstrap.servers": device.kafka.bootstrap_servers}, device.topic, 4, store, live=clock) as outbox,
    ):
        present = LiveRun(OwnMeans(rules), Reporter(rules, store, Scripted([7])), outbox, clock)
        assert present.run(source, single_vehicle_filter("the test"), threading.Event(), with_end=True)
        assert outbox.finish(60.0)
        assert (present.readings, outbox.sent, store.unsent()) == (60, 1, [])
    reports, ticks = device.records()
    assert ticks == []
    ((each, report),) = reports
    assert each.timestamp_ms == NOON + HOUR + 150_000
    assert (report.slot, f"{report.value}") == ("12:00", "30.007")


def test_a_live_device_that_is_told_to_stop_stops(devices: Callable[..., Devices]) -> None:
    """Its source is open and silent, and a thread waits for it."""
    device = devices()
    command = [*HATCAST, "device", "-", "--state", str(device.state), "--config", str(device.config), "--json"]
    with subprocess.Popen(
        command, cwd=data.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    ) as live:
        assert live.stdin is not None
        live.stdin.write(line("bus", now_ms(), 30.0).encode() + b"\n")
        live.stdin.flush()
        while live.poll() is None and not device.state.exists():
            time.sleep(0.05)
        live.send_signal(signal.SIGTERM)
        live.wait(60)  # its input is still open
        out, err = live.communicate()
    assert live.returncode == 130, err
    assert json.loads(out)["finished"] is False
    assert err == b""


TRIES = 300


def speed_after_publishing(mosquitto: Mosquitto, arrived: "queue.Queue[Arrived]", speed: float) -> float:
    """Publish a reading again and again, garbage beside it, until one of this speed has come."""

    async def publish() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            await client.publish("bus/7", b"{garbage")
            await client.publish("bus/8", line("another", NOON, 99.0))
            await client.publish("bus/7", line("bus", NOON, speed), qos=1)

    for _ in range(TRIES):
        try:
            asyncio.run(publish())
            each = arrived.get(timeout=0.2)
        except (queue.Empty, MqttError):
            continue
        while each is not None:
            assert each[1].vehicle == "bus"
            if each[1].speed == speed:
                return speed
            each = arrived.get(timeout=60)
    raise AssertionError("the reading did not come")


def test_a_device_reads_its_own_topic_and_comes_back_to_a_broker_that_was_away(mosquitto: Mosquitto) -> None:
    published = MqttTopic.parse(f"mqtt://127.0.0.1:{mosquitto.port}/bus/7", {})
    with mqtt_readings(published, FORMATS["jsonl"]) as arrived:
        assert speed_after_publishing(mosquitto, arrived, 20.0) == 20.0
        mosquitto.stop()
        mosquitto.start()
        assert speed_after_publishing(mosquitto, arrived, 30.0) == 30.0
    while arrived.get(timeout=60) is not None:  # the end of the block is the end of the source
        pass
