"""axe-core on a page: what it finds serious."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def serious_problems(page: Page) -> list[tuple[str, list[str]]]:
    """Each serious or critical violation, with the beginning of each element that has it."""
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"]])
        for each in Axe().run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
