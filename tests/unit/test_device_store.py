"""What a device must not forget, whatever is killed when.
`hatcast device` before it has sent anything: what it takes as its source, and what it refuses.
"""

import io
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents.cli.device import command
from hatcast.agents.clock import now_ms
from hatcast.agents.device.fold import OwnHat
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.sources import MqttTopic, fleet_filter, read_lines, single_vehicle_filter, vehicles_in
from hatcast.agents.device.store import DeviceStore, open_store
from hatcast.agents.device.stored import StoredMessage, VehicleHat
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import FORMATS, jsonl
from hatcast.stream.readings.reading import Reading
from tests import invoked
from tests.devices import HOUR, NOON, line, policy_table, recording, rules_of
from tests.services import data
from tests.support import Scripted

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
REPORT = StoredMessage(0, "id", b"{}", NOON, NOON + HOUR)


def hat(vehicle: str = "bus", date: str = "2022-01-02", cell: int = 0x87608B0D2FFFFFF) -> OwnHat:
    return OwnHat(vehicle, Slot(date, "12:00", NOON, NOON + HOUR, None), cell, 1, 30_000)


# Draws two reports and is killed at a named step: before the commit, or after it and before anything is sent.
# Its noise is another one each time, without OpenDP, which takes seconds to load.
DYING = """
import os, secrets, signal, sys
from pathlib import Path
from hatcast.agents.clock import now_ms
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.fold import OwnHat
from hatcast.agents.device.store import DeviceStore, open_store
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.mechanisms import Noisy
from tests.devices import HOUR, NOON, rules_of

class Chance:
    def laplace(self, value, distance, epsilon):
        return Noisy(value + secrets.randbelow(10**9), 1.0)

slot = Slot("2022-01-02", "12:00", NOON, NOON + HOUR, None)
hats = [OwnHat("bus", slot, cell, 1, 30_000) for cell in (0x87608b0d2ffffff, 0x87608b0d3ffffff)]
commit = DeviceStore.commit

def dying(self):
    if sys.argv[2] == "committed":
        commit(self)
    os.kill(os.getpid(), signal.SIGKILL)

DeviceStore.commit = dying
with open_store(Path(sys.argv[1])) as store:
    Reporter(rules_of(), store, Chance()).draw(hats, 0)
"""


@pytest.mark.parametrize(("step", "kept"), [("drawn", 0), ("committed", 2)])
def test_a_device_killed_between_its_draw_and_its_send_never_draws_again(step: str, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    process = subprocess.run([sys.executable, "-c", DYING, str(path), step], cwd=data.ROOT, env=os.environ, check=False)
    assert process.returncode == -signal.SIGKILL
    with open_store(path) as store:
        before = [(stored.id, stored.body) for stored in store.unsent()]
        assert len(before) == kept
        reporter = Reporter(rules_of(), store, Scripted([7] * (2 - kept)))
        drawn = reporter.draw([hat(), hat(cell=0x87608B0D3FFFFFF)], 0)
        assert len(drawn) == 2 - kept
        assert [(stored.id, stored.body) for stored in store.unsent()][:kept] == before
        assert len({stored.id for stored in store.unsent()}) == 1


def test_an_id_is_random_and_holds_for_one_vehicle_and_one_day(tmp_path: Path) -> None:
    with open_store(tmp_path / "state") as store:
        ids = [store.id_of(vehicle, date) for vehicle in "ab" for date in ("2022-01-02", "2022-01-03")]
        assert len(set(ids)) == 4
        assert {len(bytes.fromhex(each)) for each in ids} == {16}
    with open_store(tmp_path / "state") as store:
        assert store.id_of("a", "2022-01-02") == ids[0]


def test_old_days_are_deleted_and_never_drawn_for_again(tmp_path: Path) -> None:
    rules = rules_of()
    with open_store(tmp_path / "state") as store:
        reporter = Reporter(rules, store, SystemNoise())
        for day in range(1, 8):
            assert len(reporter.draw([hat(date=f"2022-01-0{day}")], 0)) == 1
        assert len(store.unsent()) == 4
    with open_store(tmp_path / "state") as store:
        reporter = Reporter(rules, store, Scripted())
        for day in range(1, 8):
            assert reporter.draw([hat(date=f"2022-01-0{day}")], 0) == []
        assert (reporter.tally.forgotten, reporter.tally.reported_before) == (3, 4)


def test_what_a_day_has_cost_counts_under_another_policy_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "state") as store:
        first = rules_of(privacy={"epsilon": 0.5, "max_hats_per_day": 9, "daily_limit": 1.2})
        assert len(Reporter(first, store, SystemNoise()).draw([hat(), hat(cell=0x87608B0D3FFFFFF)], 0)) == 2
        other = rules_of(privacy={"epsilon": 0.1, "max_hats_per_day": 9, "daily_limit": 1.2}, h3_resolution=8)
        cells = [hat(cell=0x8860_8B0D_01FF_FFF + step) for step in (0, 0x20000, 0x40000)]
        reporter = Reporter(other, store, SystemNoise())
        assert len(reporter.draw([hat(), *cells], 0)) == 2
        assert reporter.tally.over_cap == 1, "a third would be above daily_limit, and not above its number of reports"
        assert store.spent("bus", "2022-01-02") == (4, 1_200_000_000)


def test_a_report_that_nobody_would_take_any_more_is_marked_and_not_sent(tmp_path: Path) -> None:
    with open_store(tmp_path / "state") as store:
        store.add(VehicleHat("bus", "2022-01-02", "12:00", "8"), 1, REPORT)
        with Outbox(NOBODY, "reports", 8, store, live=now_ms) as outbox:
            outbox.send(store.unsent())
            assert (outbox.expired, outbox.in_flight) == (1, 0)
        assert store.unsent() == []
        assert store.spent("bus", "2022-01-02") == (1, 1)


def test_a_live_device_tries_again_until_nobody_would_take_its_report(tmp_path: Path) -> None:
    """A broker that never answers, each try of a tenth of a second, for two seconds."""
    with open_store(tmp_path / "state") as store:
        with store.transaction():
            late = StoredMessage(0, "id", b"{}", now_ms(), now_ms() + 2_000)
            stored = store.add(VehicleHat("bus", "2022-01-02", "12:00", "8"), 1, late)
        with Outbox(NOBODY | {"message.timeout.ms": 100}, "reports", 8, store, live=now_ms) as outbox:
            outbox.send([stored])
            assert not outbox.finish(0.5)
            assert store.unsent() == [stored]
            assert outbox.finish(60.0)
            assert (outbox.sent, outbox.expired) == (0, 1)
        assert store.unsent() == []


def test_what_no_broker_has_is_kept_for_the_next_start(tmp_path: Path) -> None:
    with open_store(tmp_path / "state") as store:
        with store.transaction():
            stored = store.add(VehicleHat("bus", "2022-01-02", "12:00", "8"), 1, REPORT)
        with Outbox(NOBODY, "reports", 8, store, live=None) as outbox:
            outbox.send([stored])
            assert not outbox.finish(0.0)
    with open_store(tmp_path / "state") as store:
        assert store.unsent() == [stored]


def test_a_full_disk_is_told_in_one_line_and_nothing_is_sent_that_was_not_stored(tmp_path: Path) -> None:
    with open_store(tmp_path / "state"):
        pass
    with closing(sqlite3.connect(tmp_path / "state", isolation_level=None)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        store = DeviceStore(connection, tmp_path / "state")
        reporter = Reporter(rules_of(), store, Scripted([0] * 200))
        with pytest.raises(HatcastError, match="check its disk") as refusal:
            reporter.draw([hat(f"bus {number}") for number in range(200)], 0)
        assert "\n" not in str(refusal.value)
        assert store.unsent() == []


@pytest.mark.parametrize("of", ["reports", "answers"])
def test_marks_that_cannot_be_written_are_one_line(of: str, tmp_path: Path) -> None:
    with open_store(tmp_path / "state"):
        pass
    with closing(sqlite3.connect(tmp_path / "state", isolation_level=None)) as connection:
        store = DeviceStore(connection, tmp_path / "state")
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(HatcastError, match="the state file cannot be written"):
            (store if of == "reports" else store.answers).mark("sent", [1])


def test_a_state_file_is_its_owners_only_and_one_process_has_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state"
    with open_store(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(HatcastError, match="in use by a running device"), open_store(path):
            pass


def test_a_state_file_that_all_could_read_is_its_owners_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch(mode=0o644)
    with open_store(path):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"state": 0o600, "state-wal": 0o600}


def test_what_is_no_state_file_is_refused_in_one_line(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("not a database, but long enough to be read as the head of one\n" * 20)
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    for path in (text, other, tmp_path):
        with pytest.raises(HatcastError, match="--state") as refusal, open_store(path):
            pass
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name one source"),
        (["a.jsonl", "--format", "jsonl", "--synthetic", "--fleet", "2"], "name one source"),
        (["-", "--mqtt", "mqtt://broker/bus"], "name one source"),
        (["-", "a.jsonl", "--format", "jsonl"], "only source"),
        (["--synthetic"], "--fleet N"),
        (["-", "--fleet", "2"], "recording or --synthetic"),
        (["-", "--speedup", "2"], "for recordings"),
        (["a.jsonl", "--format", "jsonl", "--seed", "1"], "--synthetic"),
        (["a.jsonl", "--format", "jsonl", "--fleet", "2"], "--state FILE"),
        (
            ["a.jsonl", "--format", "jsonl", "--fleet", "2", "--vehicle", "bus", "--state", "s"],
            "--vehicle is for one device",
        ),
        (["a.jsonl", "--format", "jsonl", "--vehicle", " "], "not a vehicle id"),
        (["a.jsonl", "--format", "jsonl", "--vehicles-file", "missing", "--state", "s"], "cannot be read"),
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


refusal = partial(invoked.refusal, "device")


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
    own = single_vehicle_filter("standard input")
    assert own(Reading(" bus ", NOON, 1.0, 2.0, 3.0))
    assert own(Reading("bus", NOON, 1.0, 2.0, 3.0))
    assert not own(Reading("", NOON, 1.0, 2.0, 3.0))
    with pytest.raises(HatcastError, match="--vehicle"):
        own(Reading("another", NOON, 1.0, 2.0, 3.0))


def test_a_fleet_takes_its_vehicles_however_their_ids_are_written() -> None:
    fleet = fleet_filter(frozenset(("bus",)))
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
