"""Links to an hour, a policy and a hexagon; and the files of the hour on display: CSV, GeoJSON and a picture.
The page's address: a link opens the page on an hour, a policy and a hexagon, and follows what is chosen.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import Day, hexagons
from tests.browser.saved import check_picture, saved
from tests.browser.test_map import LOOKS
from tests.displaying import CELLS, release, values_of

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


NEXT = "next"


@pytest.fixture(scope="module")
def two_policies(day: Day) -> Day:
    """The day, and three hours of another policy."""
    day.publish(release(hour, cell, f"3{hour}.330", policy=NEXT) for hour in (3, 4, 5) for cell in hexagons()[:9])
    return day


def chosen(page: Page) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(page.url).query).items()}


def test_a_link_opens_the_page_on_its_policy_hour_and_hexagon(two_policies: Day, open_page: OpenPage) -> None:
    url, cell = two_policies.url, hexagons()[2]
    page = open_page(f"{url}?policy={NEXT}&hour={HOUR}&cell={cell}", within=url)
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 12:00–13:00")
    expect(page.locator("#policy")).to_have_value(NEXT)
    expect(page.locator("#cell-mean")).to_have_text("33.330")
    expect(page.locator(f"path.cell.chosen[data-cell='{cell}']")).to_have_count(1)
    expect(page.locator("#remark")).to_be_hidden()
    assert chosen(page) == {"policy": NEXT, "hour": HOUR, "cell": cell}
    for name, path in (("open-estimates", "estimates"), ("open-releases", "latest")):
        expect(page.locator(f"#{name}")).to_have_attribute("href", f"api/v1/{path}?policy={NEXT}")
    page.reload()
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 12:00–13:00")
    expect(page.locator("#cell-mean")).to_have_text("33.330")


def test_the_address_follows_what_is_chosen_and_the_latest_hour_is_not_in_it(
    two_policies: Day, open_page: OpenPage
) -> None:
    page = open_page(two_policies.url)
    assert chosen(page) == {}
    page.locator("#slot").focus()
    page.keyboard.press("Home")
    page.wait_for_url("**/?hour=2022-01-02T09:00")
    page.click("#show-table")
    page.locator(f"button[data-cell='{CELLS[0]}']").click()
    page.wait_for_url(f"**/?hour=2022-01-02T09:00&cell={CELLS[0]}")
    page.get_by_role("button", name="Close this hexagon").click()
    page.click("#follow")
    page.wait_for_url(two_policies.url)
    page.select_option("#policy", NEXT)
    page.wait_for_url(f"**/?policy={NEXT}")
    expect(page.locator("#open-releases")).to_have_attribute("href", f"api/v1/latest?policy={NEXT}")


def test_a_link_to_the_latest_hour_stays_there_when_another_is_published(
    two_policies: Day, open_page: OpenPage
) -> None:
    url, last = two_policies.url, "2022-01-02T14:00"
    page = open_page(f"{url}?policy={NEXT}&hour={last}", within=url)
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 14:00–15:00")
    two_policies.publish([release(6, hexagons()[0], "36.330", policy=NEXT)])
    expect(page.locator("#slot")).to_have_attribute("max", "3")
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 14:00–15:00")
    assert chosen(page) == {"policy": NEXT, "hour": last}


@pytest.mark.parametrize(
    ("query", "notice"),
    [
        ("policy=gone", "There is nothing of the policy gone yet; this is the map's default."),
        ("policy=a/b", "policy: not a policy's name."),
        ("hour=noon", "hour: write the local start of an hour, such as 2022-01-02T09:00."),
        ("hour=2021-01-02T09:00", "The hour 2021-01-02 09:00 is not stored; this is the latest."),
        ("cell=87608b0d2", "cell: not an H3 cell, such as 87608b0d2ffffff."),
        ("cell=8a2a1072b59ffff", "There is nothing of the hexagon 8a2a1072b59ffff."),
        ("show=all", "show: write one of estimates, releases, running, continual."),
        (
            "hour=%3Cb%3E&cell=x",
            "hour: write the local start of an hour, such as 2022-01-02T09:00. cell: not an H3 cell",
        ),
    ],
)
def test_a_bad_value_gets_a_notice_and_the_page_shows_what_it_would_without_it(
    query: str, notice: str, two_policies: Day, open_page: OpenPage
) -> None:
    url = two_policies.url
    page = open_page(f"{url}?{query}", within=url, viewport={"width": 390, "height": 844})
    expect(page.locator("#remark span")).to_contain_text(notice)
    expect(page.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 08:00–09:00")
    expect(page.locator("#policy")).to_have_value("city")
    page.wait_for_url(f"{url}?{query}" if query == "policy=gone" else url)
    if query == "policy=gone":
        picture(page, "address-notice")
    page.get_by_role("button", name="Close this notice").click()
    expect(page.locator("#remark")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_display_that_is_opened_before_its_policy_has_a_release_changes_to_it_at_the_first(
    two_policies: Day, open_page: OpenPage
) -> None:
    url, later = two_policies.url, "later"
    waiting, chooser = (open_page(f"{url}?policy={later}", within=url) for _ in range(2))
    for page in (waiting, chooser):
        expect(page.locator("#remark span")).to_contain_text(f"There is nothing of the policy {later} yet")
        expect(page.locator("#policy")).to_have_value("city")
    chooser.select_option("#policy", NEXT)
    chooser.wait_for_url(f"**/?policy={NEXT}")
    two_policies.publish([release(7, hexagons()[0], "37.330", policy=later)])
    expect(waiting.locator("#policy")).to_have_value(later)
    expect(waiting.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 16:00–17:00")
    expect(waiting.locator("#remark")).to_be_hidden()
    assert chosen(waiting) == {"policy": later}
    expect(chooser.locator(f"#policy option[value={later}]")).to_have_count(1)
    expect(chooser.locator("#policy")).to_have_value(NEXT)
