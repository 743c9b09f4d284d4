"""A ledger in Redis: the rows of a domain are hashes and sets with its hash tag, so one script reads or writes them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from hatcast.agents.ledger.store import decide
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.errors import Damaged, Overflow
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Argument, Script
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.view import Changes, DamagedRow, Decision, TooLarge, View, Wanted

R = TypeVar("R")

_NONCE_BYTES: Final = 16
_AT_ONCE: Final = 3  # stale answers in a row before a pause
_PAUSE_MS: Final = (5, 50)


class RowStore:
    """The rows of a domain. Errors of redis-py pass through.

    An apply whose reply is lost may be sent again: it has changed a value that it compares, or changes nothing the
    second time, so it is stale then and decided again from what it has written.
    """

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._prefix = DomainKeys(domain).prefix
        self._read = Script(redis, "read")
        self._apply = Script(redis, "apply")

    async def decide(
        self,
        wanted: Wanted,
        decision: Callable[[View], Decision[R]],
        on_stale: Callable[[int], Awaitable[None]] | None = None,
    ) -> R:
        """Make a decision and apply it, as `decide` of agents/ledger/store.py.

        Raises Damaged or Overflow if a stored value stopped it: then nothing was written.
        """
        try:
            return await decide(self, wanted, decision, pause_if_stale if on_stale is None else on_stale)
        except (DamagedRow, TooLarge) as error:
            raise self.clear(error) from None

    async def look(self, wanted: Wanted, read: Callable[[View], R]) -> R:
        """Return what a function reads from rows of one moment. Raises Damaged."""
        return await self.decide(wanted, lambda view: Decision(read(view), Changes()))

    def clear(self, error: DamagedRow | TooLarge) -> Damaged | Overflow:
        """Return a rejection as an error that names the key in Redis."""
        return (Damaged if isinstance(error, DamagedRow) else Overflow)(self._prefix + error.key)

    async def read(self, wanted: Wanted) -> View:
        """Return rows of one moment."""
        asked = {key: None if fields is None else list(fields) for key, fields in wanted.items() if key != rows.SERVER}
        args: list[Argument] = [int(rows.SERVER in wanted)]
        for key, fields in asked.items():
            args.append("set" if rows.is_set(key) else "hash")
            args += [""] if fields is None else [len(fields), *fields]
        run_id, replid, *answers = await self._read(keys=[self._prefix + key for key in asked], args=args)
        found = {
            key: dict(_fields(key, fields, answer))
            for (key, fields), answer in zip(asked.items(), answers, strict=True)
        }
        return View(wanted, found | {rows.SERVER: {"run_id": run_id, "replid": replid}})

    async def apply(self, changes: Changes) -> bool:
        """Apply all changes; False if a condition does not hold. Raises Damaged or Overflow: nothing was written."""
        keys: dict[str, int] = {}
        args: list[Argument] = []
        for what, key, values in _steps(changes):
            number = 0 if key == rows.SERVER else keys.setdefault(key, len(keys) + 1)
            args += [what, number, len(values), *values]
        answer: Any = await self._apply(keys=[self._prefix + key for key in keys], args=args)
        return bool(answer == b"done")


async def pause_if_stale(times: int) -> None:
    """Wait a random time if others have been faster `times` times in a row, so that writers of one date take turns."""
    if times >= _AT_ONCE:
        first, last = _PAUSE_MS
        await asyncio.sleep((first + secrets.randbelow(last - first + 1)) / 1_000)


def _steps(changes: Changes) -> Iterator[tuple[str, str, Collection[Argument]]]:
    """Yield the steps of apply.lua: all conditions, then the changes."""
    for (key, name), value in changes.equal.items():
        if rows.is_set(key):
            yield "out" if value is None else "in", key, [name]
        else:
            yield "same", key, [name, b"" if value is None else b"=" + value]
    for (key, name), least in changes.at_least.items():
        yield "least", key, [name, least]
    for (key, name), more in changes.add.items():
        yield "add", key, [name, more]
    for (key, name), value in changes.raised.items():
        yield "raise", key, [name, value]
    for key in changes.deleted:
        yield "delete", key, []
    nonces = {name: secrets.token_bytes(_NONCE_BYTES) for name in changes.nonces}
    changed: dict[str, Mapping[str, bytes | None]] = {**changes.set, **({rows.NONCES: nonces} if nonces else {})}
    for key, fields in changed.items():
        kept = {name: value for name, value in fields.items() if value is not None}
        if kept:
            yield ("join", key, list(kept)) if rows.is_set(key) else ("set", key, _flat(kept.items()))
        if gone := [name for name, value in fields.items() if value is None]:
            yield "leave" if rows.is_set(key) else "gone", key, gone


def _flat(pairs: Iterable[tuple[str, bytes]]) -> list[Argument]:
    return [part for pair in pairs for part in pair]


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
