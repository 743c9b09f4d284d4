"""Bounded caches of what records send: identifiers, times, numbers."""

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_CHARACTERS_MAX: Final = 256  # of a text that is cached: more than any that counts


def cache(entries: dict[K, V], key: K, value: V, size: int) -> V:
    """Cache and return `value`. A cache with `size` entries is emptied first, and a long text is not cached.

    So a cache takes some hundred bytes for each of `size` entries at most, whatever records contain.
    """
    if isinstance(key, str) and len(key) > _CHARACTERS_MAX:
        return value
    if len(entries) >= size:
        entries.clear()
    entries[key] = value
    return value
