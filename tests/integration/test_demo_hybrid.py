"""`hatcast demo` of a hybrid policy: devices beside the telemetry, and both groups in what it shows."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.demonstrating import (
    OF_RELEASE,
    SECONDS,
    configured,
    demo,
    edge_config,
    finished,
    releases,
    wait_until_gone,
)

BUSES, READINGS, HOURS = 20, 6, 2


def steady_buses(path: Path) -> Path:
    """A recording of 20 buses in one hexagon, all at 30 km/h, with 6 readings in each of two hours."""
    with path.open("w") as file:
        for minute in range(0, 60 * HOURS, 60 // READINGS):
            for bus in range(BUSES):
                at = f"2026-03-02T{8 + minute // 60:02}:{minute % 60:02}:{bus:02}Z"
                reading = {
                    "vehicle": f"B{bus:02}",
                    "time": at,
                    "lat": 60.17,
                    "lon": 24.94,
                    "speed": 30.0,
                    "unit": "km/h",
                }
                file.write(json.dumps(reading | {"arrival": at}) + "\n")
    return path


def hybrid_config(tmp_path: Path) -> Path:
    """Hardly any noise of either kind, so the blend of equal speeds is that speed."""
    privacy = {"epsilon": 1e6, "local_epsilon": 1e6, "daily_limit": 1e9, "acknowledge_weak_privacy": True}
    policy = {"name": "blend", "hours": [0, 24], "privacy": privacy, "estimator": {"name": "pwh"}}
    return configured(tmp_path, {"policy": policy})


def test_a_hybrid_policy_blends_readings_with_the_reports_of_devices_and_the_demo_ends(
    tmp_path: Path, temporary: Path
) -> None:
    given = ("--format", "jsonl", "--config", hybrid_config(tmp_path), "--share", 0.4, "--speedup", 0)
    code, out, err = finished(temporary, "--feed", steady_buses(tmp_path / "steady.jsonl"), *given)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    means = [line for line in lines if " km/h  " in line]
    weight = 8**2 / (8**2 + 12)  # T^2 / (T^2 + L), since both epsilons are equal
    groups = f"8 trust (weight {weight:.2f}), 12 devices ({1 - weight:.2f})"
    assert [" ".join(line.split()[4:]) for line in means] == [f"30.0 km/h 29.997 to 30.003 released {groups}"] * HOURS
    assert f"readings {8 * READINGS * HOURS}: {8 * READINGS * HOURS} counted" in lines, "no reading of the others"
    assert f"reports of devices {12 * HOURS}: {12 * HOURS} counted" in lines
    assert any(line.startswith("trust ") and "8 of 20 buses, a share of 40%," in line for line in lines)
    (command,) = [line.strip() for line in lines if " batch " in line]
    assert "init --yes" in command, "a policy without reports: batch has none of them"


@pytest.mark.parametrize(("share", "users"), [(0, {"central": 0, "local": BUSES}), (1, {"central": BUSES, "local": 0})])
def test_everybody_may_trust_the_operator_or_nobody(
    share: int, users: Mapping[str, int], tmp_path: Path, temporary: Path
) -> None:
    given = ("--format", "jsonl", "--config", hybrid_config(tmp_path), "--share", share, "--speedup", 0, "--json")
    code, out, err = finished(temporary, "--feed", steady_buses(tmp_path / "steady.jsonl"), *given)
    assert (code, err) == (0, b"")
    assert [record["users"] for record in releases(out)] == [users] * HOURS


def test_the_hybrid_city_releases_both_groups_as_in_the_contract(temporary: Path) -> None:
    with demo(temporary, "--hybrid", "--share", 0.2, "--speedup", 600, "--json") as process:
        assert process.stdout is not None
        out = b""
        while b'"status":"released"' not in out:
            line = process.stdout.readline()
            assert line, "it ended before anything was released"
            out += line
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest, err = process.stdout.read(), process.stderr.read()
        assert (process.wait(SECONDS), err) == (0, b"")
    found = [record for record in releases(out + rest) if record["status"] == "released"]
    for release in found:
        OF_RELEASE.validate(release)
        assert 0 < release["weight"] < 1 or 0 in release["users"].values()
    groups = [sum(release["users"][group] for release in found) for group in ("central", "local")]
    assert 0.05 < groups[0] / sum(groups) < 0.5
    wait_until_gone(temporary)


def test_devices_without_a_policy_that_takes_their_reports_are_one_clear_line(tmp_path: Path, temporary: Path) -> None:
    code, out, err = finished(temporary, "--hybrid", "--config", edge_config(tmp_path))
    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert b"takes no reports: its estimator is baseline; choose a hybrid one" in err
