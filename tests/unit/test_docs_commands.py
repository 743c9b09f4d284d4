"""Commands, options and links in docs/ and the pages beside the code are there, and a page says whom it is for."""

import re
from pathlib import Path

import pytest

from tests.commands import problem_of, said_in

ROOT = Path(__file__).parents[2]
PAGES = [
    *(
        ROOT / name
        for name in (
            *("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "GOVERNANCE.md", "SECURITY.md"),
            *("bench/README.md", "tests/mutants/README.md"),
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
READERS = (
    *("everyone", "those who try it", "analysts", "operators", "developers of a consumer", "readers of a map"),
    *("privacy officers", "contributors"),
)
_BLOCKS = re.compile(r"^( *)```[a-z]*\n(.*?)^\1```$|^((?:    .*\n)+)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:hatcast|scripts/demo)(?:\s[^`]+)?)`")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def commands_in(text: str) -> list[list[str]]:
    blocks = [block[1] or block[2] for block in _BLOCKS.findall(text)]
    inline = [" ".join(said.split()) for said in _INLINE.findall(text)]
    return [said for block in [*blocks, *inline] for said in said_in(block)]


@every_page
def test_every_command_and_option_that_a_page_names_is_there(page: Path) -> None:
    problems = [problem_of(said) for said in commands_in(page.read_text())]
    assert [problem for problem in problems if problem is not None] == []


def test_commands_are_found_and_wrong_ones_with_them() -> None:
    text = "```sh\npip install . && hatcast worker --fast   # --slow\n```\n\n`hatcast\nfly`, `scripts/demo --for 3`\n"
    found = commands_in(text)
    assert found == [["hatcast", "worker", "--fast"], ["hatcast", "fly"], ["hatcast", "demo", "--for", "3"]]
    assert [problem_of(said) is None for said in found] == [False, False, True]
    assert sum(len(commands_in(page.read_text())) for page in PAGES) > 60


@every_page
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    for target in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != ROOT / "README.md" and not page.name.startswith("00")]
)
def test_a_page_says_in_its_first_line_whom_it_is_for(page: Path) -> None:
    _, empty, first, *_ = page.read_text().split("\n")
    assert empty == ""
    assert re.match(rf"\*?For (?:{'|'.join(READERS)})\b", first), first
