"""MkDocs hook for links to files outside docs/.

In the repository such a link opens the file. The site has no source files, so it shows the link's text only.
CONTRIBUTING.md and SECURITY.md are the exceptions: they become pages of the site.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# As seen from docs/ -> pages.
PAGES: Final = {"../CONTRIBUTING.md": "contributing.md", "../SECURITY.md": "security.md"}
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add CONTRIBUTING.md and SECURITY.md to the pages, with their links as seen from docs/."""
    for source, name in PAGES.items():
        text = (Path(config.docs_dir) / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK.sub(_as_in_docs, text)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links to files outside docs/ replaced by their text."""
    del config, files
    return without_outside_links(markdown, dirname(page.file.src_uri))


def without_outside_links(markdown: str, folder: str) -> str:
    """Replace links to files outside docs/ by their text, on a page in `folder`, which is relative to docs/."""

    def replaced(link: re.Match[str]) -> str:
        target = normpath(join(folder, link[2]))
        if (page := PAGES.get(target)) is not None:
            return f"[{link[1]}]({relpath(page, folder or '.')}{link[3] or ''})"
        return link[1] if target.startswith("../") else link[0]

    return _LINK.sub(replaced, markdown)


def _as_in_docs(link: re.Match[str]) -> str:
    return f"[{link[1]}]({relpath(link[2], 'docs')}{link[3] or ''})"
