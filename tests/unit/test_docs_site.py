"""`scripts/check` builds the documents strictly; here: what a page would load from elsewhere is found."""

import importlib.util
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_SPEC: Final = importlib.util.spec_from_file_location("check_site", ROOT / "scripts" / "check_site.py")
assert _SPEC is not None
assert _SPEC.loader is not None
check_site: Final = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check_site)


@pytest.mark.parametrize(
    ("name", "text", "loads"),
    [
        ("index.html", '<script src="https://unpkg.com/mermaid.js"></script>', "https://unpkg.com/mermaid.js"),
        ("index.html", '<link rel="preconnect" href="//fonts.gstatic.com">', "//fonts.gstatic.com"),
        ("index.html", '<img src="http://elsewhere.example/a.png">', "http://elsewhere.example/a.png"),
        ("main.css", "@import 'https://elsewhere.example/a.css';", "https://elsewhere.example/a.css"),
        ("main.css", "a { background: url(//elsewhere.example/a.png) }", "//elsewhere.example/a.png"),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, name: str, text: str, loads: str) -> None:
    (tmp_path / name).write_text(text)
    assert check_site.problems(tmp_path) == [f"{name} loads {loads}"]


def test_links_that_a_reader_follows_are_no_loads(tmp_path: Path) -> None:
    page = '<a href="https://kafka.apache.org/">Kafka</a><img src="figures/map.png"><link rel="canonical" href="//a/b">'
    (tmp_path / "index.html").write_text(page)
    assert check_site.problems(tmp_path) == []


def test_a_list_that_is_shown_as_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>It has\n- one <b>part</b></p>\n<ul>\n<li>a list\n- of its own</li></ul>")
    assert check_site.problems(tmp_path) == ["index.html shows a list as text: - one <b>part</b>"]
