"""Optional packages: a command that needs one which is not installed names the extra that installs it."""

import sys
import tomllib
from pathlib import Path

import pytest

from hatcast.agents import cli
from hatcast.agents.errors.extras import EXTRAS, missing_extra

ROOT = Path(__file__).parents[2]


def test_every_optional_package_is_in_the_extra_that_is_named_and_nowhere_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in EXTRAS.items():
        assert any(each.startswith(f"{package}>") for each in project["optional-dependencies"][extra])
        assert not any(each.startswith(f"{package}>") for each in project["dependencies"])


def test_a_command_whose_extra_is_missing_names_it_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recording = tmp_path / "recording.jsonl"
    reading = '{"vehicle": "a", "time": "2022-01-02T12:00:00Z", "lat": 21.1, "lon": 72.8, "speed": 5}\n'
    recording.write_text(reading)
    monkeypatch.setitem(sys.modules, "polars", None)  # an import of it fails, as where it is not installed
    for name in [each for each in sys.modules if each.startswith("hatcast.agents.research.survey")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["hatcast", "survey", str(recording), "--format", "jsonl", "--timezone", "UTC"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith(
        "\nhatcast: this needs polars, which is not installed: run  pip install 'hatcast[research]'\n"
    )


def test_another_missing_module_is_not_taken_for_an_extra() -> None:
    assert missing_extra(ModuleNotFoundError("no", name="another")) is None
    assert missing_extra(ValueError("no")) is None
