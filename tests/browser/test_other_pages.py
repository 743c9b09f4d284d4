"""Pages of other origins, in a browser: those that `[display]` names read the API and frame the map, others cannot."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.day import Day, open_day

READ: Final = """async ([url, headers]) => {
    try {
        const response = await fetch(url, {headers});
        return {status: response.status, tag: response.headers.get("ETag"), body: await response.text()};
    } catch (error) {
        return String(error);
    }
}"""
FOLLOW: Final = """url => new Promise(resolve => {
    const source = new EventSource(url);
    source.addEventListener("ready", () => { source.close(); resolve("ready"); });
    source.addEventListener("error", () => { source.close(); resolve("error"); });
})"""
FRAME: Final = """url => {
    const frame = document.createElement("iframe");
    frame.src = url;
    document.body.append(frame);
    return new Promise(resolve => frame.addEventListener("load", () => resolve(true)));
}"""


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another page</title><body>")

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def other_pages() -> Iterator[int]:
    """A web server of other origins: 127.0.0.1 and localhost at its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def city(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Day, int]]:
    """A map that names the origin 127.0.0.1, and the port of the other pages."""
    assert browser.is_connected()
    with other_pages() as port:
        listed = [f"http://127.0.0.1:{port}"]
        display = {"allow_origins": listed, "allow_framing": listed}
        with open_day(tmp_path_factory.mktemp("city"), display=display) as day:
            yield day, port


@contextmanager
def page_at(browser: Browser, host: str, port: int) -> Iterator[Page]:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"http://{host}:{port}/")
        yield page
    finally:
        context.close()


def test_a_listed_page_reads_every_format_and_follows_changes(browser: Browser, city: tuple[Day, int]) -> None:
    day, port = city
    with page_at(browser, "127.0.0.1", port) as page:
        for name, begin in (("json", '{"policy"'), ("geojson", '{"type":"FeatureCollection"'), ("csv", "release_id,")):
            url = f"{day.url}api/v1/latest?format={name}"
            read = page.evaluate(READ, [url, {}])
            assert (read["status"], read["body"].startswith(begin)) == (200, True)
            assert page.evaluate(READ, [url, {"If-None-Match": read["tag"]}])["status"] == 304  # after a preflight
        assert page.evaluate(READ, [f"{day.url}api/v1/latest?slot=9", {}])["status"] == 400
        assert page.evaluate(FOLLOW, f"{day.url}api/v1/events") == "ready"


def test_another_page_reads_nothing(browser: Browser, city: tuple[Day, int]) -> None:
    day, port = city
    with page_at(browser, "localhost", port) as page:
        assert "TypeError" in page.evaluate(READ, [f"{day.url}api/v1/latest", {}])
        assert "TypeError" in page.evaluate(READ, [f"{day.url}api/v1/latest", {"If-None-Match": '"x"'}])
        assert page.evaluate(FOLLOW, f"{day.url}api/v1/events") == "error"


def test_a_listed_page_frames_the_map_and_another_does_not(browser: Browser, city: tuple[Day, int]) -> None:
    day, port = city
    with page_at(browser, "127.0.0.1", port) as page:
        page.evaluate(FRAME, day.url)
        page.frame_locator("iframe").locator("path.cell[data-mean]:not([data-mean=''])").first.wait_for(timeout=30_000)
    with page_at(browser, "localhost", port) as page:
        blocked: list[str] = []
        page.on("console", lambda message: blocked.append(message.text))
        page.evaluate(FRAME, day.url)
        assert page.frame_locator("iframe").locator("path.cell").count() == 0
        assert any("frame-ancestors" in each for each in blocked)
