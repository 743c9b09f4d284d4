"""Compare a worker's settings with the records registered for its domain. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hatcast.agents.kafka.registry import Facts, PolicyRecord, UserKey
from hatcast.agents.redis.identity import partition_count_error
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.composed_limit import check_alone
from hatcast.stream.policy.table import differing_keys

_ROLES: Final = ("means", "queries", "budget", "reports")
_ROUNDING: Final = 1e-9
END_THE_OTHERS: Final = (
    "a tracker books a whole day, so whichever policy of this telemetry is first on a day leaves the others nothing:"
    " stop all but one, or let one replace the other"
)
RAISE_THE_LIMIT: Final = (
    "the running sums of a horizon are booked in full on each of its days, and daily_limit has no room for all: raise"
    " it in each policy of this telemetry, or stop all but one"
)
NEW_NAME: Final = "start under a new policy.name"
REPLACE: Final = "let a policy with a new policy.name replace it (policy.replaces and policy.from)"


def check_facts(facts: Facts, own: PolicyRecord) -> None:
    """Compare a worker's own record with all registered records of its domain.

    Raises HatcastError that names both values and the fix.
    """
    for other in facts.policies.values():
        if other.timezone != own.timezone:
            raise HatcastError(
                f"policy.timezone is {own.timezone!r}, policy {other.policy!r} of the same telemetry was started with"
                f" {other.timezone!r}, and policies of the same telemetry share their days: use {other.timezone!r}"
            )
    check_limits(facts, own.policy, bytes(own.canonical))
    if (stored := facts.policies.get(own.policy)) is not None:
        check_policy_record(stored, own)


def check_limits(facts: Facts, name: str, canonical: bytes) -> None:
    """Raise HatcastError if a policy shares days with another one, and the limit of either is for one policy alone."""
    known = {other: _keys_of(record) for other, record in facts.policies.items()}
    check_alone(name, msgspec.json.decode(canonical, type=dict[str, Any]), known)


def policies_beside_a_tracker(facts: Facts, own: PolicyRecord) -> list[str]:
    """Return the policies that share days with `own`, if it or one of them is a tracker, which books whole days.

    Policies of which one replaces the other have no day in common.
    """
    beside = _beside(facts, own)
    return sorted(beside) if any("tracker" in _keys_of(record) for record in (own, *beside.values())) else []


def policies_without_room(facts: Facts, own: PolicyRecord) -> list[str]:
    """Return policies that share days with `own` and running sums, if the daily limit is too small for both.

    Each horizon is booked in full on each of its days, and the smallest `daily_limit` of all policies applies.
    """
    beside = _beside(facts, own)
    policies = [_keys_of(record) for record in (own, *beside.values())]
    if not any("continual" in keys for keys in policies) or any("tracker" in keys for keys in policies):
        return []
    needed = sum(
        keys["privacy"].get("epsilon", 0.0) * keys.get("continual", {}).get("max_cells", 1) for keys in policies
    )
    limit = min(keys["privacy"]["daily_limit"] for keys in policies)
    return sorted(beside) if needed > limit * (1 + _ROUNDING) else []


def policies_that_show_zeros(facts: Facts, own: PolicyRecord) -> list[str]:
    """Return the other policies of this telemetry with `drop_zero`, if `own` does without it.

    Each of them makes public which readings were 0, so `own` does not hide it.
    """
    others = (record for name, record in facts.policies.items() if name != own.policy)
    return [] if _drops_zeros(own) else sorted(record.policy for record in others if _drops_zeros(record))


def _drops_zeros(record: PolicyRecord) -> bool:
    return bool(_keys_of(record).get("drop_zero", True))


def _beside(facts: Facts, own: PolicyRecord) -> dict[str, PolicyRecord]:
    policies = {**facts.policies, own.policy: own}
    apart = {own.policy, *_replaced(own, policies)}
    apart |= {name for name, record in policies.items() if own.policy in _replaced(record, policies)}
    return {name: record for name, record in policies.items() if name not in apart}


def _replaced(record: PolicyRecord, policies: Mapping[str, PolicyRecord]) -> set[str]:
    found: set[str] = set()
    name = record.replaces
    while name is not None and name not in found:
        found.add(name)
        name = None if name not in policies else policies[name].replaces
    return found


def _keys_of(record: PolicyRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.canonical, type=dict[str, Any])


def check_policy_record(stored: PolicyRecord, own: PolicyRecord) -> None:
    """Compare a worker's own record with the stored record of its policy. Raises HatcastError as `check_facts` does.

    If hatcast generated both user keys, they may differ: a generated key is lost if Redis loses its data.
    """
    name = own.policy
    if stored.domain != own.domain:
        raise HatcastError(
            f"policy {name!r} is a policy of telemetry {stored.domain!r}, not of {own.domain!r}: {NEW_NAME}"
        )
    if stored.policy_id != own.policy_id:
        differing = differing_keys(bytes(stored.canonical), bytes(own.canonical))
        raise HatcastError(
            f"policy {name!r} was started with another {differing}: a policy does not change; restore it, or start the"
            " new one under a new policy.name"
        )
    for role in _ROLES:
        before, now = getattr(stored.topics, role), getattr(own.topics, role)
        if before != now:
            raise _changed(name, f"topics.{role}", before, now)
    if stored.partitioner != own.partitioner:
        raise _changed(name, "topics.telemetry_partitioner", stored.partitioner, own.partitioner)
    if stored.partitions != own.partitions:
        raise partition_count_error(name, stored.partitions, own.partitions)
    _check_reading_map(stored, own)
    check_topic_id(name, own.domain, stored.telemetry_id, own.telemetry_id)
    if own.topics.reports is not None:
        check_topic_id(name, own.topics.reports, stored.reports_id, own.reports_id)
    _check_user_key(name, stored.user_key, own.user_key)


def _changed(name: str, key: str, before: str | None, now: str | None, fix: str = NEW_NAME) -> HatcastError:
    return HatcastError(
        f"{key} is {now!r}, policy {name!r} was started with {before!r}: set {key} to {before!r} again, or {fix}"
    )


def _check_reading_map(stored: PolicyRecord, own: PolicyRecord) -> None:
    """Raise HatcastError if records would be read in another way: a bus could count as two, or enter a day again."""
    if stored.telemetry_format != own.telemetry_format:
        raise _changed(own.policy, "topics.telemetry_format", stored.telemetry_format, own.telemetry_format, REPLACE)
    if stored.reading_rules != own.reading_rules:
        raise HatcastError(
            f"this hatcast reads records by rules {own.reading_rules}, policy {own.policy!r} was started under rules"
            f" {stored.reading_rules}, and one bus could count as two: run a hatcast with rules"
            f" {stored.reading_rules}, or {REPLACE}"
        )


def check_topic_id(policy: str, topic: str, registered: str | None, now: str | None) -> None:
    """Raise HatcastError if a topic was deleted and created again. An unknown id (None) is accepted."""
    if registered is not None and now is not None and registered != now:
        raise HatcastError(
            f"topic {topic!r} was deleted and created again since policy {policy!r} was started (its id was"
            f" {registered}, now it is {now}): the stored state belongs to the old topic; to use the new one,"
            f" {NEW_NAME}"
        )


def _check_user_key(name: str, stored: UserKey, own: UserKey) -> None:
    where = "worker.user_key_file or HATCAST_USER_KEY"
    before = f"policy {name!r} was started with one that hatcast generated (fingerprint {stored.fingerprint})"
    if not stored.made:
        before = f"policy {name!r} was started with a user key of your own (fingerprint {stored.fingerprint})"
    if stored.made and not own.made:
        raise HatcastError(
            f"another user key is configured (fingerprint {own.fingerprint}), {before}: remove {where}, or {NEW_NAME}"
        )
    if not stored.made and own.made:
        raise HatcastError(f"no user key is configured, {before}: configure it again ({where}), or {NEW_NAME}")
    if not stored.made and stored.fingerprint != own.fingerprint:
        raise HatcastError(
            f"another user key is configured (fingerprint {own.fingerprint}), {before}: restore it ({where}), or"
            f" {NEW_NAME}"
        )


def with_current_key(stored: PolicyRecord, own: PolicyRecord) -> PolicyRecord:
    """Return the stored record with the worker's user key, and with its topic ids where none are stored."""
    return msgspec.structs.replace(
        stored,
        user_key=own.user_key,
        telemetry_id=stored.telemetry_id or own.telemetry_id,
        reports_id=stored.reports_id or own.reports_id,
    )


def check_policy_name(name: str, own: str, records: Iterable[PolicyRecord]) -> None:
    """Raise HatcastError if another domain of this Kafka has a policy of that name: it names groups and keys."""
    for record in records:
        if record.policy == name and record.domain != own:
            raise HatcastError(
                f"policy.name {name!r} is the name of a policy of telemetry {record.domain!r} on this Kafka: consumer"
                f" groups and release_ids contain the policy's name, so {NEW_NAME}"
            )
