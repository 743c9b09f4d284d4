"""Everything that processes of hatcast write, but for what is an input or shows raw data on purpose.

Not searched is what holds readings by design, inside the trust boundary (docs/limits.md, Of the operator):

telemetry        the readings themselves
reports          devices' noisy means, and cluster-answers their noisy vectors
Redis            contributions, inside the trust boundary
contributions    and `dump telemetry`: commands that say "reads raw data, not private"
a ledger file    of `batch`: who was in which HAT; the state file of a device: its own means
a basemap        and a timetable, which are the operator's files
"""

import gzip
import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.health import address
from tests.leaks.search import Output
from tests.services import Received

OFFSETS: Final = "__consumer_offsets"
_MAP: Final = re.compile(r'"url": "(http://[\d.:]+/)"')
_VIEWS: Final = ("latest", "estimates", "continual", "running", "queries", "clusterings", "slots", "status", "awaited")
_FORMATTED: Final = ("latest", "estimates", "continual", "running", "queries", "clusterings")


def of_topics(pipeline: Pipeline) -> Iterator[Output]:
    """Every topic that is no input: keys, values, headers and timestamps, aborted transactions too."""
    topics = pipeline.settings.topics
    inputs = {topics.telemetry, topics.reports, topics.cluster_answers}
    for name in sorted(pipeline.kafka.topics()):
        if name.startswith(pipeline.name) and name not in inputs:
            records = pipeline.kafka.read(name, committed=False)
            yield Output(f"topic {name.removeprefix(pipeline.name)}", b"\n".join(map(_bytes_of, records)))
    commits = pipeline.kafka.read(OFFSETS, committed=False)
    ours = [each for each in commits if pipeline.name.encode() in (each.key or b"")]
    yield Output(f"topic {OFFSETS}", b"\n".join(each.value or b"" for each in ours))


def _bytes_of(record: Received) -> bytes:
    headers = [part for name, value in record.headers for part in (name.encode(), value or b"")]
    return b"\n".join((record.key or b"", record.value or b"", *headers, b"%d" % record.timestamp_ms))


def of_files(folder: Path) -> Iterator[Output]:
    """Every log and every output of a command, and the exported files, also what their columns hold."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".log", ".out", ".err", ".json", ".csv", ".geojson"):
            yield Output(f"file {path.relative_to(folder)}", path.read_bytes())
        elif path.suffix == ".parquet":
            name = f"file {path.relative_to(folder)}"
            yield Output(name, path.read_bytes(), columnar=True)
            rows = json.dumps(pq.read_table(path).to_pylist(), default=str)
            yield Output(f"{name}, its rows", f"{rows}\n{pq.read_schema(path)}".encode())


def of_processes(processes: Iterable[WorkerProcess]) -> Iterator[Output]:
    """The lines of a list of processes."""
    for each in processes:
        if each.running:
            shown = Path(f"/proc/{each.pid}/cmdline").read_bytes() + Path(f"/proc/{each.pid}/comm").read_bytes()
            yield Output(f"process {each.pid}", shown.replace(b"\0", b" "))


def of_operators(process: WorkerProcess) -> Iterator[Output]:
    """`/metrics` and the health checks of a process."""
    where = address(process)
    assert where is not None, process.log_tail()
    for path in ("metrics", "readyz", "livez", "nothing"):
        yield _fetched(f"http://{where}/{path}", f"{process.log.name} /{path}")


def map_of(display: WorkerProcess) -> str | None:
    """The address of a map, once it is in its log."""
    found = _MAP.search(display.logged())
    return None if found is None else found[1]


def of_map(display: WorkerProcess, policy: str, cells: Iterable[str]) -> Iterator[Output]:
    """Every view of the map in every format, and its errors."""
    where = map_of(display)
    assert where is not None, display.log_tail()
    paths = ["", "livez", "readyz", "api/v1/openapi.json", "api/v1/surroundings"]
    paths += [f"api/v1/{view}?policy={policy}" for view in _VIEWS if view not in ("status", "awaited")]
    paths += ["api/v1/status", "api/v1/awaited"]
    paths += [f"api/v1/{view}?policy={policy}&format={form}" for view in _FORMATTED for form in ("csv", "geojson")]
    for cell in cells:
        paths += [f"api/v1/cells/{cell}{kind}?policy={policy}" for kind in ("", "/estimates", "/continual", "/queries")]
    paths += ["api/v1/latest?policy=nobody", "api/v1/latest?slot=never", "api/v1/cells/x", "api/v1/nothing", "a/b?c=d"]
    for path in paths:
        yield _fetched(f"{where}{path}", f"map /{path}")


class Viewer:
    """A viewer of the map: keeps what its event stream sends from now on."""

    def __init__(self, display: WorkerProcess) -> None:
        self._stream = urllib.request.urlopen(f"{map_of(display)}api/v1/events", timeout=300.0)
        self._read = bytearray(f"{self._stream.status}\n{self._stream.headers}".encode())
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def has(self, name: str) -> bool:
        """Whether an event of this name was sent."""
        return b"event: %b\n" % name.encode() in self._read

    def output(self) -> Output:
        """Return what was sent, once the map has ended."""
        self._thread.join()
        return Output("map, events", bytes(self._read))

    def _follow(self) -> None:
        with closing(self._stream), suppress(OSError, http.client.HTTPException):
            while line := self._stream.readline():
                self._read += line


def _fetched(url: str, name: str) -> Output:
    """The answer with its headers, also if it is an error."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    try:
        answer = urllib.request.urlopen(request, timeout=60.0)
    except urllib.error.HTTPError as error:
        answer = error
    with closing(answer):
        body: bytes = answer.read()
        packed = answer.headers.get("Content-Encoding") == "gzip"
        head = f"{answer.status}\n{answer.headers}".encode()
        return Output(name, head + (gzip.decompress(body) if packed else body))
