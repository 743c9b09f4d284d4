"""`hatcast audit`: what it prints, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents import cli
from hatcast.agents.cli import hatcast
from hatcast.lab.audit import family, run
from hatcast.lab.audit.hats import RandomNumbers
from tests.auditing import ROOT, FastNoise

BASELINE = str(ROOT / "examples" / "audit" / "baseline.toml")
LEVY = str(ROOT / "examples" / "audit" / "levy.toml")
FEW = ["--samples", "400", "--pairs", "9"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with one processor: a new process takes seconds."""
    monkeypatch.setattr("hatcast.lab.processes.processors", lambda: 1)


def test_it_reports_every_part_of_every_policy_with_claim_bound_and_margin() -> None:
    done = CliRunner().invoke(hatcast, ["audit", "--config", BASELINE, "--config", LEVY, *FEW, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["settings"] == {"samples": 400, "pairs": 9, "false_alarm": 1e-6}
    parts = {each["policy"]: {part["part"]: part for part in each["parts"]} for each in found["policies"]}
    assert {policy: [*each] for policy, each in parts.items()} == {
        "audit-baseline": ["mean", "day"],
        "audit-levy": ["selection", "mean", "day"],
    }
    mean, day = parts["audit-baseline"].values()
    assert (mean["epsilon"], mean["samples"], mean["loss"], mean["problem"]) == (1.0, 400, 1.0, None)
    assert mean["margin"] == mean["epsilon"] - mean["bound"]
    assert (day["epsilon"], day["samples"], day["bound"]) == (5.0, 0, None)
    assert parts["audit-levy"]["selection"]["pairs"] == 1620


def test_markdown_is_the_table_of_the_documentation() -> None:
    done = CliRunner().invoke(hatcast, ["audit", "--config", BASELINE, *FEW, "--markdown"])
    assert done.exit_code == 0, done.output
    rows = done.stdout.splitlines()
    assert rows[0] == "| policy | part | claim | loss of requests | pairs | bound | margin | verdict |"
    assert rows[2].startswith("| `examples/audit/baseline.toml` | mean | 1 | 1.000 | ")
    assert rows[3].endswith(" - | - | no violation found |")


def test_a_violated_claim_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = family.audit_family

    def with_narrow_noise(part: Any, effort: Any, random: RandomNumbers, noise: Any) -> family.AuditFinding:
        del noise
        return whole(part, effort, random, FastNoise(width=0.2))

    monkeypatch.setattr(run, "audit_family", with_narrow_noise)
    monkeypatch.setattr("sys.argv", ["hatcast", "audit", "--config", BASELINE, "--samples", "2000", "--pairs", "9"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "violated" in printed.out
    assert printed.err.splitlines()[-1].startswith(
        "hatcast: examples/audit/baseline.toml, mean: the claim is violated: samples show an epsilon of at least "
    )
    assert printed.err.endswith("above the claim 1; do not release with it\n")


def test_a_file_that_is_no_policy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(hatcast, ["audit", "--config", str(tmp_path / "none.toml")])
    assert done.exit_code == 1
    assert "no such file" in str(done.exception)
    assert CliRunner().invoke(hatcast, ["audit", "--json", "--markdown"]).exit_code == 2
