"""The Lua scripts beside this file, by name."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from redis.exceptions import NoScriptError, ResponseError

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.errors import SCRIPT_ERRORS, Damaged

_INDEX: Final = frozenset({"checkpoint", "delete", "delete_retained", "list_retained", "load", "load_retained"})
_PRELUDES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(  # shared part -> scripts that it precedes
    {"staging": _INDEX | {"skip", "sweep"}, "index": _INDEX}
)

Argument = str | bytes | int
Call = tuple[Sequence[str], Sequence[Argument]]
"""Keys, all with one hash tag, and arguments of one run."""


class Script:
    """The script `NAME.lua`, sent by its hash; its text is loaded if a server does not have it yet.

    redis-py's own Script queries each script before every pipeline, and does not run in a cluster pipeline. A lost
    reply, or a pipeline whose servers do not all have the script, makes calls run twice: the second run changes
    nothing. Errors of redis-py pass through. Raises Damaged or Overflow, which are ResponseErrors, if a stored value
    stopped the script before it wrote anything.
    """

    def __init__(self, redis: AnyRedis, name: str) -> None:
        self._redis = redis
        before = (part for part, names in _PRELUDES.items() if name in names)
        self._text = "".join(map(_text, (*before, name)))
        self._hash = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run the script once."""
        return (await self.run_each([(keys, args)]))[0]

    async def run_each(self, calls: Sequence[Call]) -> list[Any]:
        """Run the script for each call, in one round trip to each server; in order for keys on one server."""
        try:
            answers = await self._run_loaded(calls)
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            # A read failed: each script writes after all of its reads, and only to keys that it has read.
            raise Damaged(f"{calls[0][0][0]} or one beside it") from None
        for answer in answers:
            word = answer[0] if isinstance(answer, list) and answer else None
            if isinstance(word, bytes) and (error_type := SCRIPT_ERRORS.get(word)) is not None:
                raise error_type(answer[1].decode(errors="replace"))
        return answers

    async def _run_loaded(self, calls: Sequence[Call]) -> list[Any]:
        try:
            return await self._run(calls)
        except NoScriptError:
            await self._redis.script_load(self._text)  # in a cluster: on every node
            return await self._run(calls)

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:
            ((keys, args),) = calls
            return [await self._redis.evalsha(self._hash, len(keys), *keys, *args)]
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys, args in calls:  # not `evalsha`, which a cluster pipeline does not have
                pipe.execute_command("EVALSHA", self._hash, len(keys), *keys, *args)
            answers: list[Any] = await pipe.execute()
            return answers


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
