"""Values that Redis returns: the errors of the scripts, and checks. A value that hatcast did not write ends in
Damaged, and nothing is made of it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import ClusterError, RedisError, ResponseError

from hatcast.agents.errors.causes import ClearError
from hatcast.stream.checksums import without_checksum
from hatcast.stream.records.projections import IDENTIFIED


class Damaged(ClearError, ResponseError):
    """A Redis key holds a value that hatcast did not write: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Redis key {key!r} holds a value that hatcast did not write, so nothing was written: restore all of Redis"
            " from a copy, or empty it; what is missing then is read again from Kafka"
        )


class Overflow(ClearError, ResponseError):
    """A sum in Redis would exceed the largest exact number of the scripts: the script wrote nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a number in the Redis key {key!r} would exceed what can be counted exactly, so nothing was written: start"
            " under a new policy.name with a lower epsilon"
        )


class Reopened(ClearError, RedisError):
    """A partition's state is not the one that this worker opened: another worker has opened it, or Redis went back."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} changed hands, or went back in time, while it was loaded: it is opened again")


class SlotMoving(ClearError, ClusterError):
    """A Redis Cluster moves a slot, and each of two nodes has some of a command's keys: it did not run the command."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.slot = slot

    def __str__(self) -> str:  # not from `args`: redis-py writes a pipeline's command there
        return (
            f"the Redis Cluster moves slot {self.slot} between nodes (TRYAGAIN): nothing is lost, and all is retried"
            " until the move ends; `redis-cli --cluster fix` ends one that was left half done"
        )


SCRIPT_ERRORS: Final[Mapping[bytes, type[Damaged | Overflow]]] = {b"damaged": Damaged, b"overflow": Overflow}
"""Replies of any script, with a key, that wrote nothing because of a stored value: see staging.lua."""


# Packed contributions, users, journals and states end with a checksum of key and value, so a value that is cut off,
# damaged, or under the key of another is refused. Records are whole and have the id of their field. Numbers and names
# of hashes have a form, and no checksum: docs/operations.md.
DIGEST_BYTES: Final = 8
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_SLOT: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9]{2}:[0-9]{2}")
_DATE: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CELL: Final = re.compile(rb"8[0-9a-f]{14}")
_USERS_MAX: Final = 1 << 27  # of one partition in one HAT or on one day: 2 million chunks


def value_of(key: str, stored: object) -> bytes:
    """Return a value without its checksum. Raises Damaged, also for None."""
    value = without_checksum(key, stored) if isinstance(stored, bytes) else None
    if value is None:
        raise Damaged(key)
    return value


def digest_of(key: str, field: str, value: bytes) -> bytes:
    """Return what ends a value that a script stores, which cannot compute a CRC-32: the first digits of a SHA-1."""
    return hashlib.sha1(f"{key}/{field}".encode() + value, usedforsecurity=False).hexdigest()[:DIGEST_BYTES].encode()


def without_digest(key: str, field: str, stored: object) -> bytes:
    """Return a value of a hash without its digest. Raises Damaged."""
    value = stored[:-DIGEST_BYTES] if isinstance(stored, bytes) else b""
    if stored != value + digest_of(key, field, value):
        raise Damaged(key)
    return value


def number_of(key: str, stored: bytes) -> int:
    """Return an integer as hatcast writes it. Raises Damaged."""
    return int(_matching(_NUMBER, key, stored))


def users_of(key: str, stored: bytes) -> int:
    """Return a number of users, at least 1. Raises Damaged, also for one that no memory could hold."""
    users = number_of(key, stored)
    if not 1 <= users <= _USERS_MAX:
        raise Damaged(key)
    return users


def slot_of(key: str, stored: bytes) -> str:
    """Return a slot, `date/slot`. Raises Damaged."""
    return _matching(_SLOT, key, stored).decode()


def cell_of(key: str, stored: bytes) -> str:
    """Return a cell, an H3 index in hexadecimal. Raises Damaged."""
    return _matching(_CELL, key, stored).decode()


def date_of(key: str, stored: bytes) -> str:
    """Return a local date. Raises Damaged."""
    return _matching(_DATE, key, stored).decode()


def record_of(key: str, release_id: str, stored: bytes) -> bytes:
    """Return a stored record. Raises Damaged unless it is a whole record with this id."""
    with parsing(key):
        if IDENTIFIED.decode(stored).release_id == release_id:
            return stored
    raise Damaged(key)


def records_of(key: str, ids: Sequence[bytes], stored: Sequence[bytes | None]) -> dict[str, bytes]:
    """Return release_id -> record, of the records that are there. Raises Damaged."""
    with parsing(key):
        names = [each.decode() for each in ids]
    return {
        name: record_of(key, name, record) for name, record in zip(names, stored, strict=True) if record is not None
    }


@contextmanager
def parsing(key: str) -> Iterator[None]:
    """Raise Damaged in place of any error of parsing the value of a key."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Damaged(key) from None


def _matching(form: "re.Pattern[bytes]", key: str, stored: Any) -> bytes:
    if not isinstance(stored, bytes) or form.fullmatch(stored) is None:
        raise Damaged(key)
    return stored
