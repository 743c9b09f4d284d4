"""The map in a browser, over a day with every kind of release: what is shown is what stands on the topic."""

from typing import Any

import matplotlib as mpl
import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, NO_MEAN, Day, hexagons, hour_of
from tests.displaying import CELLS, release, values_of

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": PHONE,
}


def latest(day: Day) -> dict[str, Any]:
    """The records of the latest hour, by cell."""
    return {each["cell"]: each for each in values_of(day.get("/api/v1/latest"))["releases"]}


def drawn(page: Page) -> dict[str, dict[str, str]]:
    """What the hexagons say of themselves."""
    found: list[dict[str, str]] = page.evaluate(
        """() => [...document.querySelectorAll("path.cell")].map((path) =>
             ({...path.dataset, fill: path.getAttribute("fill")}))"""
    )
    return {each["cell"]: each for each in found}


def table(page: Page) -> list[list[str]]:
    """The texts of the table, row by row."""
    found: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("table.all tbody tr")].map((row) =>
             [...row.cells].map((cell) => cell.textContent))"""
    )
    return found


def viridis(value: float, low: float, high: float) -> tuple[float, float, float]:
    red, green, blue, _ = mpl.colormaps["viridis"](min(1.0, max(0.0, (value - low) / (high - low))))
    return red * 255, green * 255, blue * 255


def test_every_hexagon_has_the_colour_of_its_value_or_the_hatching_of_its_state(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    low, high = (float(each) for each in values_of(day.get("/api/v1/slots"))["range"])
    hexes, records = drawn(page), latest(day)
    assert hexes.keys() == records.keys() == set(hexagons())
    for cell, record in records.items():
        shown = hexes[cell]
        assert shown["status"] == record["status"]
        assert shown["mean"] == record.get("mean", "")
        if record["status"] == "released":
            colour = [int(shown["fill"][at : at + 2], 16) for at in (1, 3, 5)]
            wanted = viridis(float(record["mean"]), low, high)
            assert all(abs(one - other) <= 3 for one, other in zip(colour, wanted, strict=True)), cell
    hatchings = {record["status"]: hexes[cell]["fill"] for cell, record in records.items() if "mean" not in record}
    assert hatchings == {
        "suppressed": "url(#hatch-suppressed)",
        "budget_exhausted": "url(#hatch-exhausted)",
        "incomplete": "url(#hatch-incomplete)",
    }
    legend = page.locator("#legend")
    for name in ("suppressed", "exhausted", "incomplete"):
        assert legend.locator(f"rect[fill='url(#hatch-{name})']").count() == 1
    expect(page.locator("#legend-title")).to_have_text("Mean speed while moving, km/h")
    expect(legend).to_contain_text(f"{low:g} or less")


def test_the_table_says_what_the_topic_says_digit_by_digit(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    page.click("#show-table")
    expect(page.locator("table.all tbody tr")).to_have_count(len(hexagons()))
    records, topic = latest(day), b"".join(hour_of(HOURS - 1))
    for cell, state, *values, epsilon, published, _ in table(page):
        record = records[cell]
        assert state == {"budget_exhausted": "budget spent"}.get(record["status"], record["status"])
        assert (epsilon, published) == (record["epsilon"], record["released_at"])
        if "mean" in record:
            noise = [*record["interval95"], record["noise"]["scale"]]
            assert values == [record["mean"], *noise, record["raw"], "km/h"]
            assert f'"mean":{values[0]},"raw"'.encode() in topic
        else:
            assert values == [""] * 6
    for heading, column in (("mean", 2), ("hexagon (H3)", 0)):
        for _ in range(2):
            page.get_by_role("button", name=heading, exact=True).click()
            down = page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
            texts = [row[column] for row in table(page)]
            shown = [each for each in texts if each]
            assert shown == sorted(shown, key=float if column else str, reverse=down)
            assert texts == shown + [""] * (len(texts) - len(shown)), "what has no mean comes last"


def test_a_cell_tells_its_noise_its_last_day_and_its_whole_record(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    cell, record = next((cell, each) for cell, each in latest(day).items() if "mean" in each)
    page.click("#show-table")
    page.locator(f"button[data-cell='{cell}']").click()
    expect(page.locator("#cell-mean")).to_have_text(record["mean"])
    expect(page.locator("#cell-interval")).to_have_text(" to ".join(record["interval95"]) + " km/h")
    expect(page.locator("#cell .chart circle.mean")).to_have_count(HOURS)
    expect(page.locator("#cell .chart polygon.band")).to_have_count(1)
    page.get_by_text("The record as published").click()
    fields = dict(zip(*(page.locator(f".record {each}").all_inner_texts() for each in ("dt", "dd")), strict=True))
    assert fields["release_id"] == record["release_id"]
    assert fields["noise"] == f"kind laplace, scale {record['noise']['scale']}"
    assert set(fields) == set(record)
    page.get_by_text("As a list").click()
    assert [each.inner_text() for each in page.locator(".hours tbody td:nth-child(2)").all()] == [
        values_of(one)["mean"] for hour in reversed(range(HOURS)) for one in hour_of(hour) if cell.encode() in one
    ]


def test_a_cell_shows_each_groups_own_mean(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    page.click("#show-table")
    page.locator(f"button[data-cell='{CELLS[0]}']").click()
    expect(page.locator("#cell-groups dt")).to_have_text(
        ["buses that trust the operator", "buses with devices of their own"]
    )
    expect(page.locator("#cell-groups dd")).to_have_text(
        ["33.870 km/h (33.220 to 34.520), 300 buses", "35.402 km/h (29.015 to 41.789), 1 bus"]
    )


def test_a_cell_shows_each_of_several_values_beside_the_speed(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    page.click("#show-table")
    page.locator(f"button[data-cell='{CELLS[1]}']").click()
    expect(page.locator("#cell-values dt")).to_have_text(["delay"])
    expect(page.locator("#cell-values dd")).to_have_text(["252.0 s (-600.0 to 1303.5)"])
    page.get_by_text("The record as published").click()
    expect(page.locator(".record")).to_contain_text("name delay, mean 252.0")
    page.locator(f"button[data-cell='{CELLS[0]}']").click()
    expect(page.locator("#cell-about")).to_be_visible()
    expect(page.locator("#cell-values")).to_have_count(0)


def test_the_noise_is_told_on_hover(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    cell, record = next((cell, each) for cell, each in latest(day).items() if "mean" in each)
    page.locator(f"path.cell[data-cell='{cell}']").hover()
    expect(page.locator(".tip")).to_contain_text(record["mean"])
    expect(page.locator(".tip")).to_contain_text(" to ".join(record["interval95"]))


def test_what_is_told_on_hover_is_not_cut_off_at_the_edge_of_a_narrow_map(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, viewport={"width": 420, "height": 740})
    edge = page.locator("#map").bounding_box()
    assert edge is not None
    for cell in [*latest(day)][::4]:
        page.locator(f"path.cell[data-cell='{cell}']").hover()
        box = page.locator(".tip", has_text=cell).bounding_box()
        assert box is not None
        assert edge["x"] <= box["x"] + 0.5
        assert box["x"] + box["width"] <= edge["x"] + edge["width"] + 0.5
        assert edge["y"] <= box["y"] + 0.5
        assert box["y"] + box["height"] <= edge["y"] + edge["height"] + 0.5


def test_the_slider_and_play_show_the_hours_as_they_were(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    slider = page.locator("#slot")
    expect(slider).to_have_attribute("max", str(HOURS - 1))
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 09:00–10:00")
    expect(slider).to_have_attribute("aria-valuetext", "Sun 2 Jan 2022, 09:00–10:00")
    first = {each["cell"]: each.get("mean", "") for each in map(values_of, hour_of(0))}
    shows = "([cell, mean]) => document.querySelector(`path[data-cell='${cell}']`).dataset.mean === mean"
    page.wait_for_function(f"cells => Object.entries(cells).every({shows})", arg=first)
    expect(page.locator("#follow")).to_be_enabled()
    page.click("#play")
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 11:00–12:00")
    page.get_by_role("button", name="Pause").click()
    page.click("#follow")
    expect(page.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 08:00–09:00")


def test_the_budget_is_the_days_whose_hour_is_shown(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    expect(page.locator("#budget")).to_contain_text("2022-01-03")
    expect(page.locator("#budget-words")).to_have_text("A bus's day may lose 89; spent 1.5.")
    page.get_by_text("Details for experts").click()
    assert page.get_by_role("meter").get_attribute("aria-valuenow") == "1.5"
    page.locator("#slot").focus()
    page.keyboard.press("Home")
    expect(page.locator("#budget")).to_contain_text("2022-01-02")


def test_a_keyboard_reaches_the_table_first_and_everything_in_order(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#table-view")).to_be_visible()
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.closest('.scroll') !== null"))
    assert reached == [True] * 3
    page.locator("#show-map").focus()
    order = ["show-table", "map", "play", "slot"]
    page.keyboard.press("Enter")
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.outerHTML.slice(0, 200)"))
    assert [each for each in seen if each in order] == order, seen


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_serious(look: str, day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, **LOOKS[look])
    page.click("#show-table")
    page.locator("table.all tbody button").first.click()
    expect(page.locator("#cell .chart circle.mean").first).to_be_attached()
    for view in ("table", "map"):
        page.click(f"#show-{view}")
        picture(page, f"{look}-{view}", whole=look.startswith("phone"))
        assert serious_problems(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_after_the_servers_restart_the_page_comes_back_and_gets_what_it_missed(day: Day, open_page: OpenPage) -> None:
    page = open_page(day.url, foreseen="Failed to load resource")
    connection = page.locator("#connection")
    expect(connection).to_have_attribute("data-state", "live")
    page.evaluate("document.getElementById('map').dataset.mark = 'the same page'")
    day.stop()
    expect(connection).to_have_text("reconnecting")
    day.publish(hour_of(HOURS))
    day.start()
    expect(connection).to_have_attribute("data-state", "live")
    expect(page.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 09:00–10:00")
    wanted = {each["cell"]: each.get("mean", "") for each in map(values_of, hour_of(HOURS))}
    assert {cell: each["mean"] for cell, each in drawn(page).items()} == wanted
    assert page.evaluate("document.getElementById('map').dataset.mark") == "the same page"
    assert NO_MEAN.keys() <= {each["status"] for each in drawn(page).values()}


def test_of_two_policies_one_can_be_chosen_and_else_the_configured_one_is_shown(day: Day, open_page: OpenPage) -> None:
    """The last test of this day: it is not the same afterwards."""
    chooses, watches = (open_page(day.url, foreseen="Failed to load resource") for _ in range(2))
    day.publish(hour_of(HOURS))
    day.publish(release(HOURS + 1, cell, "33.330", policy="next") for cell in hexagons())
    chooses.select_option("#policy", "next")
    expect(chooses.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 10:00–11:00")
    assert {each["mean"] for each in drawn(chooses).values()} == {"33.330"}
    expect(watches.locator("#policy")).to_have_value("city")
    expect(watches.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 09:00–10:00")
    day.stop()
    day.configure("next")
    day.start()
    expect(watches.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 10:00–11:00")
    expect(watches.locator("#policy")).to_have_value("next")
