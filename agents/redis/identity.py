"""Identity of a policy in Redis, fixed at the first start: hash under its name, partition count, user key."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import NoPermissionError

from hatcast.agents.redis.clients import AnyRedis, Script
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.stored_values import Damaged, number_of, parsing
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms


@dataclass(frozen=True, slots=True)
class StoredKey:
    """The user key as Redis has it: the domain's key, and a copy beside the state of each partition folded under it.

    A Redis Cluster may lose the node of one of them and not the other. A key that hatcast generated is restored from
    any copy; a key that the operator set is not stored (None), only its fingerprint.    [decisions/0026]
    """

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
    """Restore a lost generated user key from the copies beside the partition states.

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


_PARTITIONS_MAX: Final = 1 << 20  # more than a cluster of Kafka can have


async def claim_policy(redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int) -> None:
    """Store the policy, its partition count and time zone at a first start; later, check that they are the same.

    Raises HatcastError, with what to do: the first of `policy_errors`.
    """
    given = _claims(keys, policy, partitions)
    stored = {key: await _claim(redis, key, fields) for key, fields in given.items()}
    with parsing(keys.policy(policy.name)):
        for _, error in _errors(keys, policy, partitions, stored):
            raise error


async def policy_errors(
    redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int
) -> list[tuple[str, HatcastError]]:
    """Return the errors of which `claim_policy` would raise the first, without storing anything.

    Each has the name of its check: `stored policy` (another telemetry topic uses the name, the domain has another time
    zone, or some keys of the policy differ) or `stored partitions`.
    """
    stored: dict[str, Any] = {key: await redis.hgetall(key) for key in _claims(keys, policy, partitions)}
    with parsing(keys.policy(policy.name)):
        found = {key: {field.decode(): value for field, value in fields.items()} for key, fields in stored.items()}
        return [*_errors(keys, policy, partitions, found)]


def _claims(keys: DomainKeys, policy: Policy, partitions: int) -> dict[str, Mapping[str, str | bytes]]:
    """Return the hashes that a first start stores, by Redis key."""
    return {
        keys.owner(policy.name): {"domain": keys.domain},
        keys.zone: {"timezone": policy.timezone},
        keys.policy(policy.name): {
            "canonical": policy.canonical,
            "policy_id": policy.policy_id,
            "partitions": str(partitions),
        },
    }


def _errors(
    keys: DomainKeys, policy: Policy, partitions: int, found: Mapping[str, Mapping[str, bytes]]
) -> Iterator[tuple[str, HatcastError]]:
    """Yield an error for each stored value that differs from the given one; missing keys are allowed."""
    domain = found[keys.owner(policy.name)].get("domain", keys.domain.encode()).decode()
    if domain != keys.domain:
        error = HatcastError(
            f"policy {policy.name!r} belongs to telemetry topic {domain!r} on this Redis, not to {keys.domain!r}:"
            " start under another policy.name"
        )
        yield "stored policy", error
    zone = found[keys.zone].get("timezone", policy.timezone.encode()).decode()
    if zone != policy.timezone:
        error = HatcastError(
            f"policy.timezone {policy.timezone!r}: the other policies of telemetry topic {keys.domain!r} have"
            f" {zone!r}, and all must have the same local days: use that"
        )
        yield "stored policy", error
    stored = found[keys.policy(policy.name)]
    if stored and stored["policy_id"].decode() != policy.policy_id:
        differing = differing_keys(stored["canonical"], policy.canonical)
        error = HatcastError(
            f"policy {policy.name!r} was started with another {differing}: a policy does not change; restore it, or"
            " start the new one under a new policy.name"
        )
        yield "stored policy", error
    if stored and int(stored["partitions"]) != partitions:
        yield "stored partitions", partition_count_error(policy.name, int(stored["partitions"]), partitions)


async def started_partitions(redis: AnyRedis, keys: DomainKeys, name: str) -> int:
    """Return the number of partitions with which a policy was started. Raises HatcastError if it was not."""
    key = keys.policy(name)
    stored: Any = await redis.hget(key, "partitions")  # bytes, but the types allow text
    if stored is None:
        raise HatcastError(f"no worker has started policy {name!r} on this Redis yet: start one, or check redis.url")
    count = number_of(key, stored)
    if not 0 < count <= _PARTITIONS_MAX:
        raise Damaged(key)
    return count


def partition_count_error(name: str, started: int, now: int | None) -> HatcastError:
    """Return the error for a changed partition count: the policy's users would be counted in two partitions."""
    return HatcastError(
        f"policy {name!r} was started with {started} telemetry partitions, the topic now has {now}: stop the feeds,"
        " close all slots by `hatcast worker --drain`, then start under a new policy.name (docs/runbook.md)"
    )


async def _claim(redis: AnyRedis, key: str, given: Mapping[str, str | bytes]) -> dict[str, bytes]:
    flat = await Script(redis, "claim")(keys=[key], args=[part for pair in given.items() for part in pair])
    with parsing(key):
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


async def _claim_key(redis: AnyRedis, keys: DomainKeys, users: Pseudonyms, *, given: bool) -> dict[str, bytes]:
    own: dict[str, str | bytes] = {} if given else {"key": users.key}
    return await _claim(redis, keys.user_key, {"fingerprint": users.fingerprint, **own})


async def claim_user_key(redis: AnyRedis, keys: DomainKeys, given: bytes | None) -> Pseudonyms:
    """Return the pseudonyms of this domain: from the given key, else from a key generated once and stored in Redis.

    Raises HatcastError if another key was used before: each user would count as two.
    """
    users = Pseudonyms(given if given is not None else secrets.token_bytes(KEY_BYTES))
    return _chosen_key(keys.user_key, await _claim_key(redis, keys, users, given=given is not None), given)


async def check_user_key(redis: AnyRedis, keys: DomainKeys, given: bytes | None) -> None:
    """Check that `claim_user_key` would succeed, without storing anything. Raises HatcastError as it does."""
    found: Any = await redis.hgetall(keys.user_key)
    if found:
        _chosen_key(keys.user_key, {field.decode(errors="replace"): value for field, value in found.items()}, given)


def _chosen_key(name: str, stored: Mapping[str, bytes], given: bytes | None) -> Pseudonyms:
    """Return the pseudonyms under the given key, else under the stored one.

    Raises HatcastError if they differ, and Damaged if the stored one is damaged: each user would count as two.
    """
    if given is None:
        if "key" not in stored:
            raise HatcastError(
                "this telemetry topic was started with a user key of your own: give it again"
                " (worker.user_key_file or HATCAST_USER_KEY)"
            )
        with parsing(name):
            pseudonyms = Pseudonyms(stored["key"])
            if stored["fingerprint"].decode() != pseudonyms.fingerprint:
                raise ValueError("the fingerprint is that of another key")
            return pseudonyms
    pseudonyms = Pseudonyms(given)
    if stored.get("fingerprint") != pseudonyms.fingerprint.encode():
        raise HatcastError(
            "this telemetry topic was started with another user key (worker.user_key_file or HATCAST_USER_KEY):"
            " restore it, or start on an empty Redis under a new policy.name"
        )
    return pseudonyms


async def restore_user_key(redis: AnyRedis, keys: DomainKeys, users: Pseudonyms, *, given: bool) -> None:
    """Store the user key in use again if Redis has lost it; otherwise the next start would generate another one.

    Raises HatcastError if Redis has another key by now.
    """
    if (await _claim_key(redis, keys, users, given=given))["fingerprint"].decode() != users.fingerprint:
        raise HatcastError(
            "Redis has lost the user key of this telemetry topic, and another worker has generated a new one since:"
            " start again"
        )
