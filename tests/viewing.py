"""What a viewer of the map makes of its stream."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import ClientResponse, ClientSession


class Page:
    """What a page knows after the events that it got, as static/js/model.js makes it; and the last id."""

    def __init__(self) -> None:
        self.releases: dict[str, bytes] = {}
        self.estimates: dict[str, bytes] = {}
        self.running: dict[tuple[str, str], bytes] = {}
        self.continual: dict[str, bytes] = {}
        self.budgets: dict[str, bytes] = {}
        self.slots: list[str] = []
        self.seen = ""
        self.resets = 0

    def take(self, text: bytes) -> None:
        """Whole events."""
        for block in text.decode().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in block.splitlines())
            self._take(fields.get("event", ""), fields.get("data", "").encode())
            self.seen = fields.get("id", self.seen)

    def _take(self, name: str, data: bytes) -> None:
        match name:
            case "reset":
                self.releases, self.estimates, self.budgets, self.resets = {}, {}, {}, self.resets + 1
                self.running, self.continual = {}, {}
            case "slots":
                told = json.loads(data)
                self.slots = [slot["slot"] for slot in told["slots"]]
                self.releases = _of(self.slots, self.releases)
                self.estimates = _of([slot["slot"] for slot in told["estimates"]["slots"]], self.estimates)
                self.continual = _of([slot["slot"] for slot in told["continual"]["slots"]], self.continual)
                cells = {(each["name"], cell) for each in told["running"] for cell in each["cells"]}
                self.running = {key: record for key, record in self.running.items() if key in cells}
            case "release":
                self.releases[json.loads(data)["release_id"]] = data
            case "estimate":
                self.estimates[json.loads(data)["estimate_id"]] = data
            case "running":
                read = json.loads(data)
                self.running[read["name"], read["cell"]] = data
            case "continual":
                self.continual[json.loads(data)["release_id"]] = data
            case "budget":
                self.budgets[json.loads(data)["date"]] = data
            case _:
                pass  # what the page shows of its connection


def _of(slots: list[str], records: dict[str, bytes]) -> dict[str, bytes]:
    return {name: record for name, record in records.items() if name.split("/")[1] in slots}


class Listener:
    """A viewer of a stream that is open."""

    def __init__(self, response: ClientResponse, unpack: Callable[[bytes], bytes]) -> None:
        self._response = response
        self._unpack = unpack
        self._left = b""
        self.page = Page()

    async def until(self, text: bytes) -> None:
        """Read until this has come, in a whole event."""
        whole = b""
        while text not in whole:
            data = await asyncio.wait_for(self._response.content.readany(), 60)
            assert data, "the stream ended"
            events, end, self._left = (self._left + self._unpack(data)).rpartition(b"\n\n")
            self.page.take(events)
            whole += events + end


@asynccontextmanager
async def listening(
    client: ClientSession, url: str, seen: str = "", *, packed: bool = True, kind: str = ""
) -> AsyncIterator[Listener]:
    """A viewer whose stream is compressed, as a browser's is; of one `kind` or of all."""
    headers = {"Accept-Encoding": "gzip" if packed else "identity"} | ({"Last-Event-ID": seen} if seen else {})
    async with client.get(f"{url}/api/v1/events" + (f"?kind={kind}" if kind else ""), headers=headers) as response:
        assert response.status == 200
        assert (response.headers.get("Content-Encoding") == "gzip") == packed
        yield Listener(response, zlib.decompressobj(31).decompress if packed else bytes)
