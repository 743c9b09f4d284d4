"""The Lua scripts beside this file, by name."""

from importlib import resources
from typing import Final

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

_BOOKING: Final = frozenset({"adopt", "commit", "recall"})  # what stands before them is in booking.lua


def script(redis: Redis, name: str) -> AsyncScript:
    """The script `NAME.lua`; redis-py sends its hash, and its text where the server does not know it yet."""
    text = _text(name)
    return redis.register_script(_text("booking") + text if name in _BOOKING else text)


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
