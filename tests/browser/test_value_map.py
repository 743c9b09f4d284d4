"""A map of another value than the speed, which may be below 0: its name, unit, colours and axis."""

import json
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, picture
from tests.browser.day import HOURS, Day, hexagons
from tests.displaying import CELLS, answered, estimate, release

POLICY: Final = "delays"
VALUE: Final[dict[str, Any]] = {"value": "delay", "unit": "s"}


def delay_of(hour: int, at: int) -> float:
    """From two minutes early to four minutes late."""
    return -120 + 10 * at + 5 * (hour % 3)


def records() -> list[bytes]:
    made = []
    for hour in range(HOURS - 6, HOURS):
        for at, cell in enumerate(hexagons()):
            mean = delay_of(hour, at)
            record: dict[str, Any] = json.loads(release(hour, cell, str(mean), policy=POLICY))
            made.append(json.dumps(record | VALUE | {"interval95": [mean - 40, mean + 40]}).encode())
    return made


def estimates() -> list[bytes]:
    return [
        estimate(hour, cell, road=delay_of(hour, at), half=30, policy=POLICY, **VALUE)
        for hour in range(HOURS - 6, HOURS)
        for at, cell in enumerate(hexagons())
    ]


@pytest.fixture(scope="module")
def delays(day: Day) -> Day:
    day.publish(records())
    day.publish(estimates(), "hats.estimates")
    keys: dict[str, Any] = {
        "kind": "over_threshold",
        "threshold": -30.5,
        "value": "delay",
        "speed_limit": None,
        "policy": POLICY,
        "unit": "vehicles/day",
    }
    answers: dict[str, Any] = json.loads(answered("09:00", query="late", **keys))
    del answers["speed_limit"]
    day.publish([json.dumps(answers).encode()], "hats.queries")
    return day


def test_the_page_names_the_value_and_its_unit_and_shows_values_below_0(delays: Day, open_page: OpenPage) -> None:
    page = open_page(f"{delays.url}?policy={POLICY}&show=releases", within=delays.url)
    expect(page.locator("#legend-title")).to_have_text("Mean delay, s")
    ticks = page.locator("#legend .ticks span").all_text_contents()
    low, high = float(ticks[0].split()[0]), float(ticks[2].split()[0])
    assert low < 0 < high <= 300
    page.locator(f"path.cell[data-cell='{hexagons()[0]}']").click()
    expect(page.locator("#cell-mean")).to_have_text(str(delay_of(HOURS - 1, 0)))
    expect(page.locator("#cell-body .figure").first).to_contain_text(" s")
    assert_axis_is_below_0(page)
    assert "km/h" not in page.locator("body").inner_text()
    picture(page, "delays", whole=True)


def assert_axis_is_below_0(page: Page) -> None:
    lines = page.locator("#cell-body .chart .rule")
    ticks = [float(each) for each in page.locator("#cell-body .chart .tick[text-anchor='end']").all_text_contents()]
    assert lines.count() == len(ticks) == 3
    assert ticks[0] <= delay_of(HOURS - 1, 0) - 40 < ticks[2]
    marks = page.locator("#cell-body .chart .band").first.get_attribute("points") or ""
    heights = {float(point.split(",")[1]) for point in marks.split()}
    assert len(heights) > 2, "values below 0 are at different heights"


def test_estimates_and_answers_name_the_value(delays: Day, open_page: OpenPage) -> None:
    page = open_page(f"{delays.url}?policy={POLICY}", within=delays.url)
    expect(page.locator("#legend-title")).to_have_text("Mean delay, s")
    page.locator(f"path.cell[data-cell='{CELLS[0]}']").click()
    expect(page.locator("#cell-what")).to_have_text("Mean delay of all readings of this hour.")
    expect(page.locator(".exact")).to_contain_text("s (0.0 to 20), estimated delay")
    expect(page.locator(".promise")).to_contain_text("No single bus's values can be picked out")
    expect(page.locator("#cell-meaning")).to_contain_text("the mean of all readings of the hour in 95 of 100 cases")
    expect(page.locator("body")).to_contain_text("How many buses a day had a delay above -30.5 at some time")
    picture(page, "estimated-delays", whole=True)
