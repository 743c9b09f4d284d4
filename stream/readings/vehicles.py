"""Vehicles: which user an id is.    [docs/specification/fold.md, Readings]

One bus with two ids is two users, and can lose its budget twice. So what programs add to an id on its way is removed
here, and what they write where there is none is no id. Decoders, the fold, bridges and devices all ask this module.
Two buses with one id are one user, which is safe: their sum is what has the budget. So in doubt two ids are one.
"""

import hashlib
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from hatcast.stream.readings.reading import cache, is_empty

VEHICLE_BYTES_MAX: Final = 128
_LARGEST: Final = 10**VEHICLE_BYTES_MAX
EXACT: Final = 2**53  # largest whole number up to which a double has all of them
_SHORTENED: Final = 11  # spreadsheets write numbers with an exponent this large by their first digits only

_NOT_A_NUMBER: Final = frozenset(("nan", "-nan"))  # of values these are numbers: rule 5
_NUMBER: Final = re.compile(r"([+-]?)([0-9]+)(?:[.,]([0-9]*))?(?:[eE]([+-]?)([0-9]{1,3}))?")
_CACHE_SIZE: Final = 50_000
_known: Final[dict[str, str | None]] = {}  # most records have an id that others had
_INVISIBLE: Final = frozenset(("Cf", "Cc"))  # format and control characters
KEY_BYTES: Final = 32
PSEUDONYM_BYTES: Final = 8  # among 10**6 users of a day a collision has probability 3e-8
_PERSONALIZATION: Final = b"hatcast-user"
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def canonical_vehicle(sent: str) -> str | None:
    """Return the canonical id of a vehicle; None if it names no vehicle, or has over 128 bytes of UTF-8.

    It is the sent text in NFC, without format and control characters, with single spaces for white space and none
    around it. A whole number is written as such: 1234 for 01234, +1234, 1234.0, 1234,0 and 1.234e3.
    """
    try:
        return _known[sent]
    except KeyError:
        return cache(_known, sent, _canonical(sent), _CACHE_SIZE)


def _canonical(sent: str) -> str | None:
    text = sent if sent.isascii() and sent.isalnum() else _shown(sent)  # the first: most ids
    if text is None:
        return None
    if text[:1] in "0123456789+-":
        text = _as_number(text)
    elif _is_missing(text):
        return None
    try:
        return text if text is not None and 0 < len(text.encode()) <= VEHICLE_BYTES_MAX else None
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8, so no partition
        return None


def _is_missing(text: str) -> bool:
    return is_empty(text) or text.lower() in _NOT_A_NUMBER


def vehicle_text(cell: object) -> str | None:
    """Return the id in a cell that may have another type than text; None if it is not an id.

    A float with a whole value is that number: in columns with gaps all numbers are floats. One that is too large for
    a double to have all its digits is not an id.
    """
    if isinstance(cell, str):
        return cell
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) <= EXACT else None
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell) if abs(cell) < _LARGEST else None
    return None


def _shown(sent: str) -> str | None:
    """Remove invisible characters and normalise to NFC; None without a letter or digit, or if it is too long."""
    if not sent.isprintable():
        sent = "".join(each for each in sent if each.isspace() or unicodedata.category(each) not in _INVISIBLE)
    text = " ".join(sent.split())
    # NFC takes quadratic time for accents that are not in their order: minutes for a megabyte. An id has at most as
    # many code points as its NFD, and that at most two for each byte of its NFC: what is longer than this is too long.
    if len(text) > 2 * VEHICLE_BYTES_MAX:
        return None
    if not text.isascii():
        text = " ".join(unicodedata.normalize("NFC", text).split())
    return text if any(map(str.isalnum, text)) else None


def _as_number(text: str) -> str | None:
    """Return the digits of a whole number, or the text if it is not one; None if digits of the number are lost.

    12E45 is a code: programs write an exponent with a point or a sign.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None if _is_missing(text) else text
    sign, digits, fraction, exponent_sign, exponent = found.groups()
    if exponent is not None and fraction is None and not exponent_sign:
        return text
    if fraction is not None or exponent is not None:
        power = int(f"{exponent_sign or ''}{exponent or 0}")
        value = Decimal(f"{digits}.{fraction or ''}e{power}")
        if value != value.to_integral_value():
            return text
        is_shortened = power >= _SHORTENED and power > len(fraction or "")
        if is_shortened or len(digits) + power > VEHICLE_BYTES_MAX or value > EXACT:
            return None  # it was a double, which does not have the last digits
        digits = str(int(value))
    whole = digits.lstrip("0") or "0"
    return f"-{whole}" if sign == "-" and whole != "0" else whole


class Pseudonyms:
    """Keyed BLAKE2b of the canonical vehicle id.

    The local date is the salt, so a vehicle is another user on another day; with unit `user` there is no salt.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a user key has {KEY_BYTES} bytes")
        self._key = key

    def of(self, vehicle: str, date: str | None) -> bytes:
        """Return the pseudonym (8 bytes) of a canonical vehicle id on a local date; date None: on all dates."""
        salt = b"" if date is None else date.encode()
        return hashlib.blake2b(
            vehicle.encode(), digest_size=PSEUDONYM_BYTES, key=self._key, salt=salt, person=_PERSONALIZATION
        ).digest()

    @property
    def key(self) -> bytes:
        """The secret user key, for storing it."""
        return self._key

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the key without revealing it. A worker compares it before it writes."""
        return hashlib.blake2b(b"fingerprint", digest_size=16, key=self._key, person=_PERSONALIZATION).hexdigest()


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 (org.apache.kafka.common.utils.Utils.murmur2) as an unsigned integer."""
    state = _MURMUR_SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MURMUR_MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MURMUR_MULTIPLIER & _WORD
        state = state * _MURMUR_MULTIPLIER & _WORD ^ word
    if rest := key[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * _MURMUR_MULTIPLIER & _WORD
    state = (state ^ state >> 13) * _MURMUR_MULTIPLIER & _WORD
    return state ^ state >> 15


def by_murmur2(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's Java client, aiokafka and kafka-python choose for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """Return the partition that librdkafka chooses for a key by default (`consistent_random`)."""
    return zlib.crc32(key) % partitions


Partitioner = Callable[[bytes, int], int]

PARTITIONERS: Final[Mapping[str, Partitioner]] = {"murmur2": by_murmur2, "crc32": by_crc32}
