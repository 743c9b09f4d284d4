"""The commands that each user sends to a Redis, and those of the scripts that it runs: MONITOR shows both."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from tests.services import RedisServer

_CONTAINERS: Final = ("client", "cluster", "script")  # whose subcommand is part of the command
_MARK: Final = "all-before-is-logged"


@dataclass
class CommandLog:
    """Who sent which commands; administrative ones, such as CONFIG GET, are not in it.

    MONITOR shows no users but client names. So each user's `redis.url` has one: redis-py sets it right after the login,
    before the connection's first command. A script's commands follow its own.
    """

    server: RedisServer
    _sent: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _names: dict[str, str] = field(default_factory=dict)
    _last: str = ""  # who sent the last command, so that of the script that is running
    _ended: bool = False
    _marks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def sent(self) -> dict[str, set[str]]:
        """Client name -> its commands until now, as in an ACL."""
        self._mark()
        assert self._marks.acquire(timeout=60)
        return {name: {*commands} for name, commands in self._sent.items()}

    def end(self) -> None:
        """Let `read` return."""
        self._ended = True
        self._mark()

    def _mark(self) -> None:
        with closing(self.server.client()) as client:
            client.echo(_MARK)

    def read(self, monitor: Any) -> None:
        """Read until the end."""
        for line in monitor.listen():
            words = line["command"].split(" ")
            if words != ["ECHO", _MARK]:
                self._add(words, line)
                continue
            self._marks.release()
            if self._ended:
                return

    def _add(self, words: list[str], line: dict[str, Any]) -> None:
        command = words[0].lower()
        if command in _CONTAINERS:
            command = f"{command}|{words[1].lower()}"
        if line["client_type"] != "lua":
            address = f"{line['client_address']}:{line['client_port']}"
            if command in ("auth", "hello"):
                self._names.pop(address, None)  # of an earlier connection
            if command == "client|setname":
                self._names[address] = words[2]
            self._last = self._names.get(address, "")
        self._sent[self._last].add(command)


@contextmanager
def logged_commands(server: RedisServer) -> Iterator[CommandLog]:
    """A log of all commands within the block."""
    log = CommandLog(server)
    with (
        closing(redis.Redis.from_url(server.url, socket_timeout=None)) as client,
        client.monitor() as monitor,  # type: ignore[no-untyped-call]  # redis-py does not annotate it
    ):
        reader = threading.Thread(target=log.read, args=(monitor,))
        reader.start()
        try:
            yield log
        finally:
            log.end()
            reader.join(60)
