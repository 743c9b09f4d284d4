"""A Chromium, which asks nobody anything of its own accord."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from playwright._impl._driver import compute_driver_executable
from playwright.sync_api import Browser, Error, sync_playwright

from tests.services.absent import ServiceAbsent, find_program

_QUIET: Final = (
    "--no-sandbox",  # tests may run as root, for which Chromium has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_driver() -> None:
    """The program behind Playwright. Raises ServiceAbsent where the machine lacks a library of it."""
    program, _ = compute_driver_executable()
    if subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        raise ServiceAbsent("no driver for a browser", "libatomic1")


def find_browser() -> str:
    """The system's, best without what draws windows: it starts in half the time. Raises ServiceAbsent without any."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return find_program(*names, package="chromium-headless-shell")


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """The system's browser, else the one that Playwright has fetched. Raises ServiceAbsent where neither starts."""
    find_driver()
    path = None
    with suppress(ServiceAbsent):
        path = find_browser()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=list(_QUIET))
        except Error as error:
            if path is None:  # nothing was fetched, or the machine lacks its libraries
                raise ServiceAbsent("no Chromium", "chromium-headless-shell") from error
            raise
        try:
            yield browser
        finally:
            browser.close()
