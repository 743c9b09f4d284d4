"""Estimates on the map, in a browser: the first view, the switch, the card and its chart."""

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, TOPICS, Day, hexagons
from tests.browser.estimated import GAP, NEVER_RELEASED, SURPRISED, deferred, one, running_means, week
from tests.browser.test_map import LOOKS, PHONE, drawn, table
from tests.displaying import budget, running, values_of


def latest(day: Day) -> dict[str, Any]:
    """The estimates of the latest hour, by cell."""
    return {each["cell"]: each for each in values_of(day.get("/api/v1/estimates"))["estimates"]}


def select(page: Page, cell: str) -> None:
    page.click("#show-table")
    page.locator(f"button[data-cell='{cell}']").click()
    page.click("#show-map")


def opacities(page: Page) -> dict[str, float]:
    found: dict[str, float] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("path.cell")].map((path) =>
             [path.dataset.cell, Number(path.getAttribute("fill-opacity"))]))"""
    )
    return found


def test_estimates_are_the_first_view_and_every_hexagon_has_its_speed_stage_and_certainty(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url)
    expect(page.locator("#show-estimates")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#as-of")).to_contain_text("estimates")
    hexes, records, seen = drawn(page), latest(estimated_day), opacities(page)
    assert hexes.keys() == records.keys() == {*hexagons(), *NEVER_RELEASED}
    for cell, record in records.items():
        assert (hexes[cell]["status"], hexes[cell]["mean"]) == (record["stage"], headline(record)["value"])
    widths = {cell: wide(each) for cell, each in records.items()}
    by_width = sorted(widths, key=lambda cell: widths[cell])
    shown = [seen[cell] for cell in by_width]
    assert shown == sorted(shown, reverse=True), "the wider the interval, the fainter"
    assert len(set(shown)) == 4
    dashed = set(page.locator("path.cell.predicted").evaluate_all("paths => paths.map((path) => path.dataset.cell)"))
    assert dashed == {cell for cell, each in records.items() if each["stage"] == "predicted"}
    legend = page.locator("#legend")
    expect(page.locator("#legend-title")).to_have_text("Mean speed while moving, km/h")
    expect(legend.locator(".certainties li")).to_have_text(["±4", "±7", "±10", "wider"])
    samples = legend.locator(".certainty").evaluate_all(
        "all => all.map((each) => Number(each.getAttribute('fill-opacity')))"
    )
    assert set(samples) == set(shown), "each opacity of the map is in the legend"
    expect(legend).to_contain_text("Fainter: less certain (95 % are within ± km/h).")
    expect(legend).to_contain_text("dashed edge: predicted")


def test_the_switch_shows_releases_by_keyboard_and_the_url_remembers_it(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url)
    page.locator("#show-estimates").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#show-releases")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#show-releases")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#show-estimates")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#legend")).to_contain_text("suppressed: too few vehicles")
    expect(page).to_have_url(f"{estimated_day.url}?show=releases")  # the page limits how often it writes its address
    page.reload()
    expect(page.locator("#show-releases")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#legend")).to_contain_text("suppressed: too few vehicles")
    page.click("#show-estimates")
    expect(page.locator("#legend")).to_contain_text("solid edge: with releases of this hour")
    expect(page).to_have_url(f"{estimated_day.url}?show=estimates")


def test_of_a_trackers_releases_the_deferred_ones_are_explained_and_a_settlement_is_not_drawn(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(f"{estimated_day.url}?show=releases", within=estimated_day.url)
    waiting = {each["cell"] for each in map(values_of, deferred())}
    shown = {cell: each for cell, each in drawn(page).items() if each["status"] == "deferred"}
    assert shown.keys() == waiting
    assert {each["fill"] for each in shown.values()} == {"url(#hatch-deferred)"}
    expect(page.locator("#legend")).to_contain_text("no query of its own")
    assert drawn(page).keys() == {*hexagons(), *waiting}
    assert b"settlement" not in estimated_day.get("/api/v1/latest") + estimated_day.get("/api/v1/slots")
    select(page, waiting.pop())
    expect(page.locator("#cell-body")).to_contain_text("The budget went to other queries")


def test_a_card_says_the_mean_its_interval_its_stage_and_what_they_mean(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url)
    record = latest(estimated_day)[SURPRISED]
    select(page, SURPRISED)
    expect(page.locator("#cell-road")).to_have_text(record["road"]["value"])
    expect(page.locator("#cell-road-interval")).to_have_text(" to ".join(record["road"]["interval95"]))
    expect(page.locator("#cell-mean")).to_have_text(record["mean"]["value"])
    expect(page.locator("#cell-mean-interval")).to_have_text(" to ".join(record["mean"]["interval95"]))
    expect(page.locator("#cell-stage")).to_have_text("Estimated at the close of the hour.")
    expect(page.locator("#cell-meaning")).to_contain_text("in 95 of 100 cases")
    expect(page.locator("#cell-surprise")).to_contain_text("4.25 standard deviations slower than expected")
    page.get_by_text("The record as published").click()
    fields = dict(zip(*(page.locator(f".record {each}").all_inner_texts() for each in ("dt", "dd")), strict=True))
    assert set(fields) == set(record)
    cell = NEVER_RELEASED[0]
    select(page, cell)
    expect(page.locator("#cell-road")).to_have_text(latest(estimated_day)[cell]["road"]["value"])
    expect(page.locator("#cell-stage")).to_have_text("Predicted: no release of this hexagon in this hour.")
    expect(page.locator("#cell-surprise")).to_have_count(0)


def test_the_chart_has_a_band_with_a_gap_and_the_releases_beside_it(estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url)
    select(page, SURPRISED)
    chart = page.locator("#cell .chart")
    expect(chart.locator("circle.ring")).to_have_count(HOURS)
    expect(chart.locator("polygon.band")).to_have_count(2)
    expect(chart.locator("path.predicted")).to_have_count(2)
    expect(chart.locator("circle.road")).to_have_count(1)
    points = chart.locator("polygon.band").evaluate_all("all => all.map((each) => each.points.numberOfItems)")
    assert points == [2 * GAP.start, 2 * (HOURS - GAP.stop)]
    ticks = chart.locator("text.tick").all_text_contents()
    assert {"12:00", "00:00", "Sun 2 Jan", "Mon 3 Jan"} <= set(ticks), "the city's clock and days"
    page.get_by_text("As a list").click()
    rows = page.locator(".hours tbody td:nth-child(2)").all_inner_texts()
    assert rows == [
        headline(values_of(one(hour, SURPRISED)))["value"] for hour in reversed(range(HOURS)) if hour not in GAP
    ]


def test_an_earlier_hour_shows_its_settled_estimates_and_an_hour_without_any_is_left_out(
    estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(estimated_day.url)
    expect(page.locator("#slot")).to_have_attribute("max", str(HOURS - len(GAP) - 1))
    page.locator("#slot").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 10:00–11:00")
    cell = sorted(hexagons())[0]
    wanted = headline(values_of(one(1, cell)))["value"]
    expect(page.locator(f"path.cell[data-cell='{cell}']")).to_have_attribute("data-mean", wanted)


def test_the_table_has_the_estimates_digit_by_digit(estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url)
    page.click("#show-table")
    records = latest(estimated_day)
    expect(page.locator("table.all tbody tr")).to_have_count(len(records))
    for cell, _, *mean, road, road_low, road_high, z, alarm, unit, _ in table(page):
        record = records[cell]
        assert mean == ([record["mean"]["value"], *record["mean"]["interval95"]] if "mean" in record else ["", "", ""])
        assert [road, road_low, road_high] == [record["road"]["value"], *record["road"]["interval95"]]
        assert (z, alarm, unit) == (record.get("residual_z", ""), record.get("alarm", ""), "km/h")


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_hexagon_with_an_alarm_has_a_mark_and_a_sentence_and_the_legend_says_what_it_is(
    language: str, estimated_day: Day, open_page: OpenPage
) -> None:
    page = open_page(f"{estimated_day.url}?lang={language}", within=estimated_day.url)
    expect(page.locator("#map .alarm-mark")).to_have_count(1)
    expect(page.locator("#alarm")).to_have_text(
        "Alarm in 1 hexagon: buses are far slower than expected."
        if language == "en"
        else "Alarm in 1 Sechseck: Busse sind weit langsamer als erwartet."
    )
    mark, hexagon = (
        page.locator(name).bounding_box() for name in ("#map .alarm-mark", f"path[data-cell='{SURPRISED}']")
    )
    assert mark is not None
    assert hexagon is not None
    assert hexagon["x"] < mark["x"] < mark["x"] + mark["width"] < hexagon["x"] + hexagon["width"]
    assert hexagon["y"] < mark["y"] < mark["y"] + mark["height"] < hexagon["y"] + hexagon["height"]
    expect(page.locator("#legend .alarm-mark")).to_have_count(1)
    page.locator(f"path[data-cell='{SURPRISED}']").click()  # a mark lets a click through
    expect(page.locator("#cell-alarm")).to_contain_text("Alarm:")
    picture(page, f"alarm-{language}")
    assert serious_problems(page) == []


def test_an_alarm_of_the_whole_city_is_one_sentence_and_no_mark(estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url)
    page.locator("#slot").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#alarm")).to_contain_text("buses in the whole city are far slower than expected")
    expect(page.locator("#map .alarm-mark")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#alarm")).to_be_hidden()


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_serious_in_estimates(look: str, estimated_day: Day, open_page: OpenPage) -> None:
    page = open_page(estimated_day.url, **LOOKS[look])
    select(page, SURPRISED)
    expect(page.locator("#cell .chart circle.ring").first).to_be_attached()
    for view in ("table", "map"):
        page.click(f"#show-{view}")
        picture(page, f"estimates-{look}-{view}", whole=look.startswith("phone"))
        assert serious_problems(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_running_mean_has_its_colours_card_table_and_link(estimated_day: Day, open_page: OpenPage) -> None:
    estimated_day.publish(running_means(), TOPICS[5])
    page = open_page(f"{estimated_day.url}?cell={SURPRISED}", within=estimated_day.url, **(PHONE | LOOKS["dark"]))
    page.locator("#more").tap()
    span = page.get_by_label("Hours", exact=True)
    expect(span.locator("option")).to_have_text(["This hour", "Today so far", "The last 24 hours"])
    span.select_option("Today so far")
    expect(page.locator("#slot-title")).to_have_text("Today so far")
    expect(page.locator("#as-of")).to_contain_text("as of Mon 3 Jan 2022, 09:00")
    records = {each["cell"]: each for each in values_of(estimated_day.get("/api/v1/running?name=today"))["running"]}
    hexes, seen = drawn(page), opacities(page)
    assert {cell: each["mean"] for cell, each in hexes.items()} == {
        cell: each.get("mean", {}).get("value", "") for cell, each in records.items()
    }
    widths = {cell: wide(each) for cell, each in records.items() if "mean" in each}
    by_width = sorted(widths, key=lambda cell: widths[cell])
    assert [seen[each] for each in by_width] == sorted((seen[each] for each in by_width), reverse=True)
    assert len({seen[each] for each in by_width}) == 4, "wide intervals are fainter"
    expect(page.locator("#timeline")).to_be_hidden()  # there is the newest alone
    mine = [each for each in map(values_of, running_means()) if each["cell"] == SURPRISED]
    expect(page.locator("#cell-mean")).to_have_text(mine[0]["mean"]["value"])
    expect(page.locator("#cell-hours")).to_contain_text("9 hours are in it; all count alike")
    wanted = [[each["mean"]["value"], " to ".join(each["mean"]["interval95"]), each["slots"]] for each in mine]
    rows = page.locator("#cell-running tbody tr")
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == wanted
    expect(page.locator("#cell .chart rect.running")).to_have_count(1)
    expect(page).to_have_url(f"{estimated_day.url}?cell={SURPRISED}&show=running&window=today")
    picture(page, "running-phone-dark")
    assert serious_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.reload()
    expect(page.locator("#slot-title")).to_have_text("Today so far")
    expect(page.locator("#cell-wide")).to_have_count(0)
    estimated_day.publish([running(HOURS, SURPRISED, mean=29.75, half=12)], TOPICS[5])
    expect(page.locator("#cell-mean")).to_have_text("29.75")
    expect(page.locator("#cell-wide")).to_contain_text("more than ±10 km/h")
    page.get_by_role("button", name="Close this hexagon").tap()
    page.locator("#show-table").tap()
    expect(page.locator("table.all tbody tr")).to_have_count(len(records))
    assert [row[1:4] for row in table(page) if row[0] == SURPRISED] == [["29.75", "17.75", "41.75"]]
    page.locator("#more").tap()  # closed since the reload
    span.select_option("This hour")
    expect(page.locator("#timeline")).to_be_visible()


def headline(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the map shows of an estimate or a running mean: the mean, or of an hour without one the road."""
    shown: dict[str, Any] = record.get("mean") or record["road"]
    return shown


def wide(record: dict[str, Any]) -> float:
    low, high = map(float, headline(record)["interval95"])
    return high - low


def test_a_continual_policy_shows_its_horizon_and_is_no_mean_of_an_hour(
    estimated_day: Day, open_page: OpenPage
) -> None:
    estimated_day.publish(week())
    reserved = [{"query": "continual", "epsilon": 1.0, "places": 20}]
    booked: dict[str, Any] = {
        "releases": 0,
        "epsilon_user_day": 20.0,
        "limit": 20.0,
        "day_bound": 20.0,
        "queries": reserved,
    }
    estimated_day.publish([budget("2022-01-03", policy="week", **booked)], TOPICS[1])
    address = f"{estimated_day.url}?policy=week&cell={SURPRISED}"
    page = open_page(address, within=estimated_day.url)
    expect(page.locator("#slot-title")).to_have_text("This week so far, since Mon 3 Jan 2022")
    expect(page.locator("#as-of")).to_contain_text("guarantee until Sun 9 Jan 2022")
    expect(page.locator("#cell-body")).to_contain_text("not of one hour")
    expect(page.locator("#cell-horizon")).to_have_text(
        "This week so far, since Mon 3 Jan 2022; guarantee until Sun 9 Jan 2022."
    )
    expect(page.locator("#cell-sums")).to_contain_text("1100.0 (1040.0 to 1160.0) km/h")
    expect(page.locator("#cell .chart polygon.band")).to_have_count(2)  # a new horizon begins anew
    expect(page.locator("#legend")).to_contain_text("suppressed: too few values")
    expect(page.locator("#spans")).to_be_hidden()
    expect(page.locator("#budget-words")).to_have_text("All running means of a horizon may cost a bus 20.")
    page.locator("#slot").focus()
    page.keyboard.press("Home")
    expect(page.locator("#slot-title")).to_have_text("This week so far, since Mon 27 Dec 2021")
    picture(page, "continual")
    assert serious_problems(page) == []


def test_the_first_estimates_are_shown_as_they_come_and_settled_ones_take_their_place(
    estimated_day: Day, open_page: OpenPage
) -> None:
    """The last test of this day: it is not the same afterwards."""
    page = open_page(estimated_day.url)
    select(page, SURPRISED)
    estimated_day.publish([one(HOURS, SURPRISED)], "hats.estimates")
    expect(page.locator("#slot-title")).to_have_text("Mon 3 Jan 2022, 09:00–10:00")
    expect(page.locator("#cell-road")).to_have_text(values_of(one(HOURS, SURPRISED))["road"]["value"])
    settled = one(HOURS, SURPRISED).replace(b'"live"', b'"settled"').replace(b'"predicted"', b'"settled"')
    estimated_day.publish([settled], "hats.estimates")
    expect(page.locator("#cell-stage")).to_have_text("Settled at the end of the day.")


def test_the_budget_of_a_tracker_is_what_a_bus_has_lost_and_not_what_is_reserved(
    estimated_day: Day, open_page: OpenPage
) -> None:
    def publish(seq: int, places: int, **more: Any) -> None:
        reserved = [{"query": "tracker", "epsilon": 5.0, "places": places}]
        booked: dict[str, Any] = {
            "releases": 0,
            "epsilon_user_day": 5.0,
            "limit": 5.0,
            "day_bound": 5.0,
            "queries": reserved,
        }
        estimated_day.publish([budget("2022-01-03", seq, **booked, **more)], TOPICS[1])

    publish(100, 1, spent={"largest": 1.5, "mean": 0.75})
    page = open_page(estimated_day.url)
    expect(page.locator("#budget-words")).to_have_text("A bus's day may lose 5; spent 1.5.")
    expect(page.locator("#budget [role=meter]")).to_have_attribute("aria-valuetext", "1.5 of 5.0")
    expect(page.locator("#budget dd")).to_have_text(["2022-01-03", "1.5", "0.75", "5.0", "5.0"])
    publish(101, 1)
    expect(page.locator("#budget-words")).to_have_text(
        "A bus's day may lose 5; how much is spent comes with a later record."
    )
    expect(page.locator("#budget [role=meter]")).to_have_count(0)
    publish(102, 0)
    expect(page.locator("#budget")).to_contain_text("no queries are made of it")
