"""docs/python.md and docs/notebook.md: the reference is that of the docstrings, and every cell of the notebook runs."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection

import hatcast
from tests.support import ITMS_LIKE
from tests.unit.test_docs_tutorial import blocks
from tools import notebook, python_reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_that_of_the_docstrings() -> None:
    page = python_reference.PAGE.read_text()
    assert python_reference.render_page(page) == page, "run python -m tools.python_reference"


def test_every_public_name_is_described_once() -> None:
    here = {*python_reference.FUNCTIONS, *python_reference.CLASSES}
    assert here & python_reference.ELSEWHERE.keys() == set()
    assert here | python_reference.ELSEWHERE.keys() == set(hatcast.__all__)
    for target in python_reference.ELSEWHERE.values():
        assert (DOCS / target.partition("#")[0]).is_file()


def test_a_page_without_a_place_for_the_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        python_reference.render_page("# Python")


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.csv").write_text("plate,ts,lat,lon,v\n7,2022-01-03T12:00:00+05:30,21.2,72.8,7.5\n")
    examples = [body for _, kind, body in blocks(python_reference.PAGE.read_text()) if kind == "python"]
    space: dict[str, Any] = {}
    exec(examples[0], space)
    assert [each.status for each in space["releases"]] == ["suppressed"]
    first = [each.release_id for each in space["releases"]]
    (tmp_path / "readings.csv").write_text("plate,ts,lat,lon,v\n7,03.01.2022 06:30:00,21.2,72.8,7.5\n")
    exec(examples[1], space)
    assert [each.release_id for each in space["releases"]] == first


@pytest.mark.parametrize("page", notebook.PAGES, ids=lambda page: page.stem)
def test_the_page_of_a_notebook_is_made_from_its_cells(page: Path) -> None:
    assert notebook.rendered(page) == page.read_text(), "run python -m tools.notebook"
    assert len(notebook.cells(page)) <= 20
    assert all(cell.outputs == [] for cell in notebook.cells(page))
    for cell in notebook.cells(page):
        assert (DOCS / cell.metadata.get("figure", "notebook.md")).is_file()


def test_the_papers_figures_are_drawn_by_the_notebook_of_their_mathematics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "itms_like_counts.json").write_text(json.dumps({"counts": ITMS_LIKE}))
    mpl.use("Agg")
    space: dict[str, Any] = {}
    for cell in notebook.cells(DOCS / "math.md"):
        if cell.is_code:
            exec(compile(cell.text, "cell", "exec"), space)
    for name in ("worst_case", "hybrid", "composition"):
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    lengths, errors = space["lengths"], space["errors"]
    for rule in ("minimax", "worst_case"):
        assert lengths[rule] == sorted(lengths[rule]) or rule == "worst_case"
        assert errors[rule] == sorted(errors[rule], reverse=True)
    assert all(ours <= papers for ours, papers in zip(errors["worst_case"], errors["minimax"], strict=True))
    assert 1_900 < space["peaks"][0.289] < 2_000
    assert space["levy"][0.05] > space["levy"][0.2] > space["levy"][0.8]
    assert np.allclose(np.sort(space["centres"], axis=0), [[10, 10], [50, 50]], atol=5), "ten scales of the noise"
    space["plt"].close("all")


def test_every_cell_of_the_notebook_runs_and_draws_what_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    space: dict[str, Any] = {}
    drawn: list[Any] = []
    for cell in notebook.cells(DOCS / "notebook.md"):
        if cell.is_code:
            exec(compile(cell.text, "cell", "exec"), space)
            drawn += [space["axes"]] if "figure" in cell.metadata else []
    chosen, chart = drawn
    [hexagons] = [each for each in chosen.collections if isinstance(each, PolyCollection)]
    assert len(hexagons.get_paths()) == space["hour"].height > 10
    assert list(chart.lines[0].get_ydata()) == space["day"]["mean"].to_list()
    assert space["day"].height == 12
    assert space["releases"].outcomes == {"accepted": 36_000}
    [day] = space["releases"].budget
    assert 0 < day.epsilon_user_day <= 5
    assert len(json.loads((tmp_path / "releases.geojson").read_text())["features"]) == len(space["releases"])
    assert re.search(r"<svg", (tmp_path / "map.svg").read_text())
    assert "DecompressionStream" in (tmp_path / "map.html").read_text()
    space["plt"].close("all")
