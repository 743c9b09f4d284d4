"""`hatcast batch --reports`: what devices sent is blended, and counted by the worker's rules."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.stream.hybrid import DeviceReport, encode_report
from hatcast.stream.hybrid.signatures import public_key
from tests.batching import CONFIG, USERS, batch, dump_of, refusal, releases, telemetry
from tests.folding import BUS, HOUR, NOON
from tests.signing import AUTHORITY, Device, report_of, seed_of

OVER = NOON + HOUR
END = NOON + 30 * HOUR
CELL = h3.latlng_to_cell(BUS["lat"], BUS["lon"], 7)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    path.write_text(CONFIG.replace("baseline", "pwh").replace("hats_per_day = 40", "hats_per_day = 2"))
    return path


def a_report(config: Path, number: int, **changes: Any) -> bytes:
    policy_id = load_settings(config, {}).policy.policy_id
    fields = {"cell": CELL, "date": "2022-01-02", "slot": "12:00", "value": Decimal(40), "epsilon": 1.0} | changes
    return encode_report(DeviceReport(id=f"{number:032x}", policy_id=fields.pop("policy_id", policy_id), **fields))


def buses(tmp_path: Path) -> Path:
    logs = telemetry(1, NOON)
    logs[0].append((END, b""))
    return dump_of(tmp_path / "telemetry.jsonl", logs)


def devices(tmp_path: Path, log: Sequence[tuple[int, bytes | None]], start: int = 0) -> Path:
    path = dump_of(tmp_path / "reports.jsonl", [log], [start])
    path.write_bytes(path.read_bytes().replace(b'"telemetry"', b'"reports"'))
    return path


def run(tmp_path: Path, config: Path, reports: Path, *options: object) -> Any:
    return batch(buses(tmp_path), "--format", "kafka", "--config", config, "--reports", reports, "--json", *options)


def test_reports_are_counted_once_within_their_cap_and_under_their_policy(tmp_path: Path, config: Path) -> None:
    far = [h3.latlng_to_cell(lat, 72.8, 7) for lat in (22.0, 23.0)]
    sent = [a_report(config, 1), a_report(config, 1, value=Decimal(41)), a_report(config, 2)]
    sent += [a_report(config, 1, cell=cell) for cell in far]
    sent += [a_report(config, 3, policy_id="b2:" + "0" * 32), a_report(config, 4, epsilon=2.0)]
    log = [*((OVER, value) for value in sent), (OVER + HOUR, a_report(config, 5)), (END, b"")]
    reports = devices(tmp_path, log)
    found = json.loads(run(tmp_path, config, reports).stdout)["outcomes"]
    assert {name: found[name] for name in found if name.startswith("reports.")} == {
        "reports.accepted": 3,
        "reports.duplicate": 1,
        "reports.over_cap": 1,
        "reports.other_policy": 1,
        "reports.bad_value": 1,
        "reports.late": 1,
        "reports.tick": 1,
    }
    made = {each["cell"]: each for each in releases(run(tmp_path, config, reports, "--ledger", tmp_path / "ledger"))}
    assert made[CELL]["users"] == {"central": len(USERS), "local": 2}
    assert made[far[0]]["status"] == "suppressed"  # one device, and min_users is 3


def test_a_group_has_a_mean_of_its_own_only_if_both_have_enough_users(tmp_path: Path, config: Path) -> None:
    config.write_text(config.read_text().replace('name = "pwh"', 'name = "pwh"\ngroups = "separate"'))
    found = []
    for devices_there in (3, 2, 0):
        folder = tmp_path / f"{devices_there}"
        folder.mkdir()
        log = [*((OVER, a_report(config, number)) for number in range(devices_there)), (END, b"")]
        found += releases(run(folder, config, devices(folder, log), "--ledger", folder / "ledger"))
    both, few, alone = found  # min_users is 3
    assert {name: group["users"] for name, group in both["groups"].items()} == {"central": len(USERS), "local": 3}
    assert both["groups"]["local"]["raw"] == 40
    assert both["groups"]["local"]["noise"] == {"kind": "laplace_blend", "local_scale": 65.001}
    assert "groups" not in few
    assert few["users"] == {"central": len(USERS), "local": 2}
    assert [*alone["groups"]] == ["central"]
    assert alone["groups"]["central"]["raw"] == alone["raw"]


def test_contributions_are_those_of_readings_whatever_devices_sent(tmp_path: Path, config: Path) -> None:
    reports = devices(tmp_path, [(OVER, a_report(config, 1)), (END, b"")])
    found = json.loads(run(tmp_path, config, reports, "--contributions").stdout)
    assert found["hats"] == {f"{CELL}/2022-01-02/12:00": [12, 12, 360_000, 30_000]}
    assert found["outcomes"]["reports.accepted"] == 1


def test_nothing_is_final_before_the_clocks_of_reports_say_so(tmp_path: Path, config: Path) -> None:
    reports = devices(tmp_path, [(OVER, a_report(config, 1))])
    assert run(tmp_path, config, reports, "--ledger", tmp_path / "ledger").stdout == ""


def test_a_day_that_has_lost_reports_is_incomplete(tmp_path: Path, config: Path) -> None:
    reports = devices(tmp_path, [(OVER, a_report(config, 1)), (END, b"")], start=5)
    (made,) = releases(run(tmp_path, config, reports, "--ledger", tmp_path / "ledger"))
    assert made["status"] == "incomplete"


def test_only_signed_reports_count_where_the_configuration_has_report_keys(tmp_path: Path, config: Path) -> None:
    policy_id = load_settings(config, {}).policy.policy_id
    genuine = [each.sign(report_of(each, policy_id, CELL, epsilon=1.0)) for each in map(Device, range(3))]
    stranger = Device(9, authority=seed_of("stranger"))
    forged = [a_report(config, 1), stranger.sign(report_of(stranger, policy_id, CELL, epsilon=1.0))]
    reports = devices(tmp_path, [*((OVER, value) for value in [*forged, *genuine, *genuine]), (END, b"")])
    config.write_text(config.read_text() + '[worker]\nreport_keys_file = "keys"\n')
    (tmp_path / "keys").write_text(f"authority {public_key(AUTHORITY).hex()}\n")
    found = json.loads(run(tmp_path, config, reports).stdout)["outcomes"]
    assert {name: found[name] for name in found if name.startswith("reports.")} == {
        "reports.accepted": 3,
        "reports.bad_signature": 2,
        "reports.duplicate": 3,
        "reports.tick": 1,
    }


def test_a_dump_of_telemetry_is_not_taken_for_one_of_reports(tmp_path: Path, config: Path) -> None:
    path = buses(tmp_path)
    said = refusal(path, "--format", "kafka", "--config", config, "--reports", path, "--ledger", tmp_path / "ledger")
    assert "hatcast dump reports" in said
