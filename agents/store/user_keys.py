"""The user key in Redis: of the domain, and a copy beside the state of each partition that was folded under it.

A Redis Cluster may lose the node of the one and keep that of the other. A key that hatcast made is restored from any
copy; one that an operator gave is stored nowhere, and named by its fingerprint.    [decisions/0026]
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError

from agents.redis_clients import AnyRedis
from agents.store.keys import DomainKeys, PartitionKeys
from agents.store.scripts import Script
from stream.errors import Refusal
from stream.pseudonyms import Pseudonyms


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A user key as it is stored. `key` is None where an operator gave it."""

    fingerprint: str
    key: bytes | None = None

    @classmethod
    def of(cls, users: Pseudonyms, *, made: bool) -> "StoredKey":
        """The key in use; `made`: by hatcast."""
        return cls(users.fingerprint, users.key if made else None)


class OtherUserKey(Refusal):
    """A partition's state was folded under another user key."""


def other_user_key(name: str, partition: int, stored: str, own: str) -> OtherUserKey:
    """Why a state cannot be folded on, and what to do."""
    return OtherUserKey(
        f"the state of {name!r}, partition {partition}, was folded under user key {stored}, and this worker has {own}:"
        " each vehicle would count as two; restore that key (worker.user_key_file or HATCAST_USER_KEY, or the Redis"
        f" that had it), or stop all workers and delete the keys {{{name}:*}}:*, so that all is folded again from"
        " telemetry"
    )


async def folded_under(redis: AnyRedis, states: Iterable[PartitionKeys]) -> list[tuple[PartitionKeys, StoredKey]]:
    """The user key of each of these partition states, of those that hold folded records and that this user may read.

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
        if isinstance(answer, NoPermissionError):  # another policy's
            continue
        if isinstance(answer, Exception):
            raise answer
        fingerprint, made, clock = answer
        if fingerprint is not None and clock is not None:
            found.append((keys, StoredKey(fingerprint.decode(), made)))
    return found


async def restore_made_key(redis: AnyRedis, keys: DomainKeys, registered: str | None, copies: list[StoredKey]) -> None:
    """Put a lost user key back from the copies beside partition states, if hatcast made it. Errors of redis-py pass.

    The registered key is wanted, else the one that most states were folded under. A key that is stored, and that a
    state was folded under too, stays.
    """
    made = {copy.fingerprint: copy.key for copy in copies if copy.key is not None}
    votes = Counter(copy.fingerprint for copy in copies if copy.key is not None)
    found: Any = await redis.hmget(keys.user_key, ["fingerprint", "key"])  # bytes, but the types allow for text
    here, own = "" if found[0] is None else found[0].decode(), found[1]
    if here and (own is None or here in made or here == registered):
        return
    wanted = registered if registered in made else None
    if wanted is None and not here and votes:
        wanted = votes.most_common(1)[0][0]
    if wanted is not None:
        await Script(redis, "restore_key")(keys=[keys.user_key], args=[here, wanted, made[wanted] or b""])
