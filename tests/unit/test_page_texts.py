"""The catalogue of the page's texts: each entry is a text that the page has, with the same places."""

import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "agents" / "map" / "static"
PAIRS = re.findall(
    r'^  "((?:[^"\\]|\\.)*)": "((?:[^"\\]|\\.)*)",$', (STATIC / "js" / "german.js").read_text(), re.MULTILINE
)
SOURCES = re.sub(
    r"\\$\\{[^{}]*\\}",
    "{}",
    "".join(path.read_text() for path in [*STATIC.glob("*.html"), *STATIC.glob("js/*.js")] if path.name != "german.js"),
)


def test_no_entry_of_the_catalogue_has_lost_its_text() -> None:
    assert len(PAIRS) > 60
    words = {english: max(re.split(r"\{\d\}", english), key=len).strip(" .,·()") for english, _ in PAIRS}
    assert [english for english, longest in words.items() if longest not in SOURCES] == []


def test_a_translation_has_the_places_of_its_text_and_no_text_has_two() -> None:
    assert [
        english
        for english, german in PAIRS
        if set(re.findall(r"\{\d\}", english)) != set(re.findall(r"\{\d\}", german))
    ] == []
    assert len({english for english, _ in PAIRS}) == len(PAIRS)
