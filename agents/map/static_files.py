"""The page's own files, read once and compressed once. Nothing comes from anywhere else, so nobody learns who looks."""

import html
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web

from hatcast.agents.map.parameters import Wrong
from hatcast.agents.map.responses import Body

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_TITLE: Final = "{{title}}"
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # the folder of a library names its version


class Files:
    """What lies in `static/`, by path."""

    def __init__(self, title: str) -> None:
        """Args: `title`, of the page."""
        self._bodies = {
            path: _body(path, entry, title) for path, entry in _walk(resources.files(__package__) / "static", "/")
        }
        self._bodies["/"] = self._bodies.pop("/index.html")

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Every path that the API has not."""
        router.add_get("/{path:.*}", self._file)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        body = self._bodies.get(request.path)
        if body is None:
            raise Wrong(404, "there is nothing here: the map is at /, the API at /api/v1/latest")
        return body.answer(request)


def _walk(folder: Traversable, at: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{at}{entry.name}/")
        elif any(entry.name.endswith(ending) for ending in TYPES):
            found.append((at + entry.name, entry))
    return found


def _body(path: str, entry: Traversable, title: str) -> Body:
    content = entry.read_bytes()
    if path.endswith(".html"):
        content = content.replace(_TITLE.encode(), html.escape(title).encode())
    kind = next(kind for ending, kind in TYPES.items() if path.endswith(ending))
    return Body(content, kind, _FOR_EVER if path.startswith("/vendor/") else "no-cache")
