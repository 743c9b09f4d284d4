"""docs/reliability.md: each promise has a number, and tests under that number. That these exist: test_report.py."""

import re
from pathlib import Path

from hatcast.agents.release import path

TEXT = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
PROMISES, _, TESTS = TEXT.partition("\n## Tests of the promise\n")
_ROW = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def test_promises_are_numbered_without_a_gap() -> None:
    numbers = [int(number) for number, _ in _ROW.findall(PROMISES)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 50


def test_every_promise_has_tests_and_nothing_else_has() -> None:
    tests = dict(_ROW.findall(TESTS))
    assert list(tests) == [number for number, _ in _ROW.findall(PROMISES)]
    assert [number for number, names in tests.items() if not re.search(r"`tests/[\w/]+\.py::test_\w+`", names)] == []


def test_no_promise_names_a_test_beside_it() -> None:
    assert [number for number, row in _ROW.findall(PROMISES) if "::" in row] == []


def test_the_table_of_states_is_that_of_the_release_path() -> None:
    _, _, states = TEXT.partition("\n## What a crash leaves\n")
    pages = re.findall(r"^\|.*$", states.partition("\n## ")[0], re.MULTILINE)
    assert pages == re.findall(r"^\|.*$", path.__doc__ or "", re.MULTILINE)
    assert [row.split("|")[1].strip() for row in pages][2:4] == ["loaded", "drawn"]
