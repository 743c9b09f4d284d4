"""The catalogue of the page's texts: every text that the page has is in it, in each language, with the same places."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parents[2] / "agents" / "map" / "static"
CATALOGUES: Final = ("german.js",)
ENTRY: Final = re.compile(r'^  "((?:[^"\\]|\\.)*)": "((?:[^"\\]|\\.)*)",$', re.MULTILINE)
PLACE: Final = re.compile(r"\{\d\}")


def catalogue(name: str) -> list[tuple[str, str]]:
    return ENTRY.findall((STATIC / "js" / name).read_text())


def after_template(source: str, at: int) -> tuple[str, int]:
    """Return the entry of the template that begins at a backtick, and where it ends."""
    entry, places, at = "", 0, at + 1
    while source[at] != "`":
        if not source.startswith("${", at):
            entry, at = entry + source[at], at + 1
            continue
        places, depth, at = places + 1, 1, at + 2
        entry += f"{{{places}}}"
        while depth:
            if source[at] == "`":
                at = after_template(source, at)[1]
                continue
            depth += {"{": 1, "}": -1}.get(source[at], 0)
            at += 1
    return entry, at + 1


def said(source: str) -> Iterator[str]:
    """Yield the entries of all templates of `say`."""
    for found in re.finditer(r"\bsay`", source):
        yield after_template(source, found.end() - 1)[0]


class Texts(HTMLParser):
    """The texts of the page's own HTML that a reader sees or hears."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input", "rect", "path", "circle"):
            self._open.append(tag)
        self.found |= {text for name, text in attrs if name in ("aria-label", "placeholder") and text}

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        unseen = {"title", "script", "noscript"}.intersection(self._open)
        if not unseen and re.search("[A-Za-z]", data) and "{{" not in data:
            self.found.add(data.strip())


def texts() -> set[str]:
    page = Texts()
    page.feed((STATIC / "index.html").read_text())
    modules = [path for path in (STATIC / "js").glob("*.js") if path.name not in CATALOGUES]
    return page.found.union(*(said(path.read_text()) for path in modules))


def test_every_catalogue_has_every_text_of_the_page_and_no_other() -> None:
    assert len(texts()) > 300
    for name in CATALOGUES:
        keys = [english for english, _ in catalogue(name)]
        assert len(keys) == len(set(keys))
        assert texts() ^ set(keys) == set(), name


def test_a_translation_has_the_places_of_its_text() -> None:
    for name in CATALOGUES:
        wrong = [pair for pair in catalogue(name) if len({*map(str, map(sorted, map(PLACE.findall, pair)))}) > 1]
        assert wrong == [], name
