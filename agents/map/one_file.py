"""The map as one file: the live map's page, with what its API would answer inside. It asks no server for anything."""

import base64
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from hatcast.agents.map.feed import Feed
from hatcast.agents.map.newest import PolicyAnswers, PolicyRunning
from hatcast.agents.map.page import FOLDER, SCRIPT, index_page, page_script
from hatcast.agents.map.record import RecordKind
from hatcast.agents.map.rendering import slot_records
from hatcast.agents.map.surroundings import Surroundings

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
        records[kind] = [] if stored is None else [each for slot in stored.in_order() for each in slot_records(slot)]
    return {
        "events": feed.initial_chunk(name, None).plain.decode(),
        "records": {kind: [each.decode() for each in found] for kind, found in records.items()},
    }
