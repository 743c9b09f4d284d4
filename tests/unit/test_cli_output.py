"""Commands whose standard output is on a full disk, is closed, or has lost its reader."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.broken_output import KINDS
from tests.unit.test_cli_manners import FOLDED, commands

ROOT: Final = Path(__file__).parents[2]
WRITTEN: Final = {
    "full": "hatcast: standard output cannot be written (No space left on device): the output is not complete\n",
    "closed": "hatcast: standard output cannot be written (it is closed): the output is not complete\n",
    "left": "",
}
HELPS: Final = [[*name.split(), "--help"] for name, _ in commands()]
# What needs no service: text of click, of rich, JSON, and a command that has done its work before it prints.
OTHERS: Final = [
    ["--version"],
    ["completion", "bash"],
    ["budget", "report"],
    ["budget", "report", "--json"],
    ["doctor", "--config", "/none/hatcast.toml"],
    FOLDED,
    [*FOLDED, "--json"],
]
# Every help goes through the same printer, so one of them meets every kind of broken output, and the others one.
CASES: Final = [
    *((each, kind) for each in (["--help"], *OTHERS) for kind in KINDS),
    *((each, "full") for each in HELPS),
]

Ended = Mapping[tuple[str, ...], Mapping[str, Any]]


@cache
def ended(*, helps: bool) -> Ended:
    """(arguments, kind) -> code and err, of all cases of a help or all others.

    One process for all, which takes the time of loading every command once.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.broken_output"],
        cwd=ROOT,
        input=json.dumps([case for case in CASES if (case[0] in HELPS) is helps]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return {(*each["arguments"], each["kind"]): each for each in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("arguments", "kind"), CASES, ids=lambda each: each if isinstance(each, str) else " ".join(each)
)
def test_a_standard_output_that_cannot_be_written_is_one_line_and_code_1(arguments: list[str], kind: str) -> None:
    found = ended(helps=arguments in HELPS)[*arguments, kind]
    hints = re.sub(r"^hint: .*\n", "", found["err"], flags=re.MULTILINE)  # about the recording, before the output
    assert (found["code"], hints) == (1, WRITTEN[kind])


def test_a_command_with_closed_streams_prints_nothing_into_its_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    command = [sys.executable, "-m", "hatcast", *FOLDED, "--ledger", str(ledger)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert WRITTEN["closed"] in done.stderr
    assert ledger.read_bytes().startswith(b"SQLite format 3\0")


def test_all_output_of_commands_goes_through_the_one_standard_output() -> None:
    """So that a new command is covered: nothing writes to descriptor 1 past the object that reports errors."""
    past = re.compile(r"__stdout__|stdout\.fileno\(\)|os\.write\(1\b|/dev/stdout|open\(1\b")
    files = [path for folder in ("agents", "lab") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in files if past.search(path.read_text())] == [ROOT / "agents" / "cli" / "__init__.py"]
