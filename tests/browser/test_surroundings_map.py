"""The map over its surroundings: routes, names of stops and a base map, and where a hexagon is in words.

Also: a title, names and records with markup in them are text.
"""

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import TOPICS, Day, hexagons, open_day
from tests.browser.saved import check_picture, saved
from tests.displaying import CELLS, answered, budget, clustered, release
from tests.services.lifecycle import wait_until
from tests.surroundings import HUB, tables, write_basemap, write_timetable

PLACE = f"near {HUB}, routes 1, 12, 801"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SCRIPT = "protomaps-leaflet.js"
TAG = '"><img src=x>'  # where a text may have 16 characters only, as a unit
MARKUP = '"><img src=x onerror="document.title=1">'
MARKED_STOP, MARKED_CELL = "Sarthana Garden", "87608b72dffffff"  # that stop becomes markup, the only one in there
READS = "Canvas2D: Multiple readback"  # Chromium's advice to this test, which reads pixels
# Of a pane's canvases: how many pixels have each colour.
COLOURS = """(pane) => {
    const found = {};
    for (const canvas of document.querySelectorAll(`.leaflet-${pane}-pane canvas`)) {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) {
            if (data[i + 3] < 255) continue;
            const colour = "#" + [0, 1, 2].map((at) => data[i + at].toString(16).padStart(2, "0")).join("");
            found[colour] = (found[colour] ?? 0) + 1;
        }
    }
    return found;
}"""


@pytest.fixture(scope="module")
def mapped_day(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    assert browser.is_connected()
    folder = tmp_path_factory.mktemp("surroundings")
    stops = tables()["stops.txt"].replace(MARKED_STOP, '"' + MARKUP.replace('"', '""') + '"')
    timetable = write_timetable(folder / "feed.zip", {"stops.txt": stops})
    files = {"gtfs": timetable, "basemap": write_basemap(folder / "city.pmtiles")}
    with open_day(folder, display={"title": MARKUP} | {key: path.name for key, path in files.items()}) as running:
        yield running


def wait_for_colour(page: Page, pane: str, colour: str, pixels: int) -> None:
    page.wait_for_function(
        f"([pane, colour, pixels]) => (({COLOURS})(pane)[colour] ?? 0) >= pixels", arg=[pane, colour, pixels]
    )


def zoom_in(page: Page, times: int) -> None:
    """To the middle of the map."""
    for _ in range(times):
        page.locator(".leaflet-control-zoom-in").click()
        page.wait_for_function("() => document.querySelector('.leaflet-zoom-anim') === null")
    page.mouse.move(0, 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_routes_and_streets_are_drawn_under_the_hexagons_in_either_scheme(
    mapped_day: Day, open_page: OpenPage, scheme: str
) -> None:
    page = open_page(mapped_day.url, foreseen=READS, color_scheme=scheme)
    wait_for_colour(page, "routes", "#d7263d", 500)  # the timetable's own colour of route 1
    dark = scheme == "dark"
    wait_for_colour(page, "tile", "#243a4c" if dark else "#b9c9d6", 2_000)  # the river
    wait_for_colour(page, "tile", "#455463" if dark else "#b3bdc7", 2_000)  # streets
    # Black would not be seen on the dark map: a route's colour is mixed with white there.
    seen = page.evaluate(COLOURS, "routes")
    assert ("#2e294e" in seen) is not dark
    order = page.evaluate(
        """() => ["tile", "routes", "resolution-7", "names", "stops"].map((name) =>
             Number(getComputedStyle(document.querySelector(`.leaflet-${name}-pane`)).zIndex))"""
    )
    assert order == sorted(order)
    credit = page.get_by_role("link", name="© OpenStreetMap")
    expect(credit).to_have_attribute("href", "https://www.openstreetmap.org/copyright")
    assert serious_problems(page) == []
    picture(page, f"surroundings-{scheme}")


def test_beyond_the_base_map_are_lines_of_latitude_and_longitude(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url, foreseen=READS)
    wait_for_colour(page, "tile", "#b9c9d6", 2_000)
    assert page.locator("path.graticule").count() == 0, "the base map takes their place"
    for _ in range(4):
        page.mouse.move(60, 500)
        page.mouse.down()
        page.mouse.move(860, 500, steps=4)
        page.mouse.up()
    expect(page.locator("path.graticule")).not_to_have_count(0)


def test_colours_follow_the_readers_scheme_without_a_reload(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url, foreseen=READS, color_scheme="light")
    wait_for_colour(page, "tile", "#b9c9d6", 2_000)
    wait_for_colour(page, "routes", "#2e294e", 500)
    page.emulate_media(color_scheme="dark")
    wait_for_colour(page, "tile", "#243a4c", 2_000)
    page.wait_for_function(f"() => ({COLOURS})('routes')['#2e294e'] === undefined")


def test_stops_have_names_at_close_zooms_and_no_two_overlap(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url)
    page.wait_for_function("() => document.querySelector('#map').dataset.routes !== undefined")
    assert page.locator(".stop").count() == 0
    zoom_in(page, 2)
    names = page.locator(".stop span")
    expect(names.get_by_text(HUB)).to_be_visible()
    # In one step: each move of the map replaces them all.
    boxes = page.evaluate(
        "[...document.querySelectorAll('.stop span')].map((each) => each.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) > 5
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
            down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
            assert across <= 0 or down <= 0
    expect(page.locator(".leaflet-stops-pane")).to_have_attribute("aria-hidden", "true")
    picture(page, "surroundings-close")


def test_a_stop_is_found_by_its_name(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url)
    page.get_by_label("Find a stop").fill("railway")
    page.get_by_label("Find a stop").press("Enter")
    expect(page.locator("#cell-place")).to_have_text(PLACE)
    page.get_by_label("Find a stop").fill("nowhere")
    page.get_by_label("Find a stop").press("Enter")
    expect(page.locator("#found")).to_have_text("No stop of this name.")


def test_the_card_the_tip_and_the_table_say_where_a_hexagon_is(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url)
    hexagon = page.locator(f"path.cell[data-cell='{CELLS[0]}']")
    page.wait_for_function("() => document.querySelector('#map').dataset.routes !== undefined")
    hexagon.hover()
    expect(page.locator(".tip .where")).to_have_text(PLACE)
    hexagon.click()
    expect(page.locator("#cell-place")).to_have_text(PLACE)
    page.click("#show-table")
    heads = page.locator("table.all thead th")
    expect(heads.nth(1)).to_contain_text("place")
    row = page.locator(f"tr:has(button[data-cell='{CELLS[0]}'])")
    expect(row.locator("td").first).to_have_text(PLACE)
    places = page.locator("table.all tbody td:first-of-type").all_inner_texts()
    assert len(places) == len(hexagons())
    assert all(each.startswith("near ") for each in places)
    assert [each for each in places if each.endswith("no stop inside")], "a hexagon without a stop has the nearest one"
    page.get_by_role("button", name="place", exact=True).click()
    sorted_places = page.locator("table.all tbody td:first-of-type").all_inner_texts()
    assert sorted_places == page.evaluate("(all) => all.toSorted((a, b) => a.localeCompare(b))", places)
    several = next(each for each in hexagons() if each != CELLS[0])
    page.locator(f"button[data-cell='{several}']").click()
    expect(page.locator("#cell-place")).to_contain_text("near ")
    assert serious_problems(page) == []


def test_a_phone_has_the_same_places(mapped_day: Day, open_page: OpenPage) -> None:
    page = open_page(mapped_day.url, foreseen=READS, **PHONE)
    wait_for_colour(page, "routes", "#d7263d", 100)
    page.locator(f"path.cell[data-cell='{CELLS[0]}']").tap()
    expect(page.locator("#cell-place")).to_have_text(PLACE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    picture(page, "surroundings-phone", whole=True)


def test_a_map_with_surroundings_asks_its_own_server_only_and_for_parts_of_the_archive(
    mapped_day: Day, open_page: OpenPage, browser: Browser
) -> None:
    context = browser.new_context()
    asked: list[tuple[str, int]] = []
    page = context.new_page()
    page.on("response", lambda response: asked.append((response.url, response.status)))
    page.goto(mapped_day.url)
    wait_for_colour(page, "tile", "#b9c9d6", 500)
    policy = page.request.get(mapped_day.url).headers["content-security-policy"]
    context.close()
    assert all(url.startswith(mapped_day.url) for url, _ in asked)
    assert {status for url, status in asked if url.endswith(".pmtiles")} == {206}
    for rule in ("default-src 'none'", "script-src 'self'", "img-src 'self'", "connect-src 'self'"):
        assert f"{rule};" in policy


def test_an_open_page_follows_an_archive_that_is_replaced(
    browser: Browser, tmp_path: Path, open_page: OpenPage
) -> None:
    archive = write_basemap(tmp_path / "city.pmtiles")
    with open_day(tmp_path, display={"basemap": archive.name}) as day:
        page = open_page(day.url, foreseen=READS)
        wait_for_colour(page, "tile", "#b9c9d6", 2_000)
        assert "#e2e9e2" in page.evaluate(COLOURS, "tile"), "parks"
        other = write_basemap(tmp_path / "other.pmtiles", parks=())
        other.replace(archive)  # its tiles are at other places in the file
        with page.expect_response(lambda response: response.url.endswith(".pmtiles")):
            zoom_in(page, 3)
        wait_for_colour(page, "tile", "#b3bdc7", 2_000)
        page.wait_for_function(f"() => ({COLOURS})('tile')['#e2e9e2'] === undefined")
        page.goto("about:blank")  # before its server ends


def test_a_map_without_surroundings_loads_none_of_it(day: Day, open_page: OpenPage, browser: Browser) -> None:
    context = browser.new_context()
    asked: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(day.url)
    page.wait_for_selector("path.cell[data-mean]:not([data-mean=''])")
    page.wait_for_selector("path.graticule", state="attached")
    page.locator(f"path.cell[data-cell='{CELLS[0]}']").click()
    expect(page.locator("#cell-about")).to_be_visible()
    assert page.locator("#cell-place").count() == 0
    page.click("#show-table")
    expect(page.locator("table.all thead th").nth(1)).to_contain_text("state")
    context.close()
    assert f"{day.url}api/v1/surroundings" in asked
    assert not [each for each in asked if SCRIPT in each or each.endswith(("/routes", "/stops", ".pmtiles"))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_saved_picture_has_the_base_map_routes_and_stops(
    mapped_day: Day, open_page: OpenPage, scheme: str, tmp_path: Path
) -> None:
    page = open_page(mapped_day.url, foreseen=READS, color_scheme=scheme)
    zoom_in(page, 3)
    wait_for_colour(page, "routes", "#d7263d", 500)
    expect(page.locator(".stop span").first).to_be_visible()
    check_picture(page, saved(page, "#save-png", tmp_path))


def marked_records() -> list[tuple[str, bytes]]:
    """(topic, record) of a policy whose texts are markup wherever the map takes any, and of one with such a name."""
    noise = {"kind": MARKUP, "scale": 0.5}
    texts: dict[str, Any] = {"value": MARKUP, "unit": TAG, "estimator": MARKUP, "noise": noise, MARKUP: MARKUP}
    means = [json.loads(release(23, cell, policy="marked")) | texts for cell in (CELLS[0], MARKED_CELL)]
    none = json.loads(release(23, CELLS[1], None, policy="marked")) | {"status": MARKUP}
    answer = answered("08:00", policy="marked", kind=MARKUP, unit=MARKUP)
    no_room = {"query": MARKUP, "places": 0, "epsilon": 1.0}
    return [
        *((TOPICS[0], json.dumps(each).encode()) for each in (*means, none)),
        (TOPICS[0], release(23, policy=MARKUP)),
        (TOPICS[1], budget("2022-01-03", policy="marked", queries=[no_room])),
        (TOPICS[3], answer),
        (TOPICS[4], clustered(policy="marked", unit=TAG)),
    ]


def is_released(day: Day, policy: str) -> bool:
    try:
        return MARKED_CELL.encode() in day.get(f"/api/v1/latest?policy={policy}")
    except urllib.error.HTTPError:
        return False


def test_markup_in_titles_names_and_records_is_text(mapped_day: Day, open_page: OpenPage) -> None:
    for topic, record in marked_records():
        mapped_day.publish([record], topic)
    # A page of a policy that has no release yet shows none until it is opened again.
    wait_until(lambda: is_released(mapped_day, "marked"), None, 60, "releases with markup")
    page = open_page(f"{mapped_day.url}?policy=marked", within=mapped_day.url, foreseen=READS)
    expect(page).to_have_title(MARKUP)
    expect(page.locator("h1")).to_have_text(MARKUP)
    expect(page.locator("#policy option")).to_contain_text([MARKUP])
    expect(page.locator("#legend-title")).to_have_text(f"Mean {MARKUP}, {TAG}")
    expect(page.locator("#budget")).to_contain_text(f"left no room for {MARKUP}")
    expect(page.locator("#answers td").first).to_contain_text(MARKUP)
    expect(page.locator("#clusters th").first).to_have_text(TAG)
    hexagon = page.locator(f"path.cell[data-cell='{CELLS[0]}']")
    hexagon.hover()
    expect(page.locator(".tip strong")).to_contain_text(TAG)
    hexagon.click()
    expect(page.locator("#cell-answers")).to_contain_text(MARKUP)
    expect(page.locator("#cell-body .record dt").get_by_text(MARKUP, exact=True)).to_have_count(1)
    page.click("#show-table")
    expect(page.locator(f"tr:has(button[data-cell='{CELLS[1]}'])")).to_contain_text(MARKUP)
    expect(page.locator(f"tr:has(button[data-cell='{MARKED_CELL}'])")).to_contain_text(f"near {MARKUP}")
    assert page.locator("img").count() == 0
    assert page.locator("[onerror]").count() == 0
