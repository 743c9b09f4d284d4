"""The page of `hatcast status --listen`: the pipeline with the numbers of `--why`, on an address for operators.

It has no script: the browser asks again every few seconds. `/status.json` has what it is drawn from.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from html import escape
from typing import Any, Final

import msgspec
from aiohttp import web

from hatcast.agents.config.tables import Address
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.agents.monitoring.server import HEADERS, Listener, log, os_reason
from hatcast.stream.errors import HatcastError

_AGAIN_S: Final = 5
_MAX_CONNECTIONS: Final = 50
_SHOWN: Final = 60  # partitions; those that are waited for come first
_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Refresh": str(_AGAIN_S),
    "Referrer-Policy": "no-referrer",
}
_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --line: #8888; --bad: #b3261e; --good: #1b7f4b }
@media (prefers-color-scheme: dark) { :root { --back: #121212; --bad: #ff8a80; --good: #6fd79b } }
body { background: var(--back); font: 16px/1.45 system-ui, sans-serif }
body { margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: .95rem; margin: 0 } p { margin: .3rem 0 }
ol { display: flex; flex-wrap: wrap; gap: 2rem; list-style: none; margin: 1.5rem 0; padding: 0 }
li { border: 2px solid var(--line); border-radius: 8px; flex: 1 1 9rem; padding: .6rem .8rem; position: relative }
li + li::before { content: "\\2192"; font-size: 1.4rem; left: -1.75rem; position: absolute; top: 35% }
.stalled { border: 4px solid var(--bad) }
.stalled h2::after { color: var(--bad); content: "\\2716  waits here"; display: block }
.late td, .late th { color: var(--bad); font-weight: 600 }
table { border-collapse: collapse; width: 100% } caption { font-weight: 600; text-align: left }
td, th { border-top: 1px solid var(--line); font-weight: 400; padding: .25rem .6rem; text-align: left }
td.n { font-variant-numeric: tabular-nums; text-align: right }
svg { display: block; height: 14px; width: 100% } .track { fill: var(--line) } .bar { fill: var(--good) }
.late .bar { fill: var(--bad) }
@media (max-width: 32rem) { tr > :nth-child(4) { display: none } }
"""


def page(status: dict[str, Any]) -> str:
    """Render a status that has `why` as HTML."""
    why = status["why"]
    rows = sorted(why["partitions"], key=lambda row: row["state"] in ("ready", "current"))
    more = "" if len(rows) <= _SHOWN else f"<p>and {len(rows) - _SHOWN} more partitions</p>"
    reasons = "".join(f"<p>&#9656; {escape(reason)}</p>" for reason in why["waits_for"])
    title = escape(f"{why['slot']} of {status['policy']}: {why['state']}")
    boxes = "".join(
        f"<li{' class=stalled' if stage in why['stages'] else ''}><h2>{name}</h2>{escape(text)}</li>"
        for stage, name, text in _boxes(status)
    )
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body>"
        f"<main><h1>{title}</h1>{reasons}<p>It closes at {escape(why['closes'])}; it is {escape(why['now'])}.</p>"
        f"<ol>{boxes}</ol><table><caption>Partitions, from the hour's start to its close</caption>"
        f"<tr><th>partition<th>state<th>records behind<th>watermark</tr>"
        f"{''.join(_row(why, row) for row in rows[:_SHOWN])}</table>{more}</main></body></html>"
    )


def _boxes(status: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield stage, title and text of each step, in the order of data flow."""
    why, rows, last = status["why"], status["why"]["partitions"], status["why"]["last_release"]
    silent = sum(row["state"] == "silent" for row in rows)
    behind = sum(row["behind"] or 0 for row in rows)
    ready = sum(row["state"] == "ready" for row in rows)
    after = "" if last is None or last["after_end_s"] is None else f", {last['after_end_s']:.0f} s after its end"
    yield "feed", "Feeds", f"{len(rows)} partitions, {silent} silent"
    yield "fold", "Workers fold", f"{behind} records behind; {ready} of {len(rows)} partitions are past the hour"
    yield (
        "",
        "Redis",
        f"{status['open_hats']} open HATs; closed through {(status['closed_through'] or 'nothing yet')[:16]}",
    )
    budget = why["budget"]
    yield (
        "release",
        "Release",
        f"{why['pending']} to come; budget left {budget['left']:g} of {budget['limit']:g} on {budget['date']}",
    )
    yield "", "Published", "nothing yet" if last is None else f"{why['published']} of it; last: {last['slot']}{after}"


def _row(why: dict[str, Any], row: dict[str, Any]) -> str:
    late = "" if row["state"] in ("ready", "current") else " class=late"
    begin, end = (_ms(why[name]) for name in ("start", "closes"))
    share = 0.0 if row["clock"] is None else min(1.0, max(0.0, (row["clock"] - begin) / (end - begin)))
    behind = "" if row["behind"] is None else f"{row['behind']:,}"
    return (
        f'<tr{late}><th scope="row">{escape(row["name"])}<td>{escape(row["text"])}<td class="n">{behind}<td>'
        f'<svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="{share:.0%} of the hour">'
        f'<rect class="track" width="100" height="4"/><rect class="bar" width="{100 * share:.1f}" height="4"/></svg>'
    )


def _ms(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


async def serve(listen: Address, hour: str, read: Callable[[str], dict[str, Any]]) -> None:
    """Serve the page until Ctrl-C or SIGTERM. Raises HatcastError if the address cannot be bound.

    hour    shown at `/`; `/?hour=09:00` shows another
    read    returns the status with `why`, or raises HatcastError
    """
    configure_logs("info")
    lock = asyncio.Lock()  # clients wait for each other: a look asks Kafka and Redis

    async def answer(request: web.Request) -> web.Response:
        try:
            async with lock:
                found = await asyncio.to_thread(read, request.query.get("hour", hour))
        except HatcastError as error:
            return web.Response(status=503, text=f"{error}\n", headers=_HEADERS)
        if request.path != "/":
            return web.Response(body=msgspec.json.encode(found), content_type="application/json", headers=_HEADERS)
        return web.Response(text=page(found), content_type="text/html", headers=_HEADERS)

    app = web.Application()
    app.router.add_get("/", answer)
    app.router.add_get("/status.json", answer)
    listener = Listener(app, _MAX_CONNECTIONS, _HEADERS)
    stopping = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    try:
        log.info("serving the status of the pipeline", url=f"http://{await listener.start(listen)}/")
        await stopping.wait()
    except OSError as error:
        raise HatcastError(
            f"--listen: cannot listen on {listen} ({os_reason(error)}): name another address, or port 0"
        ) from None
    finally:
        await listener.stop()
