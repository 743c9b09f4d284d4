"""Starting, breaking and ending a server that is ours: as a process, or as a container."""

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

TAIL_LINES: Final = 40
POLL_SECONDS: Final = 0.02
_PORTS: Final = (10_240, 32_768)
_CHANCE: Final = random.SystemRandom()

# The kernel's tie (see tied.py) is to the thread that starts a process: one thread that lives as long as we do.
_SPAWNER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_LIVE: Final[set["ServerProcess"]] = set()


class ServerDidNotStart(RuntimeError):
    """A server of ours ended or stayed silent; the text holds the end of its log."""


class NotOurs(RuntimeError):
    """The service was given by the environment, so it is not for us to break."""


class Lifecycle(Protocol):
    """What may be done to a server of our own. Port and data outlive stop, kill and start."""

    @property
    def running(self) -> bool:
        """True from start to the end of the process, also while paused."""

    def start(self) -> None:
        """Start it, again or for the first time. Does not wait until it answers."""

    def stop(self) -> None:
        """Ask it to end (SIGTERM) and wait for that."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing answers."""

    def resume(self) -> None:
        """Thaw it."""

    def close(self) -> None:
        """End it for good."""

    def log_tail(self) -> str:
        """The last lines that it wrote."""


class Spawned(Protocol):
    """A process that was started: what is used of Popen."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: signal.Signals, /) -> None: ...


class ServerProcess:
    """A server as a local process in its own session, which ends with ours, however ours ends."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("tied.py")),
            str(os.getpid()),
            *command,
        ]
        self._log = log
        self._env = {**os.environ, **(env or {})}
        self._process: Spawned | None = None

    @property
    def pid(self) -> int:
        """The server's process id; raises RuntimeError while it is not running."""
        if self._process is None:
            raise RuntimeError(f"not running: {self._command}")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running:
            return
        self._process = _SPAWNER.submit(self._spawn).result()
        _LIVE.add(self)

    def _spawn(self) -> Spawned:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests, which then end it in order
            )

    def stop(self, timeout: float = 30.0) -> None:
        self.resume()  # a frozen process would take no SIGTERM
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        _LIVE.discard(self)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        if self._process is not None:  # a thread of it may answer until it has stopped
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()

    def log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


class ServerContainer:
    """A server as a container of testcontainers, whose reaper removes it if we die."""

    def __init__(self, container: Any) -> None:
        # Any: the object behind testcontainers is docker-py's, which ships no types.
        self._container = container

    @property
    def _docker(self) -> Any:
        return self._container.get_wrapped_container()

    @property
    def running(self) -> bool:
        if self._docker is None:
            return False
        self._docker.reload()
        return self._docker.status in ("running", "paused")

    def start(self) -> None:
        if self._docker is None:
            self._container.start()
        elif not self.running:
            self._docker.start()

    def stop(self) -> None:
        self.resume()
        self._docker.stop(timeout=30)

    def kill(self) -> None:
        if self.running:
            self._docker.kill()
            self._docker.wait()

    def pause(self) -> None:
        self._docker.pause()

    def resume(self) -> None:
        self._docker.reload()
        if self._docker.status == "paused":
            self._docker.unpause()

    def close(self) -> None:
        self._container.stop()

    def log_tail(self) -> str:
        return str(self._docker.logs(tail=TAIL_LINES).decode(errors="replace")) if self._docker else ""


@cache
def docker_answers(timeout: float = 10.0) -> bool:
    """True if a Docker engine answers testcontainers in time; the command line tool alone is not enough.

    Asked in a process of its own: the libraries have no limit on all that they try, and leave open what failed.
    """
    ask = "from testcontainers.core.docker_client import DockerClient; DockerClient().client.ping()"
    command = [sys.executable, "-c", ask]
    try:
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Ports of 127.0.0.1 that nobody listens on; held until the block ends, so that two calls do not give the same.

    Below those that the system gives to outgoing connections: one of them would take the port of a server that is down
    for a moment, and comes back on it.
    """
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            held.append(socket.socket())
            try:
                held[-1].bind(("127.0.0.1", _CHANCE.randrange(*_PORTS)))
            except OSError:
                held.pop().close()
        yield [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def wait_until(ready: Callable[[], bool], server: Lifecycle | None, timeout: float, what: str) -> None:
    """Return once ``ready()`` is true; raise ServerDidNotStart with the log if the server ends or the time is up."""
    deadline = time.monotonic() + timeout
    while not ready():
        ended = server is not None and not server.running
        if ended or time.monotonic() > deadline:
            log = server.log_tail() if server is not None else ""
            raise ServerDidNotStart(f"{what} {'ended' if ended else f'did not answer in {timeout:g} s'}\n{log}")
        time.sleep(POLL_SECONDS)


def accepts(host: str, port: int) -> bool:
    """True if somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class Startable(Protocol):
    """A server object with a life of its own."""

    @property
    def ours(self) -> Lifecycle:
        """Its life."""

    def start(self) -> None:
        """Start it and wait until it answers; raises ServerDidNotStart."""


Prepared = TypeVar("Prepared", bound=Startable)


def started(prepare: Callable[[], Prepared]) -> Prepared:
    """A server that answers. Prepared and tried twice: a free port may be taken before the server binds it."""
    last: ServerDidNotStart | None = None
    for _ in range(2):
        server = prepare()
        try:
            server.start()
        except ServerDidNotStart as error:
            server.ours.close()
            last = error
        else:
            return server
    raise last or ServerDidNotStart("never tried")


@contextmanager
def serving(prepare: Callable[[], Prepared], folder: Path) -> Iterator[Prepared]:
    """A server that answers, for as long as the block; its folder goes with it."""
    try:
        server = started(prepare)
        try:
            yield server
        finally:
            server.ours.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@atexit.register
def _end_all() -> None:
    for each in list(_LIVE):
        each.kill()
