"""`scripts/demo` as a newcomer types it, with all that it says and writes kept for a look through it."""

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hatcast.agents.demo.defaults import SPEEDUP
from tests.services.data import ROOT
from tests.services.lifecycle import free_ports

_START_S: Final = 200.0
_LOOK_S: Final = 0.1
WAITED_S: Final = (3600 + 300 + 10) / SPEEDUP  # an hour of the city, its lateness, and a tick


@dataclass
class Demo:
    """A demo that runs.

    folder        its temporary files, the worker's log among them
    first_cell_s  from its start until the API had a mean: its CPU time, and what it waited for by the clock. Not all
                  of the time by the clock: that is also of whatever else this machine does
    heard         what it has printed
    """

    url: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    printed: Path
    first_cell_s: float = 0.0
    bodies: list[bytes] = field(default_factory=list)

    def get(self, path: str) -> bytes:
        """The bytes of an answer, which are kept too."""
        with urllib.request.urlopen(self.url.rstrip("/") + path, timeout=30) as response:
            body: bytes = response.read()
        self.bodies.append(body)
        return body

    def listen(self, events: int) -> None:
        """So many events of the stream, which are kept too."""
        with urllib.request.urlopen(f"{self.url}api/v1/events", timeout=60) as stream:
            while events:
                line: bytes = stream.readline()
                assert line, "the stream ended"
                self.bodies.append(line)
                events -= line.startswith(b"event:")

    def told(self) -> Iterator[bytes]:
        """All that it has let out so far: answers, what it printed, its logs."""
        yield from self.bodies
        yield self.printed.read_bytes()
        for path in self.folder.rglob("*.log"):
            yield path.read_bytes()


@contextmanager
def run_demo(*options: str) -> Iterator[Demo]:
    """A demo, with the defaults but for these options, as soon as its map has a mean."""
    with free_ports(1) as (port,):
        pass
    with tempfile.TemporaryDirectory(prefix="hatcast-test-", dir="/tmp") as folder:
        printed = Path(folder) / "printed.txt"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                [ROOT / "scripts" / "demo", "--port", str(port), *options],
                env=os.environ | {"TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        demo = Demo(f"http://127.0.0.1:{port}/", Path(folder), process, printed)
        try:
            wait_for(lambda: _has_mean(demo), demo)
            demo.first_cell_s = cpu_s(demo.folder) + WAITED_S
            yield demo
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def cpu_s(folder: Path) -> float:
    """CPU seconds of all processes so far whose temporary files are in that folder."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is not ours
            if str(folder).encode() in (process / "environ").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(is_so: Any, demo: Demo) -> None:
    """Return once it is so. Raises AssertionError if the demo has ended, or it takes too long."""
    deadline = time.monotonic() + _START_S
    while not is_so():
        assert demo.process.poll() is None, demo.printed.read_text()
        assert time.monotonic() < deadline, demo.printed.read_text()
        time.sleep(_LOOK_S)


def _has_mean(demo: Demo) -> bool:
    try:
        found = json.loads(demo.get("/api/v1/latest"))
    except (urllib.error.URLError, ConnectionError):
        return False
    return any(release["status"] == "released" for release in found["releases"])
