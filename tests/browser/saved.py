"""Files that the page saves, and how near its picture of the map is to the map on the page."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page

DIFFERENCE = 3.0  # of 255: how the browser and its canvas smooth edges and text, also on a part of a pixel
BLOCK = 8  # pixels


def saved(page: Page, what: str, folder: Path) -> Path:
    """Save something by the menu Share, and close it."""
    page.click("#share summary")
    with page.expect_download() as download:
        page.click(what)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    page.locator("#share").evaluate("(node) => (node.open = false)")
    return path


def check_picture(page: Page, path: Path) -> None:
    """Fail unless the picture has the map as it is on the page, and a legend below it."""
    page.mouse.move(0, 0)
    page.locator(".leaflet-control-zoom").evaluate("(node) => (node.style.display = 'none')")
    box = page.locator("#map").bounding_box()
    assert box is not None
    shot = page.locator("#map").screenshot(animations="disabled")
    shown = np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"), float)
    made = Image.open(path).convert("RGB")
    scale = page.evaluate("devicePixelRatio") * max(360, math.ceil(box["width"])) / made.width
    whole = np.asarray(made.resize((round(made.width * scale), round(made.height * scale))), float)
    height, width = shown.shape[:2]
    left = (whole.shape[1] - width) // 2
    by_top = {
        top: float(np.abs(whole[top : top + height, left : left + width] - shown).mean())
        for top in range(40, min(400, whole.shape[0] - height))
    }
    top = min(by_top, key=lambda each: by_top[each])
    difference = np.abs(_coarse(whole[top : top + height, left : left + width]) - _coarse(shown))
    rows, columns = difference.shape[:2]
    assert difference.mean() < DIFFERENCE, difference.mean()
    corner = difference[-rows // 6 :, -columns // 4 :]
    assert corner.mean() < DIFFERENCE, f"with the scale and the credits: {corner.mean()}"
    below = whole[top + height + 20 :]
    assert len(below) > 60, "the legend is below the map"
    assert below.reshape(-1, 3).std(axis=0).max() > 10, "and it is drawn"


def _coarse(picture: Any) -> Any:
    """Means over blocks, in which it does not matter where in a pixel an edge is."""
    rows, columns = (size // BLOCK for size in picture.shape[:2])
    return picture[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK, 3).mean(axis=(1, 3))
