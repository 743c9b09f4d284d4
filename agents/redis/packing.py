"""Packing of commands for Redis by hiredis: redis-py packs those of asyncio connections in Python, one by one."""

from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection


def packed_by_hiredis(connection: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a class of connections that packs its commands with hiredis; it sends the same bytes."""
    return type(f"Packed{connection.__name__}", (_PackedByHiredis, connection), {})


class _PackedByHiredis(AbstractConnection):
    def pack_command(self, *args: Any) -> list[bytes]:
        name = args[0]
        try:
            words = (name.encode() if isinstance(name, str) else name).split()  # as redis-py: b"SCRIPT LOAD" is two
            return [hiredis.pack_command((*words, *args[1:]))]
        except (AttributeError, TypeError):  # memoryviews; and what redis-py refuses, in its own words
            return super().pack_command(*args)
