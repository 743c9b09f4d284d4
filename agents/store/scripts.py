"""The Lua scripts beside this file, by name."""

from importlib import resources

from redis.asyncio import Redis
from redis.commands.core import AsyncScript


def script(redis: Redis, name: str) -> AsyncScript:
    """The script `NAME.lua`; redis-py sends its hash, and its text where the server does not know it yet."""
    return redis.register_script(resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8"))
