"""docs/privacy.md: each known failure of private systems has a source, tests and mutants that exist."""

import re
from typing import Final

from tests.mutants.catalogue import ROOT, load_catalogue

PAGE: Final = (ROOT / "docs" / "privacy.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)
]
COLUMNS: Final = ["", "failure", "known from", "hatcast", "tests", "mutants"]
NUMBER: Final = 17


def test_seventeen_failures_are_listed_each_with_a_source() -> None:
    assert f"| {' | '.join(COLUMNS).strip()} |" in PAGE
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, NUMBER + 1)]
    assert {len(row) for row in ROWS} == {len(COLUMNS)}
    assert [row[0] for row in ROWS if not re.search(r"\[[^\]]+\]\(https://[^)]+\)", row[2])] == []


def test_each_failure_names_tests_and_mutants_that_exist() -> None:
    mutants = {mutant.name for part in load_catalogue() for mutant in part.mutants}
    for number, *_, tests, of_failure in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named, number
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{number}: {path}::{name}"
        assert set(of_failure.split("; ")) <= mutants, number
