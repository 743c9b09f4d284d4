"""The map for citizens: what a colour means and what is promised, on a phone, in words and in another language."""

import re
from typing import Any, Final

import h3
from playwright.sync_api import expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, Day
from tests.browser.estimated import NEVER_RELEASED
from tests.displaying import CELLS

PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}
TOUCHED: Final = ".views button, #near, #more, #play, #follow, .leaflet-bar a, .switches select, .menu summary"


def hexagon(cell: str) -> str:
    return f"path.cell[data-cell='{cell}']"


def test_on_a_phone_the_promise_the_colours_and_the_map_are_seen_at_once(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url, **PHONE)
    for name in (".promise", "#slot-title", "#map", "#strip", hexagon(CELLS[0])):
        box = page.locator(name).bounding_box()
        assert box is not None, name
        assert box["y"] + box["height"] <= 844, name
    expect(page.locator("#strip")).to_contain_text("Mean speed while moving, km/h")
    expect(page.locator(".promise")).to_have_text(
        "No single bus's speed can be picked out: random noise is added on purpose. How?"
    )
    expect(page.locator("#connection")).to_have_text("past")  # an hour of 2022 is not live
    page.get_by_role("button", name="More").tap()
    for part in page.locator(TOUCHED).all():
        if part.is_visible():
            box = part.bounding_box()
            assert box is not None
            assert box["height"] >= 44, part
    assert serious_problems(page) == []
    picture(page, "citizens-phone")


def test_a_hexagon_is_told_in_words_without_digits_that_its_interval_does_not_carry(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url, **PHONE)
    page.locator(hexagon(CELLS[0])).tap()
    expect(page.locator("#cell-about")).to_have_text("about 20 km/h")  # the mean of the hour, not the road's 19.14
    expect(page.locator("#cell-sure")).to_have_text("Very likely between 17 and 24 km/h.")
    expect(page.locator("#cell-body")).to_contain_text("That is a good estimate.")
    expect(page.locator("#cell-what")).to_have_text("Mean speed while moving, of all readings of this hour.")
    expect(page.locator("#cell-pace")).to_have_text("Pace: 3.0 min/km (2.5 to 3.6).")
    expect(page.locator("#cell-road")).to_be_hidden()
    page.get_by_text("The published digits").tap()
    expect(page.locator("#cell-road")).to_have_text("19.14")
    page.get_by_text("Its usual week").tap()
    week = page.locator(".week-grid")
    expect(week.locator("rect.known")).to_have_count(HOURS - 4)
    expect(week).to_have_attribute(
        "aria-label", "Means by day of the week and hour, of the stored hours: from 15 to 24 km/h"
    )


def test_a_hexagon_of_which_nothing_is_known_is_hatched_and_not_coloured(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url)
    assert page.locator(hexagon(NEVER_RELEASED[0])).get_attribute("fill") == "url(#hatch-unknown)"
    assert "url" not in str(page.locator(hexagon(CELLS[0])).get_attribute("fill"))
    expect(page.locator("#legend")).to_contain_text("only the city's average is known")


def test_slow_is_red_by_choice(estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url)
    before = page.locator(hexagon(CELLS[0])).get_attribute("fill")
    page.get_by_label("Slow is red").check()
    expect(page.locator(hexagon(CELLS[0]))).to_have_attribute("fill", re.compile("^#a[5-9a-f]0"))
    page.get_by_label("Slow is red").uncheck()
    expect(page.locator(hexagon(CELLS[0]))).to_have_attribute("fill", str(before))


def test_an_hour_is_compared_with_another_and_says_where_the_difference_is_clear(day: Day, open_page: OpenPage) -> None:
    page = open_page(f"{day.url}?hour=2022-01-02T20:00", within=day.url)
    page.get_by_label("Compare").select_option("with the hour before")
    expect(page.locator("#legend-title")).to_have_text("Faster or slower, km/h")
    page.locator(hexagon(CELLS[0])).click()
    expect(page.locator("#cell-difference")).to_have_text("No clear difference from the hour before.")
    expect(page.locator(hexagon(CELLS[0]))).to_have_attribute("fill", "url(#hatch-unknown)")
    page.get_by_label("Compare").select_option("with nothing")
    expect(page.locator("#cell-difference")).to_have_count(0)
    expect(page.locator("#legend-title")).to_have_text("Mean speed while moving, km/h")


def test_near_me_opens_the_hexagon_where_the_reader_is_and_asks_no_server(day: Day, open_page: OpenPage) -> None:
    latitude, longitude = h3.cell_to_latlng(CELLS[1])
    place = {"latitude": latitude, "longitude": longitude}
    page = open_page(day.url, geolocation=place, permissions=["geolocation"])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Near me").click()
    expect(page.locator(f"{hexagon(CELLS[1])}.chosen")).to_have_count(1)
    assert not [url for url in asked if f"{latitude:.2f}" in url or f"{longitude:.2f}" in url]


def test_a_german_reader_gets_german(estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url, locale="de-DE", **PHONE)
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("#show-table")).to_have_text("Tabelle")
    expect(page.locator("#slot-title")).to_contain_text("Mon 3 Jan 2022")
    expect(page.locator(".promise")).to_contain_text("Zufallsrauschen wird absichtlich zugesetzt")
    page.locator(hexagon(CELLS[0])).tap()
    expect(page.locator("#cell-about")).to_have_text("etwa 20 km/h")
    expect(page.locator("#cell-sure")).to_have_text("Sehr wahrscheinlich zwischen 17 und 24 km/h.")
    assert serious_problems(page) == []


MARKED: Final = re.compile(r"«[^«»]*»")
DATA: Final = re.compile(
    r"km/h|\d+ k?m$|UTC|hats\.\w+|suppressed|\b(city|week|Bus speeds, hour by hour)\b|[0-9a-f]{15}|\d\d:\d\d|"
    r"\b(Son|Mon|Die|Mit|Don|Fre|Sam|Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)\b|min/km|K = \d+"
)
SEEN: Final = """() => {
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest("script, style, noscript, code, h1, .record") === null) texts.push(walker.currentNode.data);
  }
  for (const node of document.querySelectorAll("[aria-label], [placeholder]"))
    texts.push(node.getAttribute("aria-label") ?? "", node.getAttribute("placeholder") ?? "");
  return texts;
}"""


def marked(script: str) -> str:
    """The page's script, with marks around each text of its German catalogue, but not around what it has places for."""

    def mark(entry: re.Match[str]) -> str:
        parts = [f"«{part}»" if part.strip() else part for part in re.split(r"(\{\d\})", entry[2]) if part]
        return f'  "{entry[1]}": "' + "".join(re.sub(r"«(\{\d\})»", r"\1", part) for part in parts) + '",\n'

    return re.sub(r'^  "((?:[^"\\]|\\.)*)": "((?:[^"\\]|\\.)*)",\n', mark, script, flags=re.MULTILINE)


def test_no_text_of_the_page_is_outside_of_the_catalogue(estimated_day: Day, open_page: OpenPage) -> None:
    """With each text of the catalogue marked, what is without a mark has no words: only names, units and digits."""
    page = open_page(f"{estimated_day.url}?lang=de", within=estimated_day.url)

    def serve(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=marked(answer.text()))

    page.route("**/page.js", serve)
    page.reload()
    expect(page.locator("#show-table")).to_have_text("«Tabelle»")

    def check() -> None:
        left = [DATA.sub("", MARKED.sub(" ", text)) for text in page.evaluate(SEEN)]
        assert [text for text in left if re.search("[A-Za-z]{2}", text)] == []

    page.locator("#show-table").click()
    check()
    page.locator(f"button[data-cell='{CELLS[0]}']").click()
    expect(page.locator(".week-grid")).to_be_attached()
    expect(page.locator("#cell .chart circle.ring").first).to_be_attached()
    check()
    for show in ("releases", "estimates"):
        page.locator(f"#show-{show}").click()
        expect(page.locator(f"#show-{show}")).to_have_attribute("aria-pressed", "true")
        check()
    page.locator("#show-map").click()
    page.locator(hexagon(CELLS[1])).hover()
    expect(page.locator(".tip")).to_be_visible()
    check()
