"""docs/architecture.md names rooms, layers and functions that exist."""

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text()
_NAMED = re.compile(r"\[`([\w.]+)`\]\(([^)\s]+\.py)\)")
_STEP = re.compile(r"^\d+\. .*(?:\n   .*)*", re.MULTILINE)


def section(title: str) -> str:
    """The text under a heading of the page."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def definitions(source: str) -> Iterator[str]:
    """Names that a module defines: classes, functions, and `Class.method`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}"


def missing(text: str, page: Path) -> list[str]:
    """The functions and classes that a text names with a file that does not define them."""
    found = []
    for name, target in _NAMED.findall(text):
        path = (page.parent / target).resolve()
        if not path.is_file() or name not in definitions(path.read_text()):
            found.append(f"{target}: {name}")
    return found


def rooms(folder: str) -> set[str]:
    return {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}


def test_every_function_that_the_page_names_is_defined_in_the_linked_file() -> None:
    assert missing(TEXT, PAGE) == []
    assert len(_NAMED.findall(TEXT)) > 40


def test_a_function_or_file_that_does_not_exist_is_found() -> None:
    text = (
        "[`Ingest.fold`](../agents/worker/ingest.py) [`Ingest.unfold`](../agents/worker/ingest.py) "
        "[`fold`](../agents/worker/ingest.py) [`decode`](../agents/nowhere.py)"
    )
    assert missing(text, PAGE) == [
        "../agents/worker/ingest.py: Ingest.unfold",
        "../agents/worker/ingest.py: fold",
        "../agents/nowhere.py: decode",
    ]


@pytest.mark.parametrize(("title", "number"), [("The life of one reading", 6), ("The life of one release", 14)])
def test_every_step_of_a_life_names_a_function(title: str, number: int) -> None:
    steps = _STEP.findall(section(title))
    assert len(steps) == number
    assert [step for step in steps if not _NAMED.search(step)] == []


@pytest.mark.parametrize("folder", ["stream", "agents", "lab"])
def test_the_tables_list_every_room_once(folder: str) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", section("Rooms"), re.MULTILINE)
    listed = re.findall(r"^\| `(\w+)` \|", tables[["stream", "agents", "lab"].index(folder)], re.MULTILINE)
    assert sorted(listed) == sorted(rooms(folder))


@pytest.mark.parametrize("folder", ["stream", "agents", "lab"])
def test_the_layers_are_those_of_importlinter(folder: str) -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts[f"importlinter:contract:{folder}"]["layers"].split("\n")
    block = re.findall(r"```text\n(.*?)```", section("Imports"), re.DOTALL)[0]
    part = next(part for part in block.split("\n\n") if part.startswith(folder))
    assert [line.strip() for line in part.removeprefix(folder).strip().splitlines()] == list(filter(None, layers))


def test_the_picture_names_every_room() -> None:
    picture = (ROOT / "docs" / "figures" / "architecture.svg").read_text()
    names = set(re.findall(r"\w+", " ".join(re.findall(r">([^<>]+)<", picture))))
    assert (rooms("stream") | rooms("agents") | rooms("lab")) - names == set()
