"""Answers to queries over days on the map: the table of a query's period, and the card of a hexagon."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import TOPICS, Day, hexagons
from tests.displaying import answered, values_of

SLOTS = ("08:00", "09:00")
BEFORE: dict[str, Any] = {"first_date": "2021-11-02", "last_date": "2021-12-02"}
OVER: dict[str, Any] = {"query": "over-50", "kind": "over_speed_limit", "speed_limit": 50.0, "unit": "vehicles/day"}
NO_VALUE = ("mean", "raw", "unit", "noise", "interval95", "covers")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def answers() -> list[bytes]:
    made = []
    for slot in SLOTS:
        for at, cell in enumerate(hexagons()):
            value: dict[str, Any] = {"mean": 20 + at / 8, "raw": 20 + at / 8, "interval95": [17 + at / 8, 23 + at / 8]}
            made += [answered(slot, cell, **value), answered(slot, cell, **BEFORE)]
            made.append(answered(slot, cell, **OVER, mean=at / 4, interval95=[0, at / 4 + 3.0]))
    return made


@pytest.fixture(scope="module")
def answered_day(day: Day) -> Day:
    day.publish(answers(), TOPICS[3])
    return day


def rows(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("#answers tbody tr")].map((row) =>
             [...row.cells].map((cell) => cell.textContent))"""
    )
    return found


def of(day: Day, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = values_of(day.get(f"/api/v1/queries?{query}"))["queries"]
    return found


def test_the_card_of_answers_has_each_query_and_period_digit_by_digit(answered_day: Day, open_page: OpenPage) -> None:
    page = open_page(answered_day.url)
    expect(page.locator("#answers-period option")).to_have_text(
        [
            "month-speed: 3 Dec 2021 to 2 Jan 2022",
            "month-speed: 2 Nov 2021 to 2 Dec 2021",
            "over-50: 3 Dec 2021 to 2 Jan 2022",
        ]
    )
    expect(page.locator("#answers-slot")).to_have_value("08:00")  # the hour on display
    expect(page.locator("#answers tbody tr")).to_have_count(len(hexagons()))
    expect(page.locator("#answers-count")).to_contain_text(f"{len(hexagons())} of {len(hexagons())} hexagons")
    wanted = of(answered_day, "query=month-speed&slot=08:00")
    assert rows(page) == [[each["cell"], f"{each['mean']} km/h", " to ".join(each["interval95"])] for each in wanted]
    page.select_option("#answers-period", "over-50 2021-12-03")
    expect(page.locator("#answers-meaning")).to_have_text(
        "How many buses a day drove faster than 50.0 km/h at some time in this hour."
    )
    page.select_option("#answers-slot", "09:00")
    expect(page.locator("#answers tbody tr").first).to_contain_text(" a day")
    assert rows(page)[3][1:] == ["0.75 a day", "0 to 3.75"]


def test_a_hexagons_card_has_its_answers_in_words_for_the_hour_on_display(
    answered_day: Day, open_page: OpenPage
) -> None:
    cell = hexagons()[4]
    page = open_page(f"{answered_day.url}?cell={cell}&hour=2022-01-02T09:00", within=answered_day.url)
    expect(page.locator("#cell-answers p")).to_have_text(
        [
            "3 Dec 2021 to 2 Jan 2022, mean speed of buses: 20.5 km/h, noise, 95 %: 17.5 to 23.5",
            "3 Dec 2021 to 2 Jan 2022, buses a day faster than 50.0 km/h: 1.0 a day, noise, 95 %: 0 to 4.0",
        ]
    )
    page.get_by_text("All its answers over days").click()
    expect(page.locator(".cell-answers tbody tr")).to_have_count(6)
    page.locator("#slot").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#cell-answers")).to_have_text("No query was answered for this hour.")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing_serious_in_answers(look: str, answered_day: Day, open_page: OpenPage) -> None:
    options = PHONE if look == "phone" else {"color_scheme": look}
    page = open_page(f"{answered_day.url}?cell={hexagons()[4]}", within=answered_day.url, **options)
    expect(page.locator("#cell-answers p").first).to_be_attached()
    expect(page.locator("#answers tbody tr")).to_have_count(len(hexagons()))
    page.locator("#answers").scroll_into_view_if_needed()
    picture(page, f"answers-{look}", whole=look == "phone")
    assert serious_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_an_answer_that_comes_is_shown_and_one_without_a_value_says_why(answered_day: Day, open_page: OpenPage) -> None:
    """The last test of this day: it is not the same afterwards."""
    page = open_page(answered_day.url)
    expect(page.locator("#answers tbody tr")).to_have_count(len(hexagons()))
    cell = "87608b0d2ffffff" if "87608b0d2ffffff" not in hexagons() else "8760cb4d1ffffff"
    record = {name: value for name, value in json.loads(answered("08:00", cell)).items() if name not in NO_VALUE}
    answered_day.publish(
        [json.dumps(record | {"status": "suppressed", "reason": "too_few_user_days"}).encode()], TOPICS[3]
    )
    expect(page.locator("#answers tbody tr")).to_have_count(len(hexagons()) + 1)
    expect(page.locator("#answers tr", has_text=cell)).to_contain_text("too few buses")
    expect(page.locator("#answers-count")).to_contain_text(f"{len(hexagons())} of {len(hexagons()) + 1} hexagons")
    unasked = record | {"query": "open", "kind": "over_speed_limit", "release_id": f"city/2022-01-02T08:00/{cell}/open"}
    answered_day.publish(
        [json.dumps(unasked | {"status": "suppressed", "reason": "not_requested"}).encode()], TOPICS[3]
    )
    page.select_option("#answers-period", "open 2021-12-03")
    expect(page.locator("#answers tbody td").first).to_have_text("no limit was requested")
    expect(page.locator("#answers-meaning")).to_contain_text("None was requested for these days.")
