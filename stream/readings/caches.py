"""Bounded caches of what records send: identifiers, times, numbers."""

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# More than anything that counts has: longer texts and larger numbers are not cached.
_CHARACTERS_MAX: Final = 128
_BITS_MAX: Final = 64


def cache(entries: dict[K, V], key: K, value: V, size: int) -> V:
    """Cache and return `value`, unless its key is long. A cache with `size` entries is emptied first.

    So a cache takes some hundred bytes for each of `size` entries at most, whatever records contain.
    """
    if isinstance(key, str) and len(key) > _CHARACTERS_MAX:
        return value
    if isinstance(key, int) and key.bit_length() > _BITS_MAX:
        return value
    if len(entries) >= size:
        entries.clear()
    entries[key] = value
    return value
