"""The privacy budget in words, for each kind of policy."""

from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.day import HOURS, TOPICS, Day
from tests.displaying import CELLS, budget, release

TRACKER: Final = {"query": "tracker", "epsilon": 4.1, "places": 1}
QUERY: Final = {"query": "month-speed", "epsilon": 0.01, "places": 89}
CASES: Final[dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]]] = {
    "plain": ({}, {}, ["A bus's day may lose 89; spent 1.5."]),
    "queries": (
        {
            "epsilon_user_day": 2.89,
            "day_bound": 90.39,
            "queries": [
                QUERY,
                {"query": "over-50", "epsilon": 0.01, "places": 0},
                {"query": "cells", "epsilon": 0.5, "places": 1},
            ],
        },
        {},
        [
            (
                "A bus's day may lose 90.39; spent 1.5, 0.5 for the choice of hexagons,"
                " set aside 0.89 for answers over days."
            ),
            "The limit left no room for over-50.",
        ],
    ),
    "tracker": (
        {
            "epsilon_user_day": 5.0,
            "limit": 5.0,
            "day_bound": 5.0,
            "queries": [TRACKER | {"epsilon": 5.0}],
            "spent": {"largest": 2.1, "mean": 0.75},
        },
        {},
        ["A bus's day may lose 5; spent 2.1."],
    ),
    "tracker with a query": (
        {
            "epsilon_user_day": 4.99,
            "limit": 5.0,
            "day_bound": 5.0,
            "queries": [QUERY, TRACKER],
            "spent": {"largest": 2.1, "mean": 0.75},
        },
        {},
        ["A bus's day may lose 5; spent 2.1, set aside 0.89 for answers over days."],
    ),
    "user": (
        {"total": 30.5, "total_limit": 1000.0},
        {},
        ["All days of a bus together may lose 1000; spent 30.5.", "A bus's day may lose 89; spent 1.5."],
    ),
    "hybrid": (
        {"queries": [{"query": "clustering-0123456789ab", "epsilon": 0.5, "places": 1}], "day_bound": 89.5},
        {"device_epsilon": 2.0, "delta": 1e-06},
        [
            "A bus's day may lose 89.5; spent 1, 0.5 for typical days.",
            "This holds for buses with devices of their own, too.",
            "The noise is Gaussian: all of it holds with delta 1e-06.",
        ],
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_budget_is_in_words(kind: str, day: Day, open_page: OpenPage) -> None:
    booked, released, words = CASES[kind]
    name = kind.replace(" ", "-")
    day.publish([budget("2022-01-03", 1, name, **booked)], TOPICS[1])
    day.publish([release(HOURS - 1, CELLS[0], policy=name, **released)])
    page = open_page(f"{day.url}?policy={name}", within=day.url)
    expect(page.locator("#budget .words")).to_have_text(words)
    expect(page.locator("#budget-words")).to_have_text(words[0])
    expect(page.locator("#budget")).to_contain_text("e^epsilon")
    page.get_by_text("Details for experts").click()
    expect(page.get_by_role("meter")).to_have_attribute("aria-valuetext", _METERS[kind])


_METERS: Final = {
    "plain": "1.5 of 89.0",
    "queries": "2.89 of 90.39",
    "tracker": "2.1 of 5.0",
    "tracker with a query": "2.99 of 5.0",
    "user": "30.5 of 1000.0",
    "hybrid": "1.5 of 89.5",
}


_HIDDEN: Final[dict[str, tuple[dict[str, Any], dict[str, Any], str]]] = {
    "replace-day": ({}, {}, "however fast a bus went on this day, no"),
    "replace-delay": ({}, {"value": "delay", "unit": "s"}, "whatever values a bus reported on this day, no"),
    "replace-user": ({"total": 30.5, "total_limit": 1000.0}, {}, "however fast a bus went on all its days, no"),
    "replace-horizon": (
        {"queries": [{"query": "continual", "epsilon": 1.0, "places": 1}]},
        {},
        "however fast a bus went in the whole horizon, no",
    ),
    "add-remove-day": ({}, {"relation": "add_remove"}, "whatever a bus did on this day, no"),
    "add-remove-user": (
        {"total": 30.5, "total_limit": 1000.0},
        {"relation": "add_remove"},
        "whatever a bus did on all its days, no",
    ),
}


@pytest.mark.parametrize("name", _HIDDEN)
def test_the_card_promises_under_replace_no_more_than_that_values_are_hidden(
    name: str, day: Day, open_page: OpenPage
) -> None:
    booked, released, words = _HIDDEN[name]
    day.publish([budget("2022-01-03", 1, name, **booked)], TOPICS[1])
    day.publish([release(HOURS - 1, CELLS[0], policy=name, **released)])
    page = open_page(f"{day.url}?policy={name}", within=day.url)
    expect(page.locator("#budget")).to_contain_text(f"These are epsilons: {words}")
