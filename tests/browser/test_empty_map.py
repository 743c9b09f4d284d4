"""The page before the first release: it says what it waits for, and shows no map of the world."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from hatcast.agents.demo.embedded import Services
from tests.browser.accessibility import serious_problems
from tests.browser.conftest import picture
from tests.browser.day import TOPICS, Day, hour_of
from tests.browser.test_phone_map import PHONES
from tests.displaying import values_of


@pytest.fixture
def empty_day(browser: Browser, tmp_path: Path) -> Iterator[Day]:
    assert browser.is_connected()
    with Services(TOPICS) as services:
        day = Day(services.wait().kafka, tmp_path)
        try:
            yield day
        finally:
            day.stop()


def opened(browser: Browser, day: Day, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(day.url)
    return page


@pytest.mark.parametrize("look", PHONES)
def test_before_the_first_release_the_page_says_which_hour_it_waits_for(
    look: str, empty_day: Day, browser: Browser
) -> None:
    empty_day.configure("city", {"topics": {"telemetry_retention": "168h"}})
    empty_day.start()
    slot = values_of(empty_day.get("/api/v1/awaited"))["slot"]
    page = opened(browser, empty_day, **PHONES[look])
    words = page.locator("#empty-words")
    expect(words).to_contain_text("Nothing is published yet.")
    expect(words).to_contain_text(f"the hour {slot['start'][11:16]}–{slot['end'][11:16]} of ")
    expect(words).to_contain_text(f"closes, at {slot['closes'][11:16]} (UTC)")
    expect(words).to_contain_text("releases of the policy city on the topic hats.means")
    expect(page.locator("#map")).to_be_hidden()
    picture(page, f"empty-{look}")
    assert serious_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    empty_day.publish(hour_of(0))
    expect(page.locator("path.cell").first).to_be_visible()
    expect(page.locator("#empty")).to_be_hidden()
    box, edge = page.locator("path.cell").first.bounding_box(), page.locator("#map").bounding_box()
    assert box is not None
    assert edge is not None
    assert box["width"] > edge["width"] / 20, "the map fits its hexagons"
    page.context.close()


def test_the_time_of_a_recording_is_not_the_clocks_so_no_hour_is_named(empty_day: Day, browser: Browser) -> None:
    empty_day.configure("city", {"topics": {"telemetry_retention": "none"}})
    empty_day.start()
    page = opened(browser, empty_day)
    expect(page.locator("#empty-words")).to_contain_text("when all readings of a first hour have been read")
    page.context.close()
