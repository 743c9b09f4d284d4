"""The goldens, exactly, through the command as it is typed (tests/data/golden/README.md)."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents.cli.batch import command as batch
from tests.services.data import DATA, GOLDENS, golden, golden_recording


def hatcast(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "hatcast", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, cwd=DATA.parents[1])


def write_config(policy: dict[str, Any], path: Path) -> Path:
    """hatcast.toml with a golden's policy."""
    given = {
        "upper_bound": policy["U"],
        "reject_above": policy["reject_above"],
        "drop_zero": policy["drop_zero"],
        "timezone": policy["tz"],
        "h3_resolution": policy["res"],
        "hours": [policy["h0"], policy["h1"]],
        "lateness": f"{policy['late']}s",
        "max_ahead": f"{policy['ahead']}s",
        "min_interval": f"{policy['minint']}s",
        "slot_length": f"{policy['slot']}m",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    privacy = f"epsilon = 1.0\nmax_hats_per_day = {policy['K']}\ndaily_limit = 105.0"
    text = "\n".join(lines)
    path.write_text(
        f'[policy]\nname = "golden"\n{text}\n[policy.privacy]\n{privacy}\n[policy.estimator]\nname = "baseline"\n'
    )
    return path


def test_every_golden_result_has_its_recording() -> None:
    assert {path.stem for path in (DATA / "golden").glob("*.json")} == set(GOLDENS)


@pytest.mark.parametrize("name", GOLDENS)
def test_batch_gives_the_golden_result(name: str, tmp_path: Path) -> None:
    expected = golden(name)
    feed, files = golden_recording(name)
    config = write_config(expected["policy"], tmp_path / "hatcast.toml")
    done = hatcast("batch", *files, "--format", feed, "--config", config, "--contributions", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {"outcomes": expected["outcomes"], "hats": expected["hats"]}
    told = [line for line in done.stderr.splitlines() if not line.startswith(b"hint: ")]  # of undecodable records
    assert told == [b"reads raw data, not private"]


def test_nested_and_flattened_itms_give_the_same_hats(tmp_path: Path) -> None:
    expected = golden("itms_30min")
    _, [path] = golden_recording("itms_30min")
    config = write_config(expected["policy"], tmp_path / "hatcast.toml")
    rows = json.loads(path.read_bytes())
    for row in rows:
        row["location"] = {"type": row.pop("location.type"), "coordinates": row.pop("location.coordinates")}
    nested = tmp_path / "nested.json"
    nested.write_text(json.dumps(rows, indent=1))
    arguments = [str(nested), "--format", "itms", "--config", str(config), "--contributions", "--json"]
    done = CliRunner(catch_exceptions=False).invoke(batch, arguments)
    assert json.loads(done.stdout) == {"outcomes": expected["outcomes"], "hats": expected["hats"]}


def test_without_contributions_json_holds_the_outcomes_alone(tmp_path: Path) -> None:
    expected = golden("edge")
    config = write_config(expected["policy"], tmp_path / "hatcast.toml")
    edge = DATA / "golden" / "edge.jsonl"
    done = hatcast("batch", edge, "--format", "jsonl", "--config", config, "--json")
    assert json.loads(done.stdout) == {"outcomes": expected["outcomes"]}
    assert b"hint: 158 of 3,154 records are undecodable" in done.stderr
    assert b"no speed follows" not in done.stderr, "speeds are not derived"


def test_a_recording_in_parts_gives_the_result_of_the_whole(tmp_path: Path) -> None:
    expected = golden("edge")
    config = write_config(expected["policy"], tmp_path / "hatcast.toml")
    lines = (DATA / "golden" / "edge.jsonl").read_bytes().splitlines(keepends=True)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl.gz"
    first.write_bytes(b"".join(lines[:1000]))
    second.write_bytes(gzip.compress(b"".join(lines[1000:])))
    done = hatcast("batch", first, second, "--format", "jsonl", "--config", config, "--contributions", "--json")
    assert json.loads(done.stdout) == {"outcomes": expected["outcomes"], "hats": expected["hats"]}
