"""Pseudonyms of users: keyed hashes, so that no vehicle id is stored in Redis."""

import hashlib
from typing import Final

KEY_BYTES: Final = 32
PSEUDONYM_BYTES: Final = 8  # among 10**6 users of a day a collision has probability 3e-8
_PERSONALIZATION: Final = b"hatcast-user"


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
