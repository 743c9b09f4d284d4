"""The summary of long runs, and the page that it is kept on."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.report import BEGIN, BEGIN_OF_KIND, END, PAGE, Report, Summary, has_place, keep
from tests.services.data import ROOT

REPORTS = [
    Report(
        "released", 7, 1_000_000, 90.0, 291, Counter({"zombie": 2, "at step: committed stop": 1, "Redis flushed": 1})
    ),
    Report("held", 8, 1_000_001, 30.0, 0, Counter({"zombie": 1, "Redis rolled back": 3}), ["open: a HAT"]),
]


def test_a_summary_adds_up_its_runs_and_names_the_seed_of_what_was_found() -> None:
    told = Summary(REPORTS).as_json()
    assert told["seeds"] == [7, 8]
    assert (told["readings"], told["releases"], told["minutes"]) == (2_000_001, 291, 2.0)
    assert told["faults"]["zombie"] == 3
    assert told["violations"] == ["seed 8: open: a HAT"]
    assert Summary(REPORTS).wanted()["Redis rolled back or flushed"] == 4


def test_a_summary_takes_the_place_of_the_last_one_and_of_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nan older one\n{END}\nafter\n")
    for _ in range(2):
        keep(Summary(REPORTS), "2022-01-02", page)
        text = page.read_text()
        assert text.startswith(f"before\n{BEGIN}\n2022-01-02: 2 runs")
        assert text.endswith(f"\n{END}\nafter\n")
        assert "an older one" not in text
        assert "| zombie | 3 |" in text
        assert "**1 violations**" in text
        assert "committed stop 1" in text
    begin = BEGIN_OF_KIND.format("tracked")
    page.write_text(f"{BEGIN}\nof all kinds\n{END}\n{begin}\nan older one\n{END}\n")
    keep(Summary(REPORTS), "2022-01-02", page, "tracked")
    assert page.read_text().startswith(f"{BEGIN}\nof all kinds\n{END}\n{begin}\n2022-01-02: 2 runs")
    assert has_place(page)
    assert not has_place(page, "released")
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        keep(Summary(REPORTS), "2022-01-02", page)


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 15
    absent = [(file, test) for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert absent == []
