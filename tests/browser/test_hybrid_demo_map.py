"""The map of `scripts/demo --hybrid`."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import OpenPage, picture
from tests.browser.demo import Demo, run_demo
from tests.displaying import values_of


@pytest.fixture(scope="module")
def hybrid_demo(browser: Browser) -> Iterator[Demo]:
    assert browser.is_connected()  # where there is no browser no demo is needed
    with run_demo("--hybrid", "--speedup", "1200") as running:
        yield running


def test_a_hybrid_demo_shows_both_groups_of_a_hexagon_with_weights_and_epsilons(
    hybrid_demo: Demo, open_page: OpenPage
) -> None:
    page = open_page(f"{hybrid_demo.url}?show=releases", within=hybrid_demo.url)
    page.locator("#slot").focus()
    page.keyboard.press("Home")  # an hour that stays as it is
    page.locator("path.cell[data-status=released]").first.click()
    cell = page.locator("#cell-body code").inner_text()
    date = values_of(hybrid_demo.get("/api/v1/slots"))["slots"][0]["slot"]
    records = values_of(hybrid_demo.get(f"/api/v1/latest?slot={date}"))["releases"]
    release = next(each for each in records if each["cell"] == cell)
    central, local = page.locator("#cell-blend dd").all_inner_texts()
    for name, text, part in (
        ("central", central, float(release["weight"])),
        ("local", local, 1 - float(release["weight"])),
    ):
        weight, _, noise = text.removeprefix(f"{release['users'][name]}, weight ").partition(", ")
        assert float(weight) == pytest.approx(part, abs=0.0006)
        assert noise == f"epsilon 1.0, noise of {'the operator' if name == 'central' else 'each device'}"
    page.click("#show-estimates")
    expect(page.locator("#cell-blend dd")).to_have_text([central, local])
    picture(page, "demo_hybrid")
