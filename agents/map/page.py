"""The page: the files that a server sends, and the same page as one file with the answers of the API inside.

A server sends HTML with the title, styles, libraries, and all modules of the page as one script. The one file asks no
server for anything.
"""

import base64
import gzip
import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.http import Body, RequestError
from hatcast.agents.map.newest import PolicyAnswers, PolicyRunning
from hatcast.agents.map.record import RecordKind
from hatcast.agents.map.surroundings import Surroundings

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


# Scripts and styles are the page's own, images are drawn by it: whatever would be fetched is refused by the browser.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
# Only a server can say whether it is reached, and write CSV and GeoJSON.
_STYLE: Final = '#connection, #share-hint, a[href*="format="] { display: none; }'
_STYLESHEET: Final = re.compile(r'<link rel="stylesheet" href="([^"]+)"( media="print")?>')
_ICON: Final = re.compile(r'href="(icon\.svg)"')
_SCRIPT: Final = re.compile(r'<script src="([^"]+)" defer></script>')
_WITHOUT_SCRIPTS: Final = re.compile(r"<noscript>.*?</noscript>", re.DOTALL)


def page_with(feed: Feed, title: str, surroundings: Surroundings) -> bytes:
    """Return the page with a feed's records in it, and with routes and stops around them; without a base map."""
    page = index_page(title)
    data = base64.b64encode(gzip.compress(_published(feed, surroundings), mtime=0)).decode()
    made: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
        (_WITHOUT_SCRIPTS, lambda _: "<noscript>This map needs JavaScript.</noscript>"),
        (_STYLESHEET, lambda found: f"<style{found[2] or ''}>{_text(found[1])}</style>"),
        (_ICON, lambda found: f'href="data:image/svg+xml,{quote(_text(found[1]))}"'),
        (_SCRIPT, lambda found: _scripts(data) if f"/{found[1]}" == SCRIPT else f"<script>{_text(found[1])}</script>"),
    )
    for pattern, replacement in made:
        page = pattern.sub(replacement, page)
    if (hour := _busiest_hour(feed)) is not None:
        page = page.replace("<body>", f'<body data-first="?hour={hour}">', 1)
    head = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    return page.replace("</head>", f"<style>{_STYLE}</style>\n</head>").replace("<head>", f"<head>\n{head}", 1).encode()


def _busiest_hour(feed: Feed) -> str | None:
    """Return the hour of the last date that has most releases: a day's last one is often nearly empty."""
    stored = feed.policy(RecordKind.RELEASES, feed.select_policy(None))
    slots = [] if stored is None else stored.in_order()
    of_last_date = [each for each in reversed(slots) if each.slot[:10] == slots[-1].slot[:10]]
    return max(of_last_date, key=lambda each: len(each.records)).slot if of_last_date else None


def _scripts(data: str) -> str:
    """Return the page's script, after the one that has its answers. A module begins when the page is read."""
    own = Path(__file__).with_suffix(".js").read_text("utf-8")
    return (
        f'<script type="application/gzip" id="published">{data}</script>\n'
        f'<script>{own}</script>\n<script type="module">{page_script()}</script>'
    )


def _text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _published(feed: Feed, surroundings: Surroundings) -> bytes:
    """Return the published records by policy and kind, as JSON. Each is a string: the page shows its digits."""
    answers = {"surroundings": surroundings.overview, "routes": surroundings.routes, "stops": surroundings.stops}
    return msgspec.json.encode(
        {
            "first": feed.select_policy(None),
            "policies": {name: _policy(feed, name) for name in feed.names()},
            "others": {path: body.content.decode() for path, body in answers.items() if body is not None},
        }
    )


def _policy(feed: Feed, name: str) -> dict[str, Any]:
    kept = {kind: feed.policy(kind, name) for kind in feed.histories}
    records: dict[str, list[bytes]] = {
        "running": feed.running.policies.get(name, PolicyRunning()).records(),
        "queries": feed.answers.policies.get(name, PolicyAnswers()).records(),
    }
    for kind, stored in kept.items():
        records[kind] = [] if stored is None else [each for slot in stored.in_order() for each in slot.in_order()]
    return {
        "events": feed.initial_chunk(name, None).plain.decode(),
        "records": {kind: [each.decode() for each in found] for kind, found in records.items()},
    }
