"""A ledger in Redis: the rows of a domain are hashes and sets with its hash tag, so one script reads or writes them."""

import secrets
from collections.abc import Iterator
from typing import Any, Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.scripts import Argument, Script
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.view import Changes, DamagedRow, View, Wanted

_NONCE_BYTES: Final = 16


class RedisStore:
    """The rows of a domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._prefix = f"{{{domain}}}:"
        self._read = Script(redis, "read", __package__)
        self._apply = Script(redis, "apply", __package__)

    async def read(self, wanted: Wanted) -> View:
        """Return rows of one moment."""
        keys = [key for key in wanted if key != rows.SERVER]
        asked = {key: None if (names := wanted[key]) is None else list(names) for key in keys}
        args: list[Argument] = []
        for key, fields in asked.items():
            kind = "set" if rows.is_set(key) else "hash"
            args += [kind, ""] if fields is None else [kind, len(fields), *fields]
        run_id, replid, *found = await self._read(keys=[self._prefix + key for key in keys], args=args)
        view = {
            key: dict(_fields(key, fields, answer)) for (key, fields), answer in zip(asked.items(), found, strict=True)
        }
        return View(wanted, view | {rows.SERVER: {"run_id": run_id, "replid": replid}})

    async def apply(self, changes: Changes) -> bool:
        """Apply all changes; False if a condition does not hold. Raises DamagedRow, and then nothing was written."""
        keys: dict[str, int] = {}
        args: list[Argument] = []

        def step(what: str, key: str, *values: Argument) -> None:
            number = 0 if key == rows.SERVER else keys.setdefault(key, len(keys) + 1)
            args.extend((what, number, len(values), *values))

        for (key, name), value in changes.equal.items():
            step("same", key, name, b"" if value is None else b"=" + value)
        for (key, name), least in changes.at_least.items():
            step("least", key, name, least)
        for (key, name), more in changes.add.items():
            step("add", key, name, more)
        for (key, name), value in changes.raised.items():
            step("raise", key, name, value)
        nonces = {rows.NONCES: {name: secrets.token_bytes(_NONCE_BYTES) for name in changes.nonces}}
        for key, fields in (changes.set | (nonces if changes.nonces else {})).items():
            kept = {name: value for name, value in fields.items() if value is not None}
            gone = [name for name, value in fields.items() if value is None]
            is_set = rows.is_set(key)
            if kept:
                step("join" if is_set else "set", key, *(kept if is_set else _flat(kept)))
            if gone:
                step("leave" if is_set else "gone", key, *gone)
        answer = await self._apply(keys=[self._prefix + key for key in keys], args=args)
        if isinstance(answer, list):
            raise DamagedRow(answer[1].decode().removeprefix(self._prefix))
        return bool(answer == b"done")


def _flat(fields: dict[str, bytes]) -> Iterator[Argument]:
    for pair in fields.items():
        yield from pair


def _fields(key: str, asked: list[str] | None, answer: list[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield field and value of what is stored; a member of a set has an empty value. Raises DamagedRow."""
    try:
        if asked is None and rows.is_set(key):
            yield from ((member.decode(), b"") for member in answer)
        elif asked is None:
            yield from ((name.decode(), value) for name, value in zip(answer[::2], answer[1::2], strict=True))
        elif rows.is_set(key):
            yield from ((name, b"") for name, mark in zip(asked, answer, strict=True) if mark)
        else:
            yield from ((name, value) for name, value in zip(asked, answer, strict=True) if value is not None)
    except UnicodeDecodeError:
        raise DamagedRow(key) from None
