"""Copies of the repository in which mutants are tried, one mutant at a time in each."""

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.mutants.catalogue import ROOT, Mutant

_SECONDS: Final = 900  # of one mutant's tests: a mutant that makes them hang is caught too, but should not be one
_FAILED: Final = 1  # pytest: tests ran, and some failed
_PASSED: Final = 0


class Verdict(StrEnum):
    """Result of a mutant's tests."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"  # no test ran: the mutant is not a program, or a test is not there


@dataclass(frozen=True, slots=True)
class Found:
    """Result of one mutant: the first test that failed, and the end of pytest's output."""

    verdict: Verdict
    seconds: float
    test: str
    output: str


class Workshop:
    """A copy of all tracked files for each job, deleted at the end."""

    def __init__(self, jobs: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hatcast-mutants-", ignore_cleanup_errors=True)
        self._copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._jobs = jobs
        self._times = count(1_000_000_000)  # seconds: all of them long ago

    def __enter__(self) -> Self:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        names = [name for name in listed.stdout.decode().split("\0") if name and os.path.lexists(ROOT / name)]
        for number in range(self._jobs):
            copy = Path(self._folder.name) / str(number)
            for name in names:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
            self._copies.put(copy)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def check_healthy(self, mutants: Sequence[Mutant]) -> str | None:
        """Run all tests of these mutants on the code as it is; return the end of the output if one fails."""
        copy = self._copies.get()
        try:
            code, output = _pytest(copy, sorted({test for mutant in mutants for test in mutant.tests}))
        finally:
            self._copies.put(copy)
        return None if code == _PASSED else output

    def run(self, mutant: Mutant) -> Found:
        """Apply a mutant to a copy, run its tests, and restore the file."""
        copy = self._copies.get()
        source = (copy / mutant.file).read_text()
        begun = time.monotonic()
        try:
            self._write(copy / mutant.file, mutant.applied(source))
            code, output = _pytest(copy, mutant.tests)
        finally:
            self._write(copy / mutant.file, source)
            self._copies.put(copy)
        verdict = {_PASSED: Verdict.SURVIVED, _FAILED: Verdict.CAUGHT}.get(code, Verdict.BROKEN)
        failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
        return Found(verdict, time.monotonic() - begun, failed.group(1) if failed else "", output)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time of its own: by time and size Python knows whether its compiled form is stale."""
        path.write_text(text)
        written = next(self._times)
        os.utime(path, (written, written))


def _pytest(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy, up to the first failure; return pytest's exit code and the end of its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "HATCAST_DATA": os.environ.get("HATCAST_DATA", str(ROOT.parent / "shared" / "data")),
        "PYTHONPYCACHEPREFIX": str(copy / ".pycache"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / ".hypothesis"),
    }
    shown = "--no-header --tb=line --durations=0 --durations-min=60"
    options = f"-x -q -p no:cacheprovider --hypothesis-profile=mutants {shown}".split()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _FAILED, "FAILED no-end: the tests did not end"
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-30:])
