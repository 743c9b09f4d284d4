"""MkDocs hook for links to files outside docs/, and for addresses of pages that were merged into others.

In the repository a link to a file outside docs/ opens it. The site has no source files, so it shows the link's text
only. `PAGES` are the exceptions: they become pages of the site. `extra.redirects` of mkdocs.yml
has the old addresses: page -> page, or page#heading. A heading in the address that a reader follows is kept.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# As seen from docs/ -> pages.
PAGES: Final = {
    "../CODE_OF_CONDUCT.md": "conduct.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../GOVERNANCE.md": "governance.md",
    "../SECURITY.md": "security.md",
}
_REDIRECT: Final = """<!doctype html>
<meta charset="utf-8">
<title>Moved</title>
<script>location.replace("{url}" + (location.hash || "{heading}"))</script>
<meta http-equiv="refresh" content="1; url={url}{heading}">
<a href="{url}{heading}">Moved</a>
"""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `PAGES`, with their links as seen from docs/, and the redirects."""
    for source, name in PAGES.items():
        text = (Path(config.docs_dir) / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK.sub(_as_in_docs, text)))
    for old, new in config.extra["redirects"].items():
        page, _, heading = new.partition("#")
        target = files.get_file_from_path(page)
        if target is None or files.get_file_from_path(old) is not None:
            raise PluginError(f"extra.redirects of mkdocs.yml: {old}: {new}")
        address = f"{old.removesuffix('.md')}/index.html"
        url = relpath(target.dest_uri, dirname(address)).removesuffix("index.html") or "."
        files.append(File.generated(config, address, content=_REDIRECT.format(url=url, heading=f"#{heading}")))
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
