"""Users as they are stored: keyed hashes, so that Redis holds no vehicle id.    [design 4, State in Redis]"""

import hashlib
from typing import Final

KEY_BYTES: Final = 32
PSEUDONYM_BYTES: Final = 8  # among 10**6 users of a day any two collide with probability 3e-8
_PERSON: Final = b"hatcast-user"


class Pseudonyms:
    """Keyed BLAKE2b of the canonical vehicle id.

    Salted by the local date, a user of another day is another user; unit `user` is the same one for ever.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a user key has {KEY_BYTES} bytes")
        self._key = key

    def of(self, vehicle: str, date: str | None) -> bytes:
        """The pseudonym (8 bytes) of a canonical vehicle id on a local date; None: on all of them."""
        salt = b"" if date is None else date.encode()
        return hashlib.blake2b(
            vehicle.encode(), digest_size=PSEUDONYM_BYTES, key=self._key, salt=salt, person=_PERSON
        ).digest()

    @property
    def key(self) -> bytes:
        """The secret itself, for whoever keeps it."""
        return self._key

    @property
    def fingerprint(self) -> str:
        """Names the key without telling it: what a worker compares before it writes."""
        return hashlib.blake2b(b"fingerprint", digest_size=16, key=self._key, person=_PERSON).hexdigest()
