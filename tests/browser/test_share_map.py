"""Links to an hour, a policy and a hexagon; and the files of the hour on display: CSV, GeoJSON and a picture."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import Day, hexagons
from tests.browser.saved import check_picture, saved
from tests.browser.test_map import LOOKS
from tests.displaying import CELLS, values_of

HOUR = "2022-01-02T12:00"


def earlier(day: Day, open_page: OpenPage, **options: Any) -> Page:
    page = open_page(f"{day.url}?hour={HOUR}", within=day.url, **options)
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 12:00–13:00")
    return page


def test_a_copied_link_opens_the_same_policy_hour_and_hexagon(day: Day, open_page: OpenPage) -> None:
    page = earlier(day, open_page, permissions=["clipboard-read", "clipboard-write"])
    wanted = f"{day.url}?policy=city&hour={HOUR}"
    page.click("#share summary")
    page.click("#copy-link")
    expect(page.locator("#copy-link")).to_have_text("Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == wanted
    page.keyboard.press("Escape")
    expect(page.locator("#copy-link")).to_be_hidden()
    page.click("#show-table")
    row = page.locator("table.all tbody tr", has=page.locator(f"button[data-cell='{CELLS[0]}']"))
    link = row.get_by_role("link").get_attribute("href")
    assert link == f"{wanted}&cell={CELLS[0]}"
    row.get_by_role("button").click()
    page.click("#copy-cell-link")
    expect(page.locator("#copy-cell-link")).to_have_text("Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == link
    there = open_page(link, within=day.url)
    expect(there.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 12:00–13:00")
    expect(there.locator("#cell-about")).to_be_visible()


def test_a_browser_that_does_not_copy_shows_the_link(day: Day, open_page: OpenPage) -> None:
    page = earlier(day, open_page)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without TLS
    page.click("#share summary")
    page.click("#copy-link")
    shown = page.locator("#share input.link")
    expect(shown).to_be_focused()
    expect(shown).to_have_value(f"{day.url}?policy=city&hour={HOUR}")
    assert serious_problems(page) == []


def test_csv_and_geojson_are_the_hour_on_display_digit_by_digit(day: Day, open_page: OpenPage, tmp_path: Path) -> None:
    page = earlier(day, open_page)
    records = {each["cell"]: each for each in values_of(day.get(f"/api/v1/latest?slot={HOUR}"))["releases"]}
    path = saved(page, "#save-csv", tmp_path)
    assert path.name == "hatcast_city_2022-01-02T12-00_releases.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert {each["cell"]: each["mean"] for each in rows} == {
        cell: each.get("mean", "") for cell, each in records.items()
    }
    assert [each["cell"] for each in rows] == sorted(hexagons())
    path = saved(page, "#save-geojson", tmp_path)
    assert path.name == "hatcast_city_2022-01-02T12-00_releases.geojson"
    features = json.loads(path.read_text(), parse_float=str, parse_int=str)["features"]
    assert {each["properties"]["cell"]: each["properties"] for each in features} == records


@pytest.mark.parametrize("look", LOOKS)
def test_the_picture_is_the_map_as_it_is_shown_with_its_legend(
    look: str, day: Day, open_page: OpenPage, tmp_path: Path
) -> None:
    page = earlier(day, open_page, **LOOKS[look])
    chosen = ""
    if look != "phone":  # where the card covers the map
        page.locator(f"path.cell[data-cell='{CELLS[0]}']").click()
        expect(page.locator(f"path.cell.chosen[data-cell='{CELLS[0]}']")).to_have_count(1)
        chosen = f"_{CELLS[0]}"
    path = saved(page, "#save-png", tmp_path)
    assert path.name == f"hatcast_city_2022-01-02T12-00_releases{chosen}.png"
    picture(page, f"share-{look}")
    check_picture(page, path)
