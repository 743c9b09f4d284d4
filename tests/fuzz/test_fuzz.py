"""A short search of every target with a fixed seed; and the search finds what is broken. `scripts/fuzz` is longer."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.target import SECRET, Finding, check_limits, check_message
from tests.services.absent import ServiceAbsent
from tests.services.data import ROOT

_MADE = 20  # inputs of each target, besides its seeds; scripts/fuzz is the search, which is guided by coverage
_PARTS = 3  # of the targets

_BROKEN = """
import sys
from pathlib import Path
from tests.fuzz.engine import Bounds, search
from tests.fuzz.target import Target

def run(data):
    if data[:1] == b"a":
        raise KeyError(data)

targets = [Target("broken", run, lambda: [b"x"]), Target("whole", lambda data: None, lambda: [b"x"])]
for found in search(targets, Bounds(0.0, 20_000, 1), Path(sys.argv[1]), 1):
    print(found.name, found.finding is not None and found.finding.read_bytes()[:1])
"""


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Python in the root of the repository."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.usefixtures("redis_server")  # the stored states need one
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_target_breaks_its_property_on_its_seeds_and_some_inputs_made_of_them(part: int) -> None:
    ran = python("-m", "tests.fuzz.once", _MADE, part, _PARTS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.splitlines()[-1].split()[0]) > 50 * _MADE / _PARTS


def test_the_search_finds_a_target_that_raises_and_writes_the_input(tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        raise ServiceAbsent("no atheris: it has no wheels of this system")
    ran = python("-c", _BROKEN, tmp_path)
    assert ran.stdout.splitlines() == ["broken b'a'", "whole False"], ran.stdout + ran.stderr


def test_an_input_that_takes_too_long_or_too_much_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.target.CPU_MAX_S", -1.0)
    with pytest.raises(Finding, match="processor time"):
        check_limits(lambda _: None, b"data")
    monkeypatch.setattr("tests.fuzz.target.CPU_MAX_S", 60.0)
    monkeypatch.setattr("tests.fuzz.target.MEMORY_MAX_KIB", -1)
    with pytest.raises(Finding, match="memory"):
        check_limits(lambda _: None, b"data")


@pytest.mark.parametrize("text", ["two\nlines", "", f"a line with {SECRET}7"])
def test_a_message_of_several_lines_or_with_data_of_the_input_is_a_finding(text: str) -> None:
    with pytest.raises(Finding):
        check_message(ValueError(text))
