"""docs/decisions: an index of all pages, their sections, and tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("0*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Kept true by"]
every_decision = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_are_pages_each_with_a_number_of_its_own() -> None:
    assert len(PAGES) > 20
    assert len({page.name[:4] for page in PAGES}) == len(PAGES)


def test_the_index_lists_every_decision_with_its_title_and_status() -> None:
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (.+) \|$", (FOLDER / "index.md").read_text(), re.MULTILINE)
    wanted = []
    for page in PAGES:
        title = re.match(r"# (\d+)\. (.+)", page.read_text())
        status = re.search(r"^Status: (\w+)\.$", page.read_text(), re.MULTILINE)
        assert title is not None
        assert status is not None
        wanted.append((title[1], title[2], page.name, status[1]))
    assert listed == wanted


@every_decision
def test_a_decision_has_its_sections(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == SECTIONS


@every_decision
def test_a_decision_names_tests_and_files_that_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"\b(?:tests|agents|lab|stream|tools|scripts|bench|docs)/[\w/.-]*\w", text)
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert "tests/" in text.partition("## Kept true by")[2]
