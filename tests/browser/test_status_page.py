"""The page of `hatcast status --listen` in a browser: readable by all, in both colour schemes and on a phone."""

import pytest
from playwright.sync_api import Browser

from hatcast.agents.cli.status_page import page
from tests.browser.accessibility import serious_problems
from tests.unit.test_status_why import CLOSES, NINE, row, why


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_the_page_has_no_serious_problem_and_shows_the_silent_partition_without_scrolling(
    browser: Browser, scheme: str, width: int
) -> None:
    rows = [*(row(number, CLOSES) for number in range(12)), row(12, NINE)]
    status = {"policy": "surat-speed", "open_hats": 431, "closed_through": "2022-01-02T09:57:11+05:30"}
    shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]  # a literal
    try:
        shown.set_content(page({**status, "why": why(rows)}))
        assert serious_problems(shown) == []
        assert shown.get_by_text("partition 12: nothing since 09:00:00").bounding_box()["y"] < 400  # type: ignore[index]  # it is there
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        shown.close()
