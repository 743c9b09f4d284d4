"""A ledger in Redis: the rows of a domain are hashes and sets with its hash tag, so one script reads or writes them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from hatcast.agents.ledger.store import decide, draw_nonces
from hatcast.agents.redis.clients import AnyRedis, Script
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.stored_values import Damaged, Overflow, parsing
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.ledger.view import DamagedRow, Decision, RowChanges, TooLarge, View, Wanted

R = TypeVar("R")
_Step = tuple[str, str, Mapping[str, str | msgspec.Raw | int]]

_PACK: Final = msgspec.msgpack.encode  # one argument: redis-py takes 3 us for each
_PAUSE_MS: Final = 30  # at most


class RowStore:
    """The rows of a domain.

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
            return await decide(self, wanted, decision, take_turns if on_stale is None else on_stale)
        except (DamagedRow, TooLarge) as error:
            raise self.clear(error) from None

    async def look(self, wanted: Wanted, read: Callable[[View], R]) -> R:
        """Read rows of one moment, and return the result of `read` on them. Raises Damaged."""
        return await self.decide(wanted, lambda view: Decision(read(view), RowChanges()))

    def clear(self, error: DamagedRow | TooLarge) -> Damaged | Overflow:
        """Return a rejection as an error that names the key in Redis."""
        return (Damaged if isinstance(error, DamagedRow) else Overflow)(self._prefix + error.key)

    async def read(self, wanted: Wanted) -> View:
        """Return rows of one moment."""
        asked = {key: None if fields is None else list(fields) for key, fields in wanted.items() if key != rows.SERVER}
        of_keys = [[rows.is_set(key), False if fields is None else fields] for key, fields in asked.items()]
        keys = [self._prefix + key for key in asked]
        run_id, replid, *answers = await self._read(keys, [_PACK([rows.SERVER in wanted, of_keys])])
        found = {
            key: dict(_fields(key, fields, answer))
            for (key, fields), answer in zip(asked.items(), answers, strict=True)
            if answer is not None
        }
        return View(wanted, found | {rows.SERVER: {"run_id": run_id, "replid": replid}}, asked.keys() - found.keys())

    async def apply(self, changes: RowChanges) -> bool:
        """Apply all changes; False if a condition does not hold. Raises Damaged or Overflow: nothing was written."""
        draw_nonces(changes)
        keys = {rows.SERVER: 0}
        steps = [
            (what, keys.setdefault(key, len(keys)), rows.is_set(key), fields) for what, key, fields in _steps(changes)
        ]
        answer: Any = await self._apply([self._prefix + key for key in keys][1:], [_PACK(steps)])
        return bool(answer == b"done")


class DomainRows:
    """A part of a domain's ledger: its rows, and the keys of those that are read and written without a decision."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)

    async def _field(self, row: str, name: str) -> bytes | None:
        """Return a field of a row; None without it."""
        stored = await self._redis.hget(self._keys.row(row), name)
        return stored if isinstance(stored, bytes) else None

    async def _next_policy(self, name: str) -> NextPolicy | None:
        stored = await self._field(rows.NEXT_POLICIES, name)
        with parsing(self._keys.row(rows.NEXT_POLICIES)):
            return None if stored is None else NextPolicy.of(stored)


async def take_turns(_times: int) -> None:
    """Wait a random time, since others have been faster: so writers of one date take turns."""
    await asyncio.sleep(secrets.randbelow(_PAUSE_MS + 1) / 1_000)


def _steps(changes: RowChanges) -> Iterator[_Step]:
    """Yield the conditions of changes, then the changes, as steps of apply.lua."""
    for key, fields in changes.equal.items():
        yield "equal", key, _texts(fields)
    for (key, name), least in changes.at_least.items():
        yield "least", key, {name: str(least)}  # a damaged number that was read is larger than MessagePack's integers
    for (key, name), more in changes.add.items():
        yield "add", key, {name: more}
    for (key, name), value in changes.raised.items():
        yield "raise", key, _texts({name: value})
    for key in changes.deleted:
        yield "delete", key, {}
    for key, fields in changes.set.items():
        yield "set", key, _texts(fields)


def _texts(fields: Mapping[str, bytes | None]) -> dict[str, str | msgspec.Raw | int]:
    """Return values as MessagePack text, the only kind that Redis unpacks: there it is bytes again; False for none."""
    return {
        name: False
        if value is None
        else value.decode()
        if value.isascii()
        else msgspec.Raw(b"\xdb" + len(value).to_bytes(4, "big") + value)
        for name, value in fields.items()
    }


def _fields(key: str, asked: list[str] | None, answer: list[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the stored fields and values of a row; members of a set have the value b"". Raises DamagedRow."""
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
