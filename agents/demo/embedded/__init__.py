"""Embedded Kafka and Redis, without an installation, for the demo and for tests that need no durability.

Kafka is librdkafka's mock cluster; Redis is a real server, Valkey of `hatcast[demo]` or the one on PATH. Both run in a
child process, which ends with this process, however that ends, and deletes its folder.

The mock cluster does not support: admin calls, compaction, isolation of aborted transactions, checksums of
transaction markers (aiokafka consumers set `check_crcs` to False), and more than 5 MiB per partition
(agents/sources/replay.py slows a feed down). Every topic has 4 partitions and is created at its first use.
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
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hatcast.agents.clock import monotonic_s
from hatcast.stream.errors import HatcastError

PARTITIONS: Final = 4  # per topic of the mock cluster: librdkafka's default, which Python cannot change
_START_S: Final = 30.0
_STOP_S: Final = 5.0
_FOLDER_MAX: Final = 60  # bytes; the path of a Unix socket may have 104 to 108, with our part of it
_SOURCE_ROOT: Final = Path(str(files("hatcast"))).resolve().parent


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the services: `host:port` of Kafka on 127.0.0.1, URL of a Unix socket for Redis."""

    kafka: str
    redis: str


class Services:
    """Embedded services for the length of a `with` block. They start in half a second: see `wait`.

    folder   temporary folder, private to this user, deleted at the end
    """

    def __init__(self, topics: Sequence[str]) -> None:
        """Args: `topics`, created before `wait` returns."""
        self._topics = topics
        self._addresses: Addresses | None = None

    def __enter__(self) -> Self:
        default = tempfile.gettempdir()
        parent = default if len(default) <= _FOLDER_MAX else "/tmp"  # noqa: S108 - mkdtemp's folder is private
        self.folder = Path(tempfile.mkdtemp(prefix="hatcast-embedded-", dir=parent))
        self._process = start_child("hatcast.agents.demo.embedded", str(self.folder), *self._topics)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end_child(self._process, _STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self) -> Addresses:
        """Wait until the services listen and return their addresses. Raises HatcastError if they do not start."""
        if self._addresses is None:
            self._addresses = self._read_addresses()
        return self._addresses

    def _read_addresses(self) -> Addresses:
        output = self._process.stdout
        deadline = monotonic_s() + _START_S
        while output is not None and monotonic_s() < deadline:
            if select.select([output], [], [], 0.2)[0]:
                line = output.readline()
                message = json.loads(line) if line else {"problem": "their process ended"}
                if "problem" in message:
                    raise HatcastError(f"the embedded services did not start: {message['problem']}")
                return Addresses(message["kafka"], message["redis"])
        raise HatcastError(f"the embedded services did not start within {_START_S:g} s: is this machine very busy?")

    def check(self) -> None:
        """Raise HatcastError if the services' process has ended."""
        if self._process.poll() is not None:
            raise HatcastError("the embedded Kafka or Redis ended unexpectedly: start again")


def start_child(module: str, *arguments: str, folder: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE` as a child that ends when its standard input closes, so with this process at the latest.

    It has its own session: Ctrl-C reaches only this process, which then stops the child. `folder`: its TMPDIR.
    """
    path = os.pathsep.join(filter(None, (str(_SOURCE_ROOT), os.environ.get("PYTHONPATH"))))
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
    """Stop a child by closing its standard input; after `seconds`, kill its process group."""
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
