"""Static files of the page, read and compressed once. No file comes from a third party, so none learns of a visit."""

import html
from pathlib import Path
from typing import Final

from aiohttp import web

from hatcast.agents.map.parameters import RequestError
from hatcast.agents.map.responses import Body

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDER: Final = Path(__file__).with_name("static")
_TITLE: Final = "{{title}}"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"  # the folder of a library names its version


class StaticFiles:
    """The files in `static/`, by URL path."""

    def __init__(self, title: str) -> None:
        """Args: `title`, of the page."""
        files = (path for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
        self._bodies = {f"/{path.relative_to(_FOLDER).as_posix()}": _body(path, title) for path in files}
        self._bodies["/"] = self._bodies.pop("/index.html")

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the catch-all route: add it after the API."""
        router.add_get("/{path:.*}", self._file)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        body = self._bodies.get(request.path)
        if body is None:
            raise RequestError(404, "not found: the map is at /, the API at /api/v1/latest")
        return body.respond(request)


def _body(path: Path, title: str) -> Body:
    content = path.read_bytes()
    if path.suffix == ".html":
        content = content.replace(_TITLE.encode(), html.escape(title).encode())
    return Body(content, _TYPES[path.suffix], _IMMUTABLE if path.is_relative_to(_FOLDER / "vendor") else "no-cache")
