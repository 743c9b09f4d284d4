"""Commands forked from a process that has loaded their modules: a worker is there in two seconds instead of six.

Each is a process like any other, with its log, its exit code and its signals. What a test wraps in it, since the
product has no switch for faults, is wrapped by a function that runs there before the command.
"""

import ctypes
import multiprocessing
import multiprocessing.context
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from hatcast.agents.cli import main
from tests.services.tied import PR_SET_PDEATHSIG

# Imported, and not used: what is shared after the fork has no thread, no connection and no random state.
_LOADED: Final = [
    "hatcast.agents.sources.live",
    "hatcast.agents.sources.mqtt",
    "hatcast.agents.cli.device",
    "hatcast.agents.cli.feed",
    "hatcast.agents.cli.worker",
    "hatcast.agents.kafka.topics",
    "hatcast.agents.redis.durability",
    "hatcast.agents.worker.worker",
    "confluent_kafka",
    "encodings.idna",
    "faust.app.router",
    "faust.assignor.partition_assignor",
    "faust.fixups.django",
    "faust.tables.manager",
    "faust.tables.sets",
    "faust.topics",
    "faust.transport.drivers.aiokafka",
    "faust.worker",
    "kafka",
    "pytest",
    "tests.integration.preloaded",
]
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(_LOADED)

Wrap = Callable[[], None]
"""Runs in the worker before its command; pickled, so a function of a module, or a partial of one."""


def plain() -> None:
    """The product as it is."""


class Forked:
    """The command `hatcast ARGUMENTS` in a process of its own; what `ServerProcess` needs of Popen."""

    def __init__(self, arguments: Sequence[str], out: Path, err: Path, wrap: Wrap = plain) -> None:
        """Args: `out` and `err`, what it writes is added there; they may be the same."""
        for path in (out, err):
            path.touch()  # whoever waits for a line reads before the process has opened it
        # daemon: it ends with the tests
        self._process: BaseProcess = _FORKS.Process(target=_become, args=(arguments, out, err, wrap), daemon=True)
        self._process.start()
        self.pid: Final = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("hatcast", timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _become(arguments: Sequence[str], out: Path, err: Path, wrap: Wrap) -> None:
    os.setsid()  # a Ctrl-C in the terminal is for the tests
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # our parent ends with the tests, however they end
    with out.open("ab") as written, err.open("ab") as said:
        os.dup2(written.fileno(), 1)
        os.dup2(said.fileno(), 2)
    for name in [name for name in os.environ if name.startswith("HATCAST_")]:
        del os.environ[name]  # it would override the configuration
    sys.argv = ["hatcast", *arguments]
    wrap()
    main()
