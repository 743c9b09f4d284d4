"""The Lua scripts beside this file, by name."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from redis.exceptions import NoScriptError, ResponseError

from agents.redis_clients import AnyRedis
from agents.store.errors import NOT_WRITTEN, Damaged

_BOOKING: Final = frozenset(
    {"adopt", "answer", "commit", "discard", "recall", "reserved", "restore_day", "spent", "supersede", "unreserve"}
)
_BEFORE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(  # parts, and the scripts that they stand before
    {
        "staging": _BOOKING | {"advance", "checkpoint", "delete", "forget", "restore", "seal", "skip", "sweep"},
        "amounts": _BOOKING,
        "booking": _BOOKING,
        "deciding": frozenset({"answer", "commit"}),
    }
)

Part = str | bytes | int
Call = tuple[Sequence[str], Sequence[Part]]
"""The keys, all of one hash tag, and the arguments of one run."""


class Script:
    """The script `NAME.lua`. Its hash is sent, and its text where a server does not know it yet.

    In place of redis-py's own, which asks for each script before every pipeline, and does not run in a cluster's. An
    answer that was lost, or a server that knew the script only half way, makes it run twice: each of them changes
    nothing the second time. Errors of redis-py pass through. Raises Damaged or Overflow, which are two of these, if a
    script wrote nothing because of what it found.
    """

    def __init__(self, redis: AnyRedis, name: str) -> None:
        self._redis = redis
        before = (part for part, names in _BEFORE.items() if name in names)
        self._text = "".join(map(_text, (*before, name)))
        self._hash = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Part]) -> Any:
        """Run it once."""
        return (await self.each([(keys, args)]))[0]

    async def each(self, calls: Sequence[Call]) -> list[Any]:
        """Run it for each call, in order as far as their keys are on one server, in one round trip to each server."""
        try:
            answers = await self._run_loaded(calls)
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            # By a read: the writes of each script come after all of its reads, and on keys that it has read.
            raise Damaged(f"{calls[0][0][0]} or one beside it") from None
        for answer in answers:
            word = answer[0] if isinstance(answer, list) and answer else None
            if isinstance(word, bytes) and (why := NOT_WRITTEN.get(word)) is not None:
                raise why(answer[1].decode(errors="replace"))
        return answers

    async def _run_loaded(self, calls: Sequence[Call]) -> list[Any]:
        try:
            return await self._run(calls)
        except NoScriptError:
            await self._redis.script_load(self._text)  # of a cluster: to every node
            return await self._run(calls)

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:
            ((keys, args),) = calls
            return [await self._redis.evalsha(self._hash, len(keys), *keys, *args)]
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys, args in calls:  # not `evalsha`, which a cluster's pipeline does not have
                pipe.execute_command("EVALSHA", self._hash, len(keys), *keys, *args)
            answers: list[Any] = await pipe.execute()
            return answers


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
