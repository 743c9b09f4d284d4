"""The page before the first release: it says what it waits for, and shows no map of the world."""

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def empty_day(browser: Browser, folder: Path, retention: str) -> Iterator[Day]:
    """The map over topics without a record, of telemetry that is kept for so long."""
    assert browser.is_connected()  # where there is no browser no services are needed
    with Services(TOPICS) as services:
        day = Day(services.wait().kafka, folder)
        day.configure("city", {"topics": {"telemetry_retention": retention}})
        day.start()
        try:
            yield day
        finally:
            day.stop()


@pytest.fixture(scope="module")
def waiting_day(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """A live city's, to which the last test that takes it publishes."""
    with empty_day(browser, tmp_path_factory.mktemp("empty"), "168h") as day:
        yield day


def opened(browser: Browser, day: Day, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(day.url)
    return page


@pytest.mark.parametrize("look", PHONES)
def test_before_the_first_release_the_page_says_which_hour_it_waits_for(
    look: str, waiting_day: Day, browser: Browser
) -> None:
    slot = values_of(waiting_day.get("/api/v1/awaited"))["slot"]
    page = opened(browser, waiting_day, **PHONES[look])
    words = page.locator("#empty-words")
    expect(words).to_contain_text("Nothing is published yet.")
    expect(words).to_contain_text(f"the hour {slot['start'][11:16]}–{slot['end'][11:16]} of ")
    expect(words).to_contain_text(f"closes, at {slot['closes'][11:16]} (UTC)")
    expect(words).to_contain_text("releases of the policy city on the topic hats.means")
    expect(page.locator("#map")).to_be_hidden()
    picture(page, f"empty-{look}")
    assert serious_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.context.close()


def test_the_first_release_puts_a_map_that_fits_its_hexagons_in_the_place_of_the_words(
    waiting_day: Day, browser: Browser
) -> None:
    pages = [opened(browser, waiting_day, **look) for look in PHONES.values()]
    for page in pages:
        expect(page.locator("#empty-words")).to_contain_text("Nothing is published yet.")
    waiting_day.publish(hour_of(0))
    for page in pages:
        expect(page.locator("path.cell").first).to_be_visible()
        expect(page.locator("#empty")).to_be_hidden()
        box, edge = page.locator("path.cell").first.bounding_box(), page.locator("#map").bounding_box()
        assert box is not None
        assert edge is not None
        assert box["width"] > edge["width"] / 20
        page.context.close()


def test_the_time_of_a_recording_is_not_the_clocks_so_no_hour_is_named(browser: Browser, tmp_path: Path) -> None:
    with empty_day(browser, tmp_path, "none") as day:
        page = opened(browser, day)
        expect(page.locator("#empty-words")).to_contain_text("when all readings of a first hour have been read")
        page.context.close()
