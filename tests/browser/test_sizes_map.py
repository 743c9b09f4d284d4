"""The map of hexagons of several sizes: small ones lie over the large ones that they are in."""

from collections.abc import Iterator

import h3
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.day import Day, open_day
from tests.displaying import CELLS, release

COARSE = h3.cell_to_parent(CELLS[0])
FINE = [CELLS[0], h3.cell_to_center_child(COARSE)]


@pytest.fixture(scope="module")
def sizes(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    assert browser.is_connected()
    # The large one comes last, so an order of arrival would draw it over the others.
    records = [release(0, cell, f"3{at}.000", policy="sizes") for at, cell in enumerate(FINE)]
    records.append(release(0, COARSE, "12.345", policy="sizes", remainder=True))
    with open_day(tmp_path_factory.mktemp("sizes"), records) as day:
        yield day


@pytest.fixture
def page(sizes: Day, open_page: OpenPage) -> Page:
    page = open_page(sizes.url)
    page.select_option("#policy", "sizes")
    expect(page.locator("path.cell")).to_have_count(3)
    return page


def cell_at(page: Page, place: tuple[float, float]) -> str:
    """The hexagon that a click at a place meets."""
    found: str = page.evaluate(
        """([latitude, longitude, coarse]) => {
             const box = document.querySelector(`path.cell[data-cell="${coarse}"]`).getBoundingClientRect();
             const ring = h3.cellToBoundary(coarse);
             const [tops, sides] = [ring.map((each) => each[0]), ring.map((each) => each[1])];
             const [north, south] = [Math.max(...tops), Math.min(...tops)];
             const [east, west] = [Math.max(...sides), Math.min(...sides)];
             const x = box.left + box.width * (longitude - west) / (east - west);
             const y = box.top + box.height * (north - latitude) / (north - south);
             return document.elementFromPoint(x, y).dataset.cell;
           }""",
        [*place, COARSE],
    )
    return found


def test_small_hexagons_are_over_the_large_one_that_they_are_in(page: Page) -> None:
    assert [cell_at(page, h3.cell_to_latlng(cell)) for cell in FINE] == FINE
    rest = next(cell for cell in h3.cell_to_children(COARSE) if cell not in FINE)
    assert cell_at(page, h3.cell_to_latlng(rest)) == COARSE
    page.locator(f"path.cell[data-cell='{COARSE}']").dispatch_event("click")
    expect(page.locator("#cell-mean")).to_have_text("12.345")
    assert [cell_at(page, h3.cell_to_latlng(cell)) for cell in FINE] == FINE, "also once the large one is chosen"


def test_a_large_hexagon_says_that_it_is_the_rest(page: Page) -> None:
    page.click("#show-table")
    page.locator(f"button[data-cell='{COARSE}']").click()
    expect(page.locator("#cell-mean")).to_have_text("12.345")
    expect(page.locator("#cell-remainder")).to_contain_text("Only buses outside of the smaller hexagons count here")
    page.locator(f"button[data-cell='{FINE[0]}']").click()
    expect(page.locator("#cell-mean")).to_have_text("30.000")
    expect(page.locator("#cell-remainder")).to_have_count(0)
