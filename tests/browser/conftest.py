"""The demo, the day and the browser: each is started once, by the one file that needs it. Every page is watched.

Not for the session: Playwright keeps an event loop running, in which no test after it could call `asyncio.run`.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import open_chromium
from tests.browser.day import Day, open_day
from tests.browser.demo import Demo, run_demo
from tests.browser.estimated import deferred, estimates, settlement
from tests.services.data import ROOT

ARTIFACTS: Final = ROOT / ".artifacts" / "map"  # .ci/run says where they are
PATIENCE_MS: Final = 60_000

OpenPage = Callable[..., Page]
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def demo(browser: Browser) -> Iterator[Demo]:
    assert browser.is_connected()  # where there is no browser no demo is needed
    with run_demo() as running:
        yield running


@pytest.fixture(scope="module")
def day(browser: Browser) -> Iterator[Day]:
    assert browser.is_connected()
    with tempfile.TemporaryDirectory(prefix="hatcast-test-", dir="/tmp") as folder, open_day(Path(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def estimated_day(browser: Browser) -> Iterator[Day]:
    assert browser.is_connected()
    more = [*estimates(), *deferred(), settlement()]
    with (
        tempfile.TemporaryDirectory(prefix="hatcast-test-", dir="/tmp") as folder,
        open_day(Path(folder), more) as running,
    ):
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a map; at the test's end it has asked nobody else, set no cookie, and met no error that was not foreseen.

    foreseen   what the console may say, such as that a server does not answer which the test has stopped
    within     the map's address, if `url` has a query
    bodies     gets the bytes of every answer
    """
    contexts: list[tuple[Any, str, list[str], list[str], str]] = []

    def open_(
        url: str, *, foreseen: str = "", within: str = "", bodies: list[bytes] | None = None, **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}} | options)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        asked: list[str] = []
        said: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        if bodies is not None:
            page.on("requestfinished", lambda request: _keep(request, bodies))
        contexts.append((context, within or url, asked, said, foreseen))
        page.goto(url)
        page.wait_for_selector("path.cell[data-mean]:not([data-mean=''])")
        return page

    yield open_
    for context, url, asked, said, foreseen in contexts:
        cookies, errors = context.cookies(), list(said)  # a request that the closing cuts off would be one more error
        context.close()
        assert [each for each in asked if not each.startswith((url, "data:", "blob:"))] == []  # these ask nobody
        assert [each for each in errors if not foreseen or foreseen not in each] == []
        assert cookies == []


def _keep(request: Any, bodies: list[bytes]) -> None:
    if "/events" not in request.url and request.response().status == 200:
        bodies.append(request.response().body())


def picture(page: Page, name: str, *, whole: bool = False) -> Path:
    """A screenshot, kept for whoever looks at a run."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    path = ARTIFACTS / f"{name}.png"
    page.screenshot(path=path, full_page=whole, animations="disabled")
    return path
