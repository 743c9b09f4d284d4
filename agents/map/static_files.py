"""Static files of the page, read and compressed once. No file comes from a third party, so none learns of a visit."""

import html
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web

from hatcast.agents.map.parameters import RequestError
from hatcast.agents.map.responses import Body

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_TITLE: Final = "{{title}}"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"  # the folder of a library names its version


class StaticFiles:
    """The files in `static/`, by URL path."""

    def __init__(self, title: str) -> None:
        """Args: `title`, of the page."""
        self._bodies = {
            path: _body(path, entry, title) for path, entry in _walk(resources.files(__package__) / "static", "/")
        }
        self._bodies["/"] = self._bodies.pop("/index.html")

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the catch-all route: add it after the API."""
        router.add_get("/{path:.*}", self._file)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        body = self._bodies.get(request.path)
        if body is None:
            raise RequestError(404, "not found: the map is at /, the API at /api/v1/latest")
        return body.respond(request)


def _walk(folder: Traversable, at: str) -> list[tuple[str, Traversable]]:
    files: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            files += _walk(entry, f"{at}{entry.name}/")
        elif any(entry.name.endswith(ending) for ending in TYPES):
            files.append((at + entry.name, entry))
    return files


def _body(path: str, entry: Traversable, title: str) -> Body:
    content = entry.read_bytes()
    if path.endswith(".html"):
        content = content.replace(_TITLE.encode(), html.escape(title).encode())
    kind = next(kind for ending, kind in TYPES.items() if path.endswith(ending))
    return Body(content, kind, _IMMUTABLE if path.startswith("/vendor/") else "no-cache")
