"""The files of the page, by path: HTML with the title, styles, libraries, and all modules of the page as one script."""

import html
import re
from pathlib import Path
from typing import Final

from aiohttp import web

from hatcast.agents.map.http import Body, RequestError

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDER: Final = Path(__file__).with_name("static")
SCRIPT: Final = "/page.js"
_INDEX: Final = FOLDER / "index.html"
_MODULES: Final = FOLDER / "js"
_TITLE: Final = "{{title}}"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"  # the folder of a library names its version
_IMPORT: Final = re.compile(r'import \{ (.+) \} from "\./(\w+)\.js";')
_EXPORT: Final = re.compile(r"export ((?:async )?function\*?|class|const) (\w+|\[[\w, ]+\])")


class StaticFiles:
    """The files of the page, by URL path."""

    def __init__(self, title: str) -> None:
        """Args: `title`, of the page."""
        files = (
            path for path in FOLDER.rglob("*") if path.suffix in _TYPES and path.parent != _MODULES and path != _INDEX
        )
        self._bodies = {f"/{path.relative_to(FOLDER).as_posix()}": _body(path, path.read_bytes()) for path in files}
        self._bodies["/"] = _body(_INDEX, index_page(title).encode())
        self._bodies[SCRIPT] = Body(page_script().encode(), _TYPES[".js"], "no-cache")

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the catch-all route: add it after the API."""
        router.add_get("/{path:.*}", self._file)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        body = self._bodies.get(request.path)
        if body is None:
            raise RequestError(404, "not found: the map is at /, the API at /api/v1/")
        return body.respond(request)


def index_page(title: str) -> str:
    """Return the page with its title."""
    return _INDEX.read_text(encoding="utf-8").replace(_TITLE, html.escape(title))


def _body(path: Path, content: bytes) -> Body:
    return Body(content, _TYPES[path.suffix], _IMMUTABLE if path.is_relative_to(FOLDER / "vendor") else "no-cache")


def page_script() -> str:
    """Return all modules of the page as one script: a page loads one file, and has it in one address or in itself.

    Each module is a function that returns what it exports, after those that it imports. So a module's own names stay
    its own. Only the forms of `import` and `export` that this page's modules have are known; others raise.
    """
    done: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"modules import each other: {' -> '.join([*importers, name])}")
        if name not in done:
            text = (_MODULES / f"{name}.js").read_text(encoding="utf-8")
            for _, other in _IMPORT.findall(text):
                add(other, (*importers, name))
            done[name] = _as_function(name, text)

    add("main", ())
    return '"use strict";\n' + "".join(done.values())


def _as_function(name: str, text: str) -> str:
    exported = ", ".join(names.strip("[]") for _, names in _EXPORT.findall(text))
    inside = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = module_{found[2]};", text)
    inside = _EXPORT.sub(r"\1 \2", inside)
    if unknown := re.search(r"^(import|export)\b.*$", inside, re.MULTILINE):
        raise ValueError(f"{name}.js: unknown form: {unknown[0]}")
    return f"const module_{name} = (() => {{ // {name}.js\n{inside}return {{ {exported} }};\n}})();\n"
