"""What a test needs and is not here: whoever looks for it raises ServiceAbsent, and here, only, that becomes a skip.

Skipped tests are counted, a line for each reason; where CI is set they fail.
"""

import os
import shutil
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

MARK: Final = "absent: "
INSTALL: Final = ": install "
HIDDEN: Final = "HATCAST_TEST_WITHOUT"


class ServiceAbsent(RuntimeError):
    """A service, program or file that is not on this machine; the text says what would bring it."""

    def __init__(self, reason: str, package: str | None = None) -> None:
        """`package`: the one of Debian and Ubuntu that has it."""
        super().__init__(f"{reason}{INSTALL}{package}" if package else reason)
        self.package = package


def find_program(*names: str, package: str, places: Sequence[str] = ()) -> str:
    """The path of the first of these programs: in a place, which may be a pattern, else on PATH.

    Raises ServiceAbsent if there is none. Those in HATCAST_TEST_WITHOUT are treated as missing.
    """
    folders = [str(folder) for place in places for folder in sorted(Path("/").glob(place[1:]), reverse=True)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    for name in names:
        found = None if hidden(name) else shutil.which(name, path=path)
        if found is not None:
            return found
    raise ServiceAbsent(f"no {names[0]}", package)


def find_git() -> str:
    """With which a run chooses its share: `rotation`. Raises ServiceAbsent where there is none."""
    return find_program("git", package="git")


def hidden(name: str) -> bool:
    """Whether HATCAST_TEST_WITHOUT, names with spaces between them, says to do without it."""
    return name in os.environ.get(HIDDEN, "").split()


def in_ci() -> bool:
    """True where the environment says CI: there nothing may be missing."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


@contextmanager
def absence_skips() -> Iterator[None]:
    """End the test that finds something absent: skipped; failed where CI is set."""
    try:
        yield
    except ServiceAbsent as reason:
        if in_ci():
            pytest.fail(f"{reason} (CI is set, so this fails)", pytrace=False)
        pytest.skip(MARK + str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Fixtures."""
    with absence_skips():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The test itself."""
    with absence_skips():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is absent, with the number of tests that were not run for it."""
    for line in lines_of(count(terminalreporter.stats.get("skipped", []))):
        terminalreporter.write_line(line, yellow=True)


def count(skipped: list[Any]) -> Counter[str]:
    """Reason -> number of tests, of pytest's reports of skipped tests."""
    reasons = (str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple))
    return Counter(reason.partition(MARK)[2] for reason in reasons if MARK in reason)


def lines_of(reasons: Counter[str]) -> Iterator[str]:
    """One line for all that packages would bring, and one for each other reason."""
    wanted = {reason: reason.partition(INSTALL) for reason in sorted(reasons) if INSTALL in reason}
    if wanted:
        each = ", ".join(f"{what} ({reasons[reason]})" for reason, (what, _, _) in wanted.items())
        packages = " ".join(sorted({package for _, _, package in wanted.values()}))
        yield f"skipped {sum(reasons[reason] for reason in wanted)}: {each}{INSTALL}{packages}"
    for reason in sorted(reasons.keys() - wanted):
        yield f"skipped {reasons[reason]}: {reason}"
