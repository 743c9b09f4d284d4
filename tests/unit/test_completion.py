"""`hatcast completion`: shell code that shells take, and what it completes."""

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from hatcast.agents.cli import COMMANDS, hatcast


def completed(*words: str) -> list[str]:
    complete = BashComplete(hatcast, {}, "hatcast", "_HATCAST_COMPLETE")
    return [item.value for item in complete.get_completions([*words[:-1]], words[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_printed_is_code_of_that_shell(shell: str) -> None:
    result = CliRunner().invoke(hatcast, ["completion", shell])
    assert result.exit_code == 0
    assert f"_HATCAST_COMPLETE={shell}_complete" in result.output
    if which(shell) is not None:
        read = [shell, "--no-execute"] if shell == "fish" else [shell, "-n"]
        subprocess.run(read, input=result.output, text=True, check=True)


def test_commands_are_completed_without_loading_any(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: str) -> None:
        raise AssertionError("a command was loaded")

    monkeypatch.setattr("importlib.import_module", load)
    assert completed("wo") == ["worker"]
    assert completed("") == list(COMMANDS)


def test_options_and_their_values_are_completed() -> None:
    assert completed("feed", "syn") == ["synthetic"]
    assert "--config" in completed("worker", "--c")
    assert "capmetro" in completed("batch", "--format", "cap")


def test_bash_itself_completes_a_command(tmp_path: Path) -> None:
    ours = tmp_path / "hatcast"
    ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hatcast "$@"\n')
    ours.chmod(0o755)
    code = CliRunner().invoke(hatcast, ["completion", "bash"]).output
    call = f"COMP_WORDS=(hatcast wor); COMP_CWORD=1; _hatcast_completion {ours}; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash"], input=f"{code}\n{call}", text=True, capture_output=True, check=False)
    assert done.stdout.split() == ["worker"], done.stderr
