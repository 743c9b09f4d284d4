"""Clusterings on the map: the card of the centres, and the hexagons in the colours of their clusters."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import TOPICS, Day, hexagons, hour_of
from tests.browser.saved import check_picture, saved
from tests.displaying import clustered

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
CENTRES = ([18.5, 19.25], [38.125, 36.0])


@pytest.fixture(scope="module")
def clustered_day(day: Day) -> Day:
    day.publish([clustered(status="round"), clustered("a" * 32, date="2022-01-01"), clustered()], TOPICS[4])
    return day


def wanted() -> dict[str, str]:
    """Cell -> its cluster, by the squared distance of its published means at 09:00 and 10:00."""
    speeds: dict[str, list[float | None]] = {}
    for hour in (0, 1):
        for record in map(json.loads, hour_of(hour)):
            speeds.setdefault(record["cell"], []).append(record.get("mean"))
    found = {}
    for cell, values in speeds.items():
        known = [(value, at) for at, value in enumerate(values) if value is not None]
        squares = [sum((centre[at] - value) ** 2 for value, at in known) for centre in CENTRES]
        found[cell] = "" if not known else str(1 + squares.index(min(squares)))
    return found


def shown(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("path[data-cell]")].map((path) =>
             [path.dataset.cell, path.dataset.cluster]))"""
    )
    return found


def test_each_hexagon_gets_the_colour_of_the_nearest_centre(clustered_day: Day, open_page: OpenPage) -> None:
    page = open_page(clustered_day.url)
    expect(page.locator("#clusters thead th")).to_have_text(["km/h", "1: about 212", "2: about 162"])
    expect(page.locator("#clusters tbody tr").first).to_have_text("09:0018.538.125")
    assert set(shown(page).values()) == {""}
    page.check("#by-cluster")
    coloured = {cell for cell, cluster in wanted().items() if cluster}
    expect(page.locator("#by-cluster-text")).to_contain_text(f"Each of {len(coloured)} hexagons")
    expect(page.locator("path:not([data-cluster=''])[data-cell]")).to_have_count(len(coloured))
    assert {cell: cluster for cell, cluster in shown(page).items() if cell in wanted()} == wanted()
    expect(page.locator("#legend-card")).to_be_hidden()
    for path in page.locator("path[data-cluster='1']").all():
        expect(path).to_have_attribute("fill", "#0072b2")
    page.uncheck("#by-cluster")
    expect(page.locator("#legend-card")).to_be_visible()
    expect(page.locator("path[data-cluster='1']")).to_have_count(0)
    assert len(hexagons()) == len(wanted())


def test_a_clustering_whose_day_is_not_stored_says_so(clustered_day: Day, open_page: OpenPage) -> None:
    page = open_page(clustered_day.url)
    page.select_option("#clustering", "a" * 32)
    page.check("#by-cluster")
    expect(page.locator("#by-cluster-text")).to_have_text("The hours of this day are not stored here any more.")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing_serious_in_clusters(look: str, clustered_day: Day, open_page: OpenPage) -> None:
    options = PHONE if look == "phone" else {"color_scheme": look}
    page = open_page(clustered_day.url, **options)
    page.check("#by-cluster")
    expect(page.locator("path[data-cluster='1']").first).to_be_attached()
    page.locator("#clusters").scroll_into_view_if_needed()
    picture(page, f"clusters-{look}", whole=look == "phone")
    assert serious_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_saved_picture_of_clusters_has_them_as_its_legend(
    clustered_day: Day, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(clustered_day.url)
    page.check("#by-cluster")
    expect(page.locator("path[data-cluster='1']").first).to_be_attached()
    path = saved(page, "#save-png", tmp_path)
    check_picture(page, path)
    colours = {colour for _, colour in Image.open(path).convert("RGB").getcolors(1 << 24) or ()}
    assert {(0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00)} <= colours, "each cluster's swatch, opaque"
