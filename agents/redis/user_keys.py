"""The user key in Redis: the domain's key, and a copy beside the state of each partition folded under it.

A Redis Cluster may lose the node of one of them and not the other. A key that hatcast generated is restored from any
copy; a key that the operator set is not stored, only its fingerprint.    [decisions/0026]
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.scripts import Script
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.pseudonyms import Pseudonyms


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored user key. `key` is None if the operator set it."""

    fingerprint: str
    key: bytes | None = None

    @classmethod
    def of(cls, users: Pseudonyms, *, made: bool) -> "StoredKey":
        """Return the key in use. `made`: hatcast generated it."""
        return cls(users.fingerprint, users.key if made else None)


class OtherUserKey(HatcastError):
    """A partition's state was folded under another user key."""


def user_key_mismatch(name: str, partition: int, stored: str, own: str) -> OtherUserKey:
    """Return the error for a partition state that was folded under another user key."""
    return OtherUserKey(
        f"the state of {name!r}, partition {partition}, was folded under user key {stored}, and this worker has {own}:"
        " each vehicle would count as two; restore that key (worker.user_key_file or HATCAST_USER_KEY, or the Redis"
        f" that had it), or stop all workers and delete the keys {{{name}:*}}:*, so that telemetry is folded again"
    )


async def stored_user_keys(redis: AnyRedis, states: Iterable[PartitionKeys]) -> list[tuple[PartitionKeys, StoredKey]]:
    """Return the user key of each of these partition states that holds folded records and that we may read.

    A state that was only opened holds no user: its key does not matter. Other errors of redis-py pass through.
    """
    wanted = list(states)
    if not wanted:
        return []
    async with redis.pipeline(transaction=False) as pipe:
        for keys in wanted:
            pipe.hmget(keys.state, ["user_key", "made_key", "clock"])
        answers = await pipe.execute(raise_on_error=False)
    found = []
    for keys, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, NoPermissionError):  # a state of another policy
            continue
        if isinstance(answer, Exception):
            raise answer
        fingerprint, key, watermark = answer
        if fingerprint is not None and watermark is not None:
            found.append((keys, StoredKey(fingerprint.decode(), key)))
    return found


async def restore_made_key(redis: AnyRedis, keys: DomainKeys, registered: str | None, copies: list[StoredKey]) -> None:
    """Restore a lost generated user key from the copies beside the partition states. Errors of redis-py pass through.

    It restores the registered key, else the key of most states. A stored key that some state was folded under too is
    not replaced.
    """
    copied = {copy.fingerprint: copy.key for copy in copies if copy.key is not None}
    votes = Counter(copy.fingerprint for copy in copies if copy.key is not None)
    found: Any = await redis.hmget(keys.user_key, ["fingerprint", "key"])  # bytes, but the types allow for text
    fingerprint, key = "" if found[0] is None else found[0].decode(), found[1]
    if fingerprint and (key is None or fingerprint in copied or fingerprint == registered):
        return
    wanted = registered if registered in copied else None
    if wanted is None and not fingerprint and votes:
        wanted = votes.most_common(1)[0][0]
    if wanted is not None:
        await Script(redis, "restore_key")(keys=[keys.user_key], args=[fingerprint, wanted, copied[wanted] or b""])
