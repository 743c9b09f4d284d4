"""What is fixed at the first start: the policy under a name, the partition count, the user key.    [design 4]"""

import secrets
from collections.abc import Mapping

from agents.redis_connection import AnyRedis
from agents.store.keys import DomainKeys
from agents.store.scripts import Script
from stream.errors import Refusal
from stream.policy import Policy
from stream.policy_table import differing_keys
from stream.pseudonyms import KEY_BYTES, Pseudonyms


async def claim_policy(redis: AnyRedis, keys: DomainKeys, policy: Policy, partitions: int) -> None:
    """Keep the policy and the partition count of a first start; refuse to go on under others.

    Raises Refusal that names the keys that differ, or both partition counts, and the way out.
    """
    given: dict[str, str | bytes] = {
        "canonical": policy.canonical,
        "policy_id": policy.policy_id,
        "partitions": str(partitions),
    }
    stored = await _claim(redis, keys.policy(policy.name), given)
    if stored["policy_id"].decode() != policy.policy_id:
        raise Refusal(
            f"policy {policy.name!r} was started with another {differing_keys(stored['canonical'], policy.canonical)}:"
            " a policy does not change; restore it, or start the new one under a new policy.name"
        )
    if int(stored["partitions"]) != partitions:
        raise Refusal(
            f"policy {policy.name!r} was started with {int(stored['partitions'])} telemetry partitions, the topic now"
            f" has {partitions}: stop the feeds, let all slots close with the old count, then start under a new"
            " policy.name"
        )


async def _claim(redis: AnyRedis, key: str, given: Mapping[str, str | bytes]) -> dict[str, bytes]:
    flat = await Script(redis, "claim")(keys=[key], args=[part for pair in given.items() for part in pair])
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


async def claim_user_key(redis: AnyRedis, keys: DomainKeys, given: bytes | None) -> Pseudonyms:
    """The pseudonyms of this domain: from the given key, else from one made once and kept in Redis.

    Raises Refusal if another key was used before: its users would count as others.
    """
    key = given if given is not None else secrets.token_bytes(KEY_BYTES)
    made = Pseudonyms(key)
    kept: dict[str, str | bytes] = {"fingerprint": made.fingerprint}
    if given is None:
        kept["key"] = key
    stored = await _claim(redis, keys.user_key, kept)
    if given is None:
        if "key" not in stored:
            raise Refusal(
                "this telemetry was started with a user key of your own: give it again"
                " (worker.user_key_file or HATCAST_USER_KEY)"
            )
        return Pseudonyms(stored["key"])
    if stored["fingerprint"].decode() != made.fingerprint:
        raise Refusal(
            "this telemetry was started with another user key (worker.user_key_file or HATCAST_USER_KEY):"
            " restore it, or start on an empty Redis under a new policy.name"
        )
    return made


async def keep_user_key(redis: AnyRedis, keys: DomainKeys, users: Pseudonyms, *, given: bool) -> None:
    """Keep the key in use again where Redis has lost it: emptied or set back, it would let the next start make another.

    Raises Refusal if there is another one by now.
    """
    kept: dict[str, str | bytes] = {"fingerprint": users.fingerprint}
    if not given:
        kept["key"] = users.key
    if (await _claim(redis, keys.user_key, kept))["fingerprint"].decode() != users.fingerprint:
        raise Refusal(
            "Redis has lost the user key of this telemetry, and another worker has made a new one since: start again"
        )
