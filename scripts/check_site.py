"""Builds the documents strictly into a temporary folder, and looks for what a page would load from another host.

And for lists and tables that are shown as text, since the site's Markdown wants an empty line there, or four spaces.
"""

import logging
import os
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parents[1]
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("object", "data")}
LINKS = {"stylesheet", "preload", "prefetch", "preconnect", "dns-prefetch", "icon", "manifest", "modulepreload"}
FOREIGN = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)

TEXT = re.compile(r"<p>(?:(?!</p>).)*?\n((?:- |\d+\. |\|)(?:(?!</p>|\n).)*)", re.DOTALL)


class Loads(HTMLParser):
    """What a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name, value in attrs:
            loads = (tag, name) in LOADS or (
                tag == "link" and name == "href" and LINKS & set((given.get("rel") or "").split())
            )
            if loads and FOREIGN.match(value or ""):
                self.foreign.append(value or "")


def problems(folder: Path) -> list[str]:
    """Everything that a page or a style sheet below `folder` loads from another host, and lists that are none."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".html":
            page, text = Loads(), path.read_text(encoding="utf-8")
            page.feed(text)
            urls = page.foreign
            found += [f"{path.relative_to(folder)} shows a list as text: {line}" for line in TEXT.findall(text)]
        elif path.suffix in (".css", ".svg"):
            urls = IMPORTED.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        found += [f"{path.relative_to(folder)} loads {url}" for url in urls]
    return found


def main() -> None:
    """Exit 1 with what is wrong."""
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # material's notice about a product of its makers
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=folder))
        except Abort:
            sys.exit("the documents do not build: see above")
        if found := problems(Path(folder)):
            sys.exit("\n".join(found))
    print("the documents build, and load nothing from elsewhere")


if __name__ == "__main__":
    main()
