"""The map on a phone: a tap opens the card at once, and the legend, the slider and the table fit."""

from itertools import pairwise
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, Day, hexagons
from tests.displaying import CELLS

TOUCH: Final[dict[str, Any]] = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}
PHONES: Final[dict[str, dict[str, Any]]] = {
    "390": TOUCH | {"viewport": {"width": 390, "height": 844}},
    "390-dark": TOUCH | {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "reduced_motion": "reduce"},
    "320": TOUCH | {"viewport": {"width": 320, "height": 640}},
}


def is_inside(page: Page, part: Locator) -> bool:
    box, size = part.bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    return box["x"] >= 0 and box["x"] + box["width"] <= size["width"] + 0.5


def is_in_view(page: Page, part: Locator) -> bool:
    box, size = part.bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    return is_inside(page, part) and box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


@pytest.mark.parametrize("phone", PHONES)
def test_a_tap_shows_the_value_without_scrolling_before_the_server_answers(
    phone: str, day: Day, open_page: OpenPage
) -> None:
    page = open_page(day.url, **PHONES[phone])
    page.route("**/api/v1/cells/**", lambda _: None)  # the last days never come
    hexagon = page.locator(f"path.cell[data-cell='{CELLS[0]}']")
    hexagon.tap()
    value = page.locator("#cell-about")
    expect(value).to_be_visible()
    assert is_in_view(page, value)
    assert is_in_view(page, page.locator("#cell-sure"))
    sheet = page.locator("#cell").bounding_box()
    assert sheet is not None
    page.wait_for_function(
        """([cell, top]) => {
             const box = document.querySelector(`path.cell[data-cell="${cell}"]`).getBoundingClientRect();
             return box.top >= 0 && (box.top + box.bottom) / 2 < top;
           }""",
        arg=[CELLS[0], sheet["y"]],
    )
    picture(page, f"phone-card-{phone}")
    assert serious_problems(page) == []
    page.get_by_role("button", name="Close this hexagon").tap()
    expect(value).to_have_count(0)
    expect(page.locator("body")).not_to_have_class("with-sheet")


@pytest.mark.parametrize("phone", PHONES)
def test_the_legend_the_slider_and_its_dates_fit(phone: str, day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, **PHONES[phone])
    page.get_by_role("button", name="More").tap()
    for name in ("#strip", "#legend .scale", "#legend .certainties", "#slot", "#thumb", "#play", "#follow", "#share"):
        assert is_inside(page, page.locator(name)), name
    expect(page.locator("#strip")).to_contain_text("Mean speed while moving, km/h")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    ticks = page.locator("#ticks .tick")
    expect(ticks).not_to_have_count(0)
    boxes = [each.bounding_box() for each in ticks.all()]
    assert all(one["x"] + one["width"] < other["x"] for one, other in pairwise(boxes) if one and other)
    picture(page, f"phone-{phone}", whole=True)


def test_the_table_scrolls_in_its_own_box(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, **PHONES["390"])
    page.locator("#show-table").tap()
    box = page.locator("#table-view .scroll")
    assert box.evaluate("(node) => node.scrollWidth > node.clientWidth && node.scrollHeight > node.clientHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.locator(f"button[data-cell='{hexagons()[0]}']").tap()
    page.get_by_text("As a list").tap()
    for name in ("#cell", "#table-view"):
        assert page.locator(name).evaluate("(node) => node.scrollWidth <= node.clientWidth"), name
    assert serious_problems(page) == []


def test_the_slider_has_its_days_and_the_hour_below_its_thumb(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    expect(page.locator("#ticks .tick")).to_have_text(["Sun 2 Jan", "Mon 3 Jan"])
    slider, thumb = page.locator("#slot"), page.locator("#thumb")
    slider.focus()
    page.keyboard.press("Home")
    for clock in ("09:00", "10:00", "11:00"):
        expect(thumb).to_have_text(clock)
        page.keyboard.press("ArrowRight")
    expect(thumb).to_have_text("12:00")  # the page draws with its next frame
    middle, whole = thumb.bounding_box(), slider.bounding_box()
    assert middle is not None
    assert whole is not None
    wanted = whole["x"] + 8 + 3 / (HOURS - 1) * (whole["width"] - 16)
    assert middle["x"] + middle["width"] / 2 == pytest.approx(wanted, abs=8)


def test_escape_closes_the_card_and_the_keyboard_goes_back_to_the_row(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    page.click("#show-table")
    row = page.locator(f"button[data-cell='{CELLS[0]}']")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#announcer")).to_contain_text(f"Hexagon {CELLS[0]}: ")
    page.get_by_role("button", name="Close this hexagon").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#cell-mean")).to_have_count(0)
    expect(row).to_be_focused()
