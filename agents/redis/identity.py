"""What is fixed at the first start: the policy under a name, the partition count, the user key.    [design 4]"""

import secrets
from collections.abc import Mapping
from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms


async def claim_policy(redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int) -> None:
    """Keep the policy, its partition count and its time zone at a first start; refuse to go on under others.

    Raises HatcastError as `check_policy` does.
    """
    given = _first_start(keys, policy, partitions)
    _compare(keys, policy, partitions, {key: await _claim(redis, key, fields) for key, fields in given.items()})


async def check_policy(redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int) -> None:
    """See whether `claim_policy` would refuse, and keep nothing.

    Raises HatcastError that names the keys that differ, or both partition counts, and the way out; or that the name is taken
    by another telemetry, or that the domain has another time zone.
    """
    stored: dict[str, Any] = {key: await redis.hgetall(key) for key in _first_start(keys, policy, partitions)}
    found = {key: {field.decode(): value for field, value in fields.items()} for key, fields in stored.items()}
    _compare(keys, policy, partitions, found)


def _first_start(keys: DomainKeys, policy: Policy, partitions: int) -> dict[str, Mapping[str, str | bytes]]:
    """What a first start keeps, by key."""
    return {
        keys.owner(policy.name): {"domain": keys.domain},
        keys.zone: {"timezone": policy.timezone},
        keys.policy(policy.name): {
            "canonical": policy.canonical,
            "policy_id": policy.policy_id,
            "partitions": str(partitions),
        },
    }


def _compare(keys: DomainKeys, policy: Policy, partitions: int, found: Mapping[str, Mapping[str, bytes]]) -> None:
    """What is stored, where anything is, beside what is given."""
    domain = found[keys.owner(policy.name)].get("domain", keys.domain.encode()).decode()
    if domain != keys.domain:
        raise HatcastError(
            f"policy {policy.name!r} is a policy of telemetry {domain!r} on this Redis, not of {keys.domain!r}: start"
            " under another policy.name"
        )
    zone = found[keys.zone].get("timezone", policy.timezone.encode()).decode()
    if zone != policy.timezone:
        raise HatcastError(
            f"policy.timezone {policy.timezone!r}: the policies of telemetry {keys.domain!r} have {zone!r}, and a day"
            " of one has to be a day of the others: use that"
        )
    stored = found[keys.policy(policy.name)]
    if not stored:
        return
    if stored["policy_id"].decode() != policy.policy_id:
        raise HatcastError(
            f"policy {policy.name!r} was started with another {differing_keys(stored['canonical'], policy.canonical)}:"
            " a policy does not change; restore it, or start the new one under a new policy.name"
        )
    if int(stored["partitions"]) != partitions:
        raise other_count(policy.name, int(stored["partitions"]), partitions)


def other_count(name: str, started: int, now: int | None) -> HatcastError:
    """Why a policy cannot go on with another partition count: its users would be counted in two places."""
    return HatcastError(
        f"policy {name!r} was started with {started} telemetry partitions, the topic now has {now}: stop the feeds, let"
        " all slots close with the old count, then start under a new policy.name"
    )


async def _claim(redis: AnyRedis, key: str, given: Mapping[str, str | bytes]) -> dict[str, bytes]:
    flat = await Script(redis, "claim")(keys=[key], args=[part for pair in given.items() for part in pair])
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


async def claim_user_key(redis: AnyRedis, keys: DomainKeys, given: bytes | None) -> Pseudonyms:
    """The pseudonyms of this domain: from the given key, else from one made once and kept in Redis.

    Raises HatcastError if another key was used before: its users would count as others.
    """
    key = given if given is not None else secrets.token_bytes(KEY_BYTES)
    made = Pseudonyms(key)
    kept: dict[str, str | bytes] = {"fingerprint": made.fingerprint}
    if given is None:
        kept["key"] = key
    stored = await _claim(redis, keys.user_key, kept)
    if given is None:
        if "key" not in stored:
            raise HatcastError(
                "this telemetry was started with a user key of your own: give it again"
                " (worker.user_key_file or HATCAST_USER_KEY)"
            )
        return Pseudonyms(stored["key"])
    if stored["fingerprint"].decode() != made.fingerprint:
        raise HatcastError(
            "this telemetry was started with another user key (worker.user_key_file or HATCAST_USER_KEY):"
            " restore it, or start on an empty Redis under a new policy.name"
        )
    return made


async def keep_user_key(redis: AnyRedis, keys: DomainKeys, users: Pseudonyms, *, given: bool) -> None:
    """Keep the key in use again where Redis has lost it: emptied or set back, it would let the next start make another.

    Raises HatcastError if there is another one by now.
    """
    kept: dict[str, str | bytes] = {"fingerprint": users.fingerprint}
    if not given:
        kept["key"] = users.key
    if (await _claim(redis, keys.user_key, kept))["fingerprint"].decode() != users.fingerprint:
        raise HatcastError(
            "Redis has lost the user key of this telemetry, and another worker has made a new one since: start again"
        )
