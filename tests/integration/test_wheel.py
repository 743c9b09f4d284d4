"""The wheel: one top-level package, which works beside any other."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.absent import ServiceAbsent

ROOT = Path(__file__).parents[2]
_WHERE = "from importlib.util import find_spec as f; print(f('hatcast').origin, f('agents').origin)"
OTHER = "openai-agents"  # installs a top-level package `agents`, as hatcast once did


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the wheel and the other package; what both need is in the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check")
    run(*pip, "--target", folder, wheel, cwd=folder)
    found = subprocess.run([*pip, "--target", folder, OTHER], capture_output=True, check=False, text=True)
    if found.returncode:
        raise ServiceAbsent(f"{OTHER} could not be fetched: {found.stderr.strip().splitlines()[-1]}")
    yield folder


def test_the_wheel_has_exactly_one_top_level_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.partition("/")[0] for name in names}
    assert {each for each in top if not each.endswith(".dist-info")} == {"hatcast"}
    rooms = {"/".join(name.split("/")[:2]) for name in names if name.startswith("hatcast/")}
    assert rooms >= {
        "hatcast/stream",
        "hatcast/agents",
        "hatcast/lab",
        "hatcast/schemas",
        "hatcast/__main__.py",
        "hatcast/py.typed",
    }
    assert not [name for name in names if name.startswith("hatcast/tools")]
    # Everything that the code reads beside itself.
    assert {path.suffix for name in names if (path := Path(name)).suffix} >= {".py", ".lua", ".js", ".css", ".json"}


def test_the_wheel_installs_everywhere_without_a_compiler(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]


def test_every_source_file_of_the_repository_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        f"hatcast/{path.relative_to(ROOT).as_posix()}"
        for folder in ("stream", "agents", "lab")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources - names == set()


def test_it_works_beside_a_package_that_is_called_agents(installed: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(installed)}
    ours, theirs = run(sys.executable, "-P", "-c", _WHERE, cwd=tmp_path, env=env).split()
    assert Path(ours).is_relative_to(installed)
    assert Path(theirs).is_relative_to(installed)
    assert "Continual private means" in run(sys.executable, "-P", "-m", "hatcast", "--help", cwd=tmp_path, env=env)
    said = run(sys.executable, "-P", "-m", "hatcast", "init", "--help", cwd=tmp_path, env=env)
    assert "hatcast.toml" in said


def test_two_builds_are_equal_byte_by_byte_wherever_and_whenever_they_are_made(wheel: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {name.partition("/")[0] for name in [*project["only-include"], *project["force-include"]]}
    copy, umask = tmp_path / "elsewhere", os.umask(0o077)
    try:
        copy.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / name, copy / name)  # with the time and the mode of now
        for name in parts:
            shutil.copytree(
                ROOT / name,
                copy / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
                copy_function=shutil.copyfile,
            )
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path, cwd=copy)
    finally:
        os.umask(umask)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_uvx_runs_a_command_of_the_wheel_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(ROOT / ".cache/bin/uv")
    if not Path(uv).exists():
        raise ServiceAbsent("no uv: scripts/test fetches one")
    found = run(
        *(uv, "tool", "run", "--python", sys.executable, "--quiet", "--from", wheel, "hatcast", "statement", "page"),
        *("--config", ROOT / "hatcast.toml"),
        cwd=tmp_path,
        env={"PYTHONPATH": ""},
    )
    assert found.startswith("# What we publish about")
    assert list(tmp_path.iterdir()) == []
