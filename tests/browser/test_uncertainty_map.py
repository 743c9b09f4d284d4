"""Uncertainty of releases in the picture: opacity by the interval's width, and gaps in the chart."""

import json
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, Day, hexagons
from tests.browser.test_estimates_map import opacities
from tests.displaying import CELLS, release

HALVES: Final = (1.5, 4, 5.5, 7, 9.5, 12, 31)
OPACITIES: Final = (0.95, 0.95, 0.72, 0.72, 0.5, 0.3, 0.3)
SUPPRESSED: Final = 5
MISSING: Final = 9
GAPS: Final = 12  # hours of the policy with gaps
CELLS_INSIDE_MAP: Final = """() => {
    const map = document.getElementById("map").getBoundingClientRect();
    const cells = [...document.querySelectorAll("path.cell")].map((each) => each.getBoundingClientRect());
    const inside = (box) =>
        map.left <= box.left && box.right <= map.right && map.top <= box.top && box.bottom <= map.bottom;
    return cells.length > 0 && cells.every(inside);
}"""


def wide(hour: int, cell: str, half: float, policy: str) -> bytes:
    """A release of 30 km/h whose interval is `half` to either side."""
    record: dict[str, Any] = json.loads(release(hour, cell, "30.000", policy=policy))
    return json.dumps(record | {"interval95": [30 - half, 30 + half]}).encode()


@pytest.fixture(scope="module")
def noisy(day: Day) -> Day:
    cells = [cell for cell in hexagons() if cell not in CELLS[:2]]
    day.publish(wide(HOURS - 1, cell, half, "noisy") for cell, half in zip(cells, HALVES, strict=False))
    without = json.loads(wide(HOURS - 1, CELLS[0], 1, "noisy"))
    del without["interval95"]
    day.publish([json.dumps(without).encode()])
    for hour in range(GAPS):
        mean = None if hour == SUPPRESSED else f"{20 + hour}.500"
        first = [] if hour == MISSING else [release(hour, CELLS[0], mean, policy="gaps")]
        day.publish([*first, release(hour, CELLS[1], "25.000", policy="gaps")])
    return day


def of(day: Day, policy: str, open_page: OpenPage) -> Page:
    return open_page(f"{day.url}?policy={policy}", within=day.url)


def test_the_more_noise_a_release_has_the_fainter_is_its_hexagon(noisy: Day, open_page: OpenPage) -> None:
    page = of(noisy, "noisy", open_page)
    seen = opacities(page)
    cells = [cell for cell in hexagons() if cell not in CELLS[:2]]
    assert [seen[cell] for cell in cells[: len(HALVES)]] == list(OPACITIES)
    assert seen[CELLS[0]] == min(OPACITIES), "without an interval it is not drawn as certain"
    legend = page.locator("#legend")
    expect(legend.locator("#certainty-text")).to_have_text("Fainter: more noise (95 % are within ± km/h).")
    expect(legend.locator(".certainties li")).to_have_text(["±4", "±7", "±10", "wider"])
    lines = legend.locator("#certainty-text").evaluate(
        "(node) => node.getBoundingClientRect().height / parseFloat(getComputedStyle(node).fontSize)"
    )
    assert lines < 2, "one line"
    picture(page, "releases-noise")


def test_a_missing_and_a_suppressed_hour_are_gaps_in_the_chart_of_releases(noisy: Day, open_page: OpenPage) -> None:
    page = of(noisy, "gaps", open_page)
    page.click("#show-table")
    page.locator(f"button[data-cell='{CELLS[0]}']").click()
    chart = page.locator("#cell .chart")
    expect(chart.locator("circle.mean")).to_have_count(GAPS - 2)
    expect(chart.locator("polygon.band")).to_have_count(3)
    points = chart.locator("polygon.band").evaluate_all("all => all.map((each) => each.points.numberOfItems)")
    assert points == [2 * SUPPRESSED, 2 * (MISSING - SUPPRESSED - 1), 2 * (GAPS - MISSING - 1)]
    drawn = chart.locator("path.line").evaluate_all(
        "all => all.map((each) => each.getAttribute('d').split('M').length - 1)"
    )
    assert drawn == [each // 2 - 1 for each in points], "no line across a gap"
    expect(chart.locator("rect.none")).to_have_count(1)


def test_on_paper_the_map_fits_and_has_no_controls(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, viewport={"width": 688, "height": 900}, color_scheme="dark")
    page.locator(f"path.cell[data-cell='{CELLS[0]}']").click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    for name in (".timeline", ".switches", "#connection", ".leaflet-control-zoom"):
        expect(page.locator(name)).to_be_hidden()
    page.wait_for_function(CELLS_INSIDE_MAP)  # the map takes the size of the paper, then moves the cells into it
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(22, 32, 43)", "dark ink also in dark mode"
    picture(page, "print", whole=True)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    expect(page.locator(".timeline")).to_be_visible()
