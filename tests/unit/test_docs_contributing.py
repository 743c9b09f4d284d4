"""CONTRIBUTING.md names files, modules and names that exist, and its rules hold."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.readings.formats import FORMATS
from tools.site_links import without_outside_links

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FLAT = " ".join(TEXT.split())
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_NAME_IN_FILE = re.compile(r"`(\w+)(?:\.(\w+))?`\s(?:of|in)\s\[[^\]]+\]\(([^)\s]+)\)")


def rows(page: str) -> set[str]:
    """The names in the first cells of the rows of a page's tables."""
    cells = re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {name.strip("`") for cell in cells for name in cell.split(", ")}


def test_every_file_and_module_that_it_names_exists() -> None:
    files = set(re.findall(r"`((?:scripts|tests|stream|agents|lab|tools|docs|\.ci)/[\w/.]*)[` ]", TEXT)) - {
        "tests/data/feeds/NAME."
    }
    assert len(files) > 8
    assert {file for file in files if not (ROOT / file).exists()} == set()
    modules = re.findall(r"python -m ([\w.]+)", TEXT)
    assert {module for module in modules if importlib.util.find_spec(module) is None} == set()


def test_every_name_that_it_places_in_a_file_is_there() -> None:
    found = _NAME_IN_FILE.findall(FLAT)
    assert {name for name, _, _ in found} == {
        *("Scripted", "EstimatorTable", "DEFAULT", "FIRST_MILLI", "METERS", "STEPS_OF_HATS", "Release"),
    }
    for name, member, file in found:
        source = (ROOT / file).read_text()
        assert re.search(rf"^(?:class |def )?{name}\b", source, re.MULTILINE), f"{file}: {name}"
        assert not member or f"def {member}(" in source, f"{file}: {name}.{member}"


def test_every_estimator_and_every_format_has_a_row_in_its_page() -> None:
    assert set(ESTIMATORS) - rows("estimators.md") == set()
    assert set(FORMATS) - rows("feeds.md") == set()


def test_a_version_has_at_most_sixty_lines_in_the_changelog() -> None:
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert {version.split("\n")[0]: version.count("\n") for version in versions if version.count("\n") > 60} == {}
    assert versions


def test_package_changelog_and_compose_file_have_one_version() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert heading[1] == VERSION
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    images = {service["image"] for service in services if service.get("image", "").startswith("hatcast:")}
    assert images == {f"hatcast:{VERSION}"}


def test_package_and_chart_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "ops" / "helm" / "hatcast" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.parametrize(
    ("folder", "text", "shown"),
    [
        ("", "[`fold`](../agents/worker/ingest.py), [a](privacy.md#a)", "`fold`, [a](privacy.md#a)"),
        ("", "[how](../CONTRIBUTING.md#set-up)", "[how](contributing.md#set-up)"),
        ("decisions", "[a](../../stream/units.py) [b](../privacy.md)", "a [b](../privacy.md)"),
        ("decisions", "[how](../../CONTRIBUTING.md)", "[how](../contributing.md)"),
        ("", "[page](https://kafka.apache.org/) ![map](figures/map.png)", None),
    ],
)
def test_the_site_shows_links_to_files_that_it_lacks_as_text(folder: str, text: str, shown: str | None) -> None:
    assert without_outside_links(text, folder) == (text if shown is None else shown)
