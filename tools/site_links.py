"""MkDocs hook for links to files outside docs/.

In the repository such a link opens the file. The site has no source files, so it shows the link's text only.
"""

import re
from posixpath import dirname, join, normpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links to files outside docs/ replaced by their text."""
    del config, files
    return without_outside_links(markdown, dirname(page.file.src_uri))


def without_outside_links(markdown: str, folder: str) -> str:
    """Replace links to files outside docs/ by their text, on a page in `folder`, which is relative to docs/."""

    def replaced(link: re.Match[str]) -> str:
        target = normpath(join(folder, link[2]))
        return link[1] if target.startswith("../") else link[0]

    return _LINK.sub(replaced, markdown)
