"""`hatcast.batch` of a dump of telemetry, and of reports of devices: the records of the command."""

from pathlib import Path

import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from tests.unit.test_batch_reports import END, OVER, a_report, buses, config, devices, run

__all__ = ["config"]  # the fixture


def test_dumps_of_telemetry_and_of_reports_give_the_records_of_the_command(tmp_path: Path, config: Path) -> None:
    reports = devices(tmp_path, [*((OVER, a_report(config, number)) for number in range(3)), (END, b"")])
    printed = run(tmp_path, config, reports, "--ledger", tmp_path / "ledger").stdout_bytes
    for policy in (config, hatcast.Policy.from_file(config), hatcast.load_settings(config)):
        found = hatcast.batch(buses(tmp_path), policy, format="kafka", reports=reports, ledger=tmp_path / "ledger")
        assert b"".join(value + b"\n" for value in found.values) == printed
        assert found.outcomes is not None
        assert found.outcomes["reports.accepted"] == 3


def test_a_policy_of_devices_needs_their_reports(tmp_path: Path, config: Path) -> None:
    with pytest.raises(HatcastError) as refused:
        hatcast.batch(buses(tmp_path), config, format="kafka", ledger=tmp_path / "ledger")
    assert str(refused.value) == (
        "the policy's releases need the reports of devices: give the output of `hatcast dump reports` as `reports`"
    )
    with pytest.raises(HatcastError, match="is a dump of telemetry: reports are the output"):
        hatcast.batch(buses(tmp_path), config, format="kafka", reports=buses(tmp_path), ledger=tmp_path / "ledger")
