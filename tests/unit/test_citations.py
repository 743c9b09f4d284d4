"""Every citation of a page, rule, section, heading or decision in code and docs resolves inside this repository.

Forms: `docs/PAGE.md`, `docs/PAGE.md#anchor`, `docs/PAGE.md, Heading`, `docs/PAGE.md, "Heading"`,
`docs/specification/fold.md, rule 7`, `fold.md, rules 1, 2, 10 to 13`, `estimators.md, section 5`,
`docs/specification/release.md, Invariants, I7`, `decisions/0026`, `decisions/0014, 0026`. A specification page may be
cited without its folder. A citation may continue on the next line.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SPECIFICATION: Final = DOCS / "specification"
SCANNED: Final = ("stream", "agents", "lab", "tests", "bench", "tools", "scripts", "docs")
SUFFIXES: Final = frozenset({".py", ".lua", ".md"})

_URL: Final = re.compile(r"https?://[^\s)>\"'`\]]+")
_COMMENT: Final = re.compile(r"^\s*(?:#+|--)?\s*")  # what precedes a line's text in Python, Lua and Markdown
_DECISION: Final = re.compile(r"\bdecisions/(\d{4})((?:-[\w-]+\.md)|(?:(?:, | and | to )\d{4}(?!\d))*)")
_PAGE: Final = re.compile(r"(?<![\w/.-])((?:docs/)?(?:[\w-]+/)*[\w-]+\.md)(#[\w-]+)?")
_NUMBERS: Final = r"\d+(?:(?:, | to | and )\d+)*"
_NUMBERED: Final = re.compile(rf", (rule|section)s? ({_NUMBERS})\b")
_ITEMS: Final = re.compile(r",? (I\d+(?:(?:, | to | and )I\d+)*)\b")
_OUTSIDE: Final = re.compile(
    r"\[design\b|\bdesign \d|[(;] ?design, |\bdesign, I\d|\bdesign\.md|(?<![\w-])spec/[\w.*-]+"
)


@dataclass(frozen=True)
class Page:
    """What can be cited of a page."""

    headings: frozenset[str]
    anchors: frozenset[str]
    rules: frozenset[int]
    sections: frozenset[int]
    items: frozenset[tuple[str, str]]
    """(heading, item such as I7)"""


@dataclass(frozen=True)
class Text:
    """A file's lines joined by single spaces, without indentation and comment marks, so that citations may wrap."""

    joined: str
    starts: list[int]

    @classmethod
    def of(cls, text: str) -> "Text":
        lines = [_COMMENT.sub("", line).rstrip() for line in _URL.sub("", text).split("\n")]
        starts = [0]
        for line in lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        return cls(" ".join(lines), starts)

    def line(self, offset: int) -> int:
        """Return the line number of an offset in `joined`."""
        return bisect_right(self.starts, offset)


def slug(heading: str) -> str:
    """Return the anchor that the site gives a heading, as Python-Markdown's toc extension does."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def page_of(path: Path) -> Page:
    """Return what can be cited of a page: its headings, anchors, numbered rules, sections and items."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings, anchors = list[str](), list[str]()
    items, heading = set[tuple[str, str]](), ""
    for line in text.split("\n"):
        if found := re.fullmatch(r"#{1,6} +(.+?) *#*", line):
            heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found[1]).replace("`", "")
            anchor = slug(heading)
            heading = heading.replace("ε", "epsilon").replace("δ", "delta")  # code is ASCII
            headings.append(heading)
            taken = sum(1 for other in anchors if re.fullmatch(rf"{re.escape(anchor)}(_\d+)?", other))
            anchors.append(f"{anchor}_{taken}" if taken else anchor)
        elif item := re.match(r"- \*\*(I\d+)\b", line):
            items.add((heading, item[1]))
    return Page(
        headings=frozenset(headings),
        anchors=frozenset(anchors),
        rules=frozenset(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE))),
        sections=frozenset(int(found[1]) for each in headings if (found := re.match(r"(\d+)\. ", each))),
        items=frozenset(items),
    )


def problems(text: str, folder: Path = ROOT) -> Iterator[tuple[int, str]]:
    """Yield (line, problem) for each citation that does not resolve. `folder`: of the file, for Markdown's links."""
    read = Text.of(text)
    for found in _OUTSIDE.finditer(read.joined):
        yield read.line(found.start()), f"{found[0]}: cites a document outside the repository"
    for found in _DECISION.finditer(read.joined):
        yield from ((read.line(found.start()), problem) for problem in _decision_problems(found))
    for found in _PAGE.finditer(read.joined):
        yield from ((read.line(found.start()), problem) for problem in _page_problems(found, read.joined, folder))


def _decision_problems(found: re.Match[str]) -> Iterator[str]:
    number, rest = found[1], found[2]
    if rest.startswith("-"):
        if not (DOCS / "decisions" / f"{number}{rest}").exists():
            yield f"{found[0]}: no such decision"
        return
    for each in (number, *re.findall(r"\d{4}", rest)):
        if not any((DOCS / "decisions").glob(f"{each}-*.md")):
            yield f"decisions/{each}: no such decision"


def _page_problems(found: re.Match[str], joined: str, folder: Path) -> Iterator[str]:
    name, anchor, tail = found[1], found[2], joined[found.end() :]
    if "decisions/" in name and re.search(r"\d{4}-", name):
        return
    numbered = _NUMBERED.match(tail)
    paths = _resolve(name, folder)
    if not paths and numbered is not None:
        paths = [SPECIFICATION / name]
    if not paths:
        return
    pages = [page_of(path) for path in paths if path.exists()]
    if not pages:
        yield f"{name}: no such page"
    elif anchor is not None and not any(anchor[1:] in page.anchors for page in pages):
        yield f"{name}{anchor}: no such anchor"
    elif paths[0].parent == SPECIFICATION and (bare := re.match(r" (\d+)\b", tail)):
        yield f"{name} {bare[1]}: write `, rule {bare[1]}` or `, section {bare[1]}`"
    elif numbered is not None:
        known = pages[0].rules if numbered[1] == "rule" else pages[0].sections
        for number in _numbers(numbered[2]):
            if number not in known:
                yield f"{name}, {numbered[1]} {number}: no such {numbered[1]}"
    else:
        yield from _heading_problems(name, pages, tail)


def _resolve(name: str, folder: Path) -> list[Path]:
    """Return the pages that a name may cite; none if it is not a citation of the documentation.

    Without `docs/` they are specification pages, and in a page those beside it. Two are named estimators.md.
    """
    if name.startswith("docs/"):
        return [ROOT / name]
    if folder.is_relative_to(DOCS) and (folder / name).exists():
        return [folder / name]
    if not (SPECIFICATION / name).exists():
        return []
    return [path for path in (SPECIFICATION / name, DOCS / name) if path.exists()]


def _numbers(text: str) -> Iterator[int]:
    """Return the numbers of `1, 2, 10 to 13`, ranges in full."""
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", text):
        yield from range(int(first), int(last or first) + 1)


def _heading_problems(name: str, pages: list[Page], tail: str) -> Iterator[str]:
    """A capital letter or a quote after the comma begins a heading; anything else is the sentence that goes on."""
    start = re.match(r", ([\"'`]?)(?=\S)", tail)
    if start is None:
        return
    rest = tail[start.end() :].replace("`", "")
    headings = {heading: page for page in reversed(pages) for heading in page.headings}
    named = [each for each in headings if re.match(rf"{re.escape(each)}(?![\w-])", rest)]
    if not named:
        if start[1] in ("'", '"') or rest[:1].isupper():
            yield f"{name}, {' '.join(rest.split()[:4])}: no such heading"
        return
    heading = max(named, key=len)
    if items := _ITEMS.match(rest[len(heading) :]):
        for number in _numbers(items[1].replace("I", "")):
            if (heading, f"I{number}") not in headings[heading].items:
                yield f"{name}, {heading}, I{number}: no such item"


def test_every_citation_resolves() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for folder in SCANNED
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and path != Path(__file__)
        for line, problem in problems(path.read_text(encoding="utf-8"), path.parent)
    ]
    assert not found, "\n".join(["citations that do not resolve:", *found])


@pytest.mark.parametrize(
    "text",
    [
        "[docs/specification/fold.md, rules 1, 2, 10 to 13]",
        "fold.md, rules 1 to 13",
        "It applies docs/specification/fold.md, rule 7.",
        "See docs/specification/estimators.md,\n    section 5.",
        "-- estimators.md, sections 2 and 3",
        "# docs/specification/release.md, Invariants,\n# I6).",
        "docs/specification/release.md, Invariants, I1 to I4",
        "[docs/specification/release.md, State in Redis]",
        'docs/privacy.md, "Several\npolicies"',
        "docs/runbook.md#hatcastrecordahead",
        "decisions/0026",
        "[decisions/0014, 0026]",
        "docs/decisions/0009",
        "docs/feeds.md, which explains the steps",
        "see docs/estimators.md, docs/hybrid.md",
        "the design is silent",
        "compose-spec/compose-go",
        "https://example.org/spec/nowhere.md",
        "notes.md is a file of a test",
        "README.md#anything",
        "[estimators](estimators.md#when-presence-is-private)",
        'docs/privacy.md, "The reported (epsilon, delta)"',
    ],
)
def test_right_citations_pass(text: str) -> None:
    assert list(problems(text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fold.md, rule 14", 1),
        ("a\nfold.md, rules 1 to\n    15", 2),
        ("docs/specification/fold.md, rule 0", 1),
        ("docs/specification/estimators.md, section 12", 1),
        ("[estimators.md 6]", 1),
        ("docs/estimators.md, section 5", 1),
        ("docs/specification/release.md, Recoveries", 1),
        ("docs/specification/release.md, Invariants, I9", 1),
        ("docs/specification/release.md, Ledger, I1", 1),
        ('docs/specification/fold.md, "no heading"', 1),
        ("nowhere.md, section 1", 1),
        ("docs/nowhere.md", 1),
        ("docs/specification/nowhere.md", 1),
        ("docs/runbook.md#nowhere", 1),
        ("fold.md#nowhere", 1),
        ("decisions/9999", 1),
        ("decisions/0026, 9999", 1),
        ("docs/decisions/0004-another-name.md", 1),
        ("x\n# [design 4, Ticks]", 2),
        ("[decisions/0008; design 4]", 1),
        ("refused (design, I6)", 1),
        ("Rules 3 and 5 of spec/fold.md", 1),
        ("(`../../spec/fold.md`)", 1),
    ],
)
def test_wrong_citations_are_found(text: str, line: int) -> None:
    assert {each for each, _ in problems(text)} == {line}


def test_a_heading_that_goes_makes_its_citations_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## Kept\n\n- **I1, one.** Text\n\n| 1 | rule |\n\n```\n## Shown\n```\n\n## Kept\n")
    assert page_of(page) == Page(
        headings=frozenset({"Page", "Kept"}),
        anchors=frozenset({"page", "kept", "kept_1"}),
        rules=frozenset({1}),
        sections=frozenset(),
        items=frozenset({("Kept", "I1")}),
    )


@pytest.mark.parametrize(
    "reading",
    [
        "resolution 8 in III.A (8.2171; at 7 it is 13.30)",
        "Resolution 6 has 31 cells in the text and 33 in the table beside it",
        '"more than 310" user-days in III.C and "at least 310" in IV.B; `hatcast survey` takes more than 310',
    ],
)
def test_the_contradictions_of_the_survey_in_the_second_paper_are_told(reading: str) -> None:
    assert reading in " ".join((ROOT / "docs" / "specification" / "estimators.md").read_text().split())
