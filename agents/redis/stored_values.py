"""Checks of what Redis returns: a value that hatcast did not write ends in Damaged, and nothing is made of it.

Packed contributions, users, journals and states end with a checksum of key and value, so a value that is cut off,
damaged, or under the key of another is refused. Records are whole and have the id of their field. Numbers and names of
hashes have a form, and no checksum: docs/redis.md.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hatcast.agents.redis.errors import Damaged
from hatcast.stream.ledger.view import without_checksum as checked
from hatcast.stream.records.projections import IDENTIFIED

DIGEST_BYTES: Final = 8
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_SLOT: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9]{2}:[0-9]{2}")
_DATE: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CELL: Final = re.compile(rb"8[0-9a-f]{14}")
_USERS_MAX: Final = 1 << 27  # of one partition in one HAT or on one day: 2 million chunks


def without_checksum(key: str, stored: object) -> bytes:
    """Return a value that `with_checksum` returned for this key. Raises Damaged for any other, and for None."""
    if not isinstance(stored, bytes):
        raise Damaged(key)
    with parsing(key):
        return checked(key, stored)


def digest_of(key: str, field: str, value: bytes) -> bytes:
    """Return what ends a value that a script stores, which cannot compute a CRC-32: the first digits of a SHA-1."""
    return hashlib.sha1(f"{key}/{field}".encode() + value, usedforsecurity=False).hexdigest()[:DIGEST_BYTES].encode()


def without_digest(key: str, field: str, stored: object) -> bytes:
    """Return a value of a hash without its digest. Raises Damaged."""
    if not isinstance(stored, bytes):
        raise Damaged(key)
    value = stored[:-DIGEST_BYTES]
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


def numbers_of_hash(key: str, name: Callable[[str, bytes], str], stored: Mapping[bytes, bytes]) -> dict[str, int]:
    """Return the fields of a hash whose values are numbers. `name`: of a field. Raises Damaged."""
    return {name(key, field): number_of(key, value) for field, value in stored.items()}


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
