"""Settings fixed at the first start: the policy under a name, the partition count, the user key."""

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
    """Store the policy, its partition count and time zone at a first start; later, check that they are the same.

    Raises HatcastError as `check_policy` does.
    """
    given = _claims(keys, policy, partitions)
    _compare(keys, policy, partitions, {key: await _claim(redis, key, fields) for key, fields in given.items()})


async def check_policy(redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int) -> None:
    """Check that `claim_policy` would succeed, without storing anything.

    Raises HatcastError, with what to do: some keys of the policy differ, the partition count differs, another telemetry
    topic uses the name, or the domain has another time zone.
    """
    stored: dict[str, Any] = {key: await redis.hgetall(key) for key in _claims(keys, policy, partitions)}
    found = {key: {field.decode(): value for field, value in fields.items()} for key, fields in stored.items()}
    _compare(keys, policy, partitions, found)


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


def _compare(keys: DomainKeys, policy: Policy, partitions: int, found: Mapping[str, Mapping[str, bytes]]) -> None:
    """Raise HatcastError if the stored values differ from the given ones; missing keys are allowed."""
    domain = found[keys.owner(policy.name)].get("domain", keys.domain.encode()).decode()
    if domain != keys.domain:
        raise HatcastError(
            f"policy {policy.name!r} belongs to telemetry topic {domain!r} on this Redis, not to {keys.domain!r}: start"
            " under another policy.name"
        )
    zone = found[keys.zone].get("timezone", policy.timezone.encode()).decode()
    if zone != policy.timezone:
        raise HatcastError(
            f"policy.timezone {policy.timezone!r}: the other policies of telemetry topic {keys.domain!r} have {zone!r},"
            " and all must have the same local days: use that"
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
        raise partition_count_error(policy.name, int(stored["partitions"]), partitions)


def partition_count_error(name: str, started: int, now: int | None) -> HatcastError:
    """Return the error for a changed partition count: the policy's users would be counted in two partitions."""
    return HatcastError(
        f"policy {name!r} was started with {started} telemetry partitions, the topic now has {now}: stop the feeds, let"
        " all slots close with the old count, then start under a new policy.name"
    )


async def _claim(redis: AnyRedis, key: str, given: Mapping[str, str | bytes]) -> dict[str, bytes]:
    flat = await Script(redis, "claim")(keys=[key], args=[part for pair in given.items() for part in pair])
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


async def claim_user_key(redis: AnyRedis, keys: DomainKeys, given: bytes | None) -> Pseudonyms:
    """Return the pseudonyms of this domain: from the given key, else from a key generated once and stored in Redis.

    Raises HatcastError if another key was used before: each user would count as two.
    """
    key = given if given is not None else secrets.token_bytes(KEY_BYTES)
    pseudonyms = Pseudonyms(key)
    fields: dict[str, str | bytes] = {"fingerprint": pseudonyms.fingerprint}
    if given is None:
        fields["key"] = key
    stored = await _claim(redis, keys.user_key, fields)
    if given is None:
        if "key" not in stored:
            raise HatcastError(
                "this telemetry topic was started with a user key of your own: give it again"
                " (worker.user_key_file or HATCAST_USER_KEY)"
            )
        return Pseudonyms(stored["key"])
    if stored["fingerprint"].decode() != pseudonyms.fingerprint:
        raise HatcastError(
            "this telemetry topic was started with another user key (worker.user_key_file or HATCAST_USER_KEY):"
            " restore it, or start on an empty Redis under a new policy.name"
        )
    return pseudonyms


async def restore_user_key(redis: AnyRedis, keys: DomainKeys, users: Pseudonyms, *, given: bool) -> None:
    """Store the user key in use again if Redis has lost it; otherwise the next start would generate another one.

    Raises HatcastError if Redis has another key by now.
    """
    fields: dict[str, str | bytes] = {"fingerprint": users.fingerprint}
    if not given:
        fields["key"] = users.key
    if (await _claim(redis, keys.user_key, fields))["fingerprint"].decode() != users.fingerprint:
        raise HatcastError(
            "Redis has lost the user key of this telemetry topic, and another worker has generated a new one since:"
            " start again"
        )
