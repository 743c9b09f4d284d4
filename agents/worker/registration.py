"""Register a policy's permanent facts in the registry topic, and claim it in Redis, which caches them.

In this order: compare with both without a write (`check`), register, then claim in Redis (`register`). Whatever Redis
loses later is restored (`restore`) whenever a partition's state is loaded.    [decisions/0026]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka import registry_checks
from hatcast.agents.kafka.registry import POLICY_KEY, Facts, PolicyRecord, PolicyTopics, Registry, UserKey
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.redis import identity
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import with_retries
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.policy_state import ProgressStore
from hatcast.agents.redis.recovery import SealStore
from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.sealed_days import check_lost
from hatcast.stream.policy.policy import Relation
from hatcast.stream.readings.reading import READING_RULES
from hatcast.stream.readings.vehicles import Pseudonyms
from hatcast.stream.release.schedule import first_slot_ms

log = structlog.get_logger()


class Registration:
    """Registration of one worker's policy."""

    def __init__(
        self, settings: Settings, redis: AnyRedis, partitions: int, topic_ids: Mapping[str, str | None]
    ) -> None:
        """Args: `topic_ids`, of telemetry, and of reports if the policy takes them."""
        self._settings = settings
        self._policy = settings.policy
        self._redis = redis
        self._partitions = partitions
        self._topic_ids = topic_ids
        self._registry = Registry(settings)
        self._domain = DomainKeys(settings.topics.telemetry)
        self._progress = ProgressStore(redis, settings.topics.telemetry, self._policy.name)

    async def check(self) -> None:
        """Compare with Redis and the registry, without a write; raise the first error of these. Raises KafkaError too.

        `hatcast doctor` shows all of them.
        """
        for _, error in [*await self.redis_errors(), *await self.registry_errors()]:
            raise error

    async def redis_errors(self) -> list[tuple[str, HatcastError]]:
        """Compare with Redis; return name and error of each failed check. Raises HatcastError if it does not answer."""
        return await with_retries(self._settings, self._redis_errors)

    async def registry_errors(self) -> list[tuple[str, HatcastError]]:
        """Return the error of the comparison with the registry, if there is one.

        Seals that Redis has lost are part of it. Raises HatcastError if Redis does not answer, and KafkaError.
        """
        name, own = self._policy.name, self._own(configured_key(self._settings))
        try:
            facts = await self._registry.read()
            registry_checks.check_facts(facts, own)
            if name not in facts.policies:
                registry_checks.check_policy_name(name, own.domain, await self._registry.read_others())
            sealed = Domain.of(facts, self._settings, self._partitions).sealed
            seals = SealStore(self._redis, own.domain)
            lost = await with_retries(self._settings, lambda: seals.missing(sealed))
            check_lost(lost.values(), Calendar(self._policy))
        except HatcastError as error:
            return [("registry", error)]
        return []

    async def register(self) -> "Registered":
        """Register the policy, or check it against the registered record; then claim policy and user key in Redis.

        Raises HatcastError as `check` does, OtherUserKey, and KafkaError.
        """
        settings, policy = self._settings, self._policy
        facts = await self._registry.read()
        pseudonyms = await with_retries(settings, lambda: self._choose_user_key(facts))
        own = self._own(UserKey(fingerprint=pseudonyms.fingerprint, made=settings.user_key is None))
        if policy.relation is Relation.ADD_REMOVE:
            own = await with_retries(settings, lambda: self._with_first_slot(own))
        before = facts.policies.get(policy.name)
        facts = await self._registry.write(lambda found: _decide(found, own))
        registered = Registered(settings, self._redis, facts.policies[policy.name], pseudonyms, self._progress)
        if before is None:
            log.info("policy registered", policy=policy.name, policy_id=policy.policy_id)
        elif before.user_key != registered.record.user_key:
            log.warning("another user key is registered: Redis has lost the first one", policy=policy.name)
        if beside := registry_checks.policies_beside_a_tracker(facts, registered.record):
            log.warning(registry_checks.END_THE_OTHERS, policy=policy.name, beside=beside)
        if beside := registry_checks.policies_without_room(facts, registered.record):
            log.warning(registry_checks.RAISE_THE_LIMIT, policy=policy.name, beside=beside)
        await with_retries(settings, registered.restore)
        return registered

    async def _redis_errors(self) -> list[tuple[str, HatcastError]]:
        found = await identity.policy_errors(self._redis, self._domain, self._policy, self._partitions)
        try:
            await identity.check_user_key(self._redis, self._domain, self._settings.user_key)
        except HatcastError as error:
            found.append(("user key", error))
        cached: Any = await self._redis.get(self._domain.registered(self._policy.name))
        if cached is not None and not found:
            try:
                stored = msgspec.json.decode(cached, type=PolicyRecord)
                registry_checks.check_policy_record(stored, self._own(configured_key(self._settings)))
            except UNREADABLE:
                pass  # of another version; the registry has it too
            except HatcastError as error:
                found.append(("registry", error))
        return found

    def _own(self, user_key: UserKey) -> PolicyRecord:
        return own_record(self._settings, self._partitions, self._topic_ids, user_key)

    async def _with_first_slot(self, own: PolicyRecord) -> PolicyRecord:
        """Add the first slot under `add_remove`: the one in Redis, else the one that begins next."""
        calendar = Calendar(self._policy)
        first_ms = (await self._progress.read()).first_ms
        if first_ms is None:
            first_ms = first_slot_ms(calendar, now_ms())
        date = own.first_date or calendar.local(first_ms).date().isoformat()
        return msgspec.structs.replace(own, first_date=date, first_slot_ms=first_ms)

    async def _choose_user_key(self, facts: Facts) -> Pseudonyms:
        """Return pseudonyms under the given key, else under the key that hatcast made.

        A made key that Redis has lost is restored if a partition state under it is left.
        Raises OtherUserKey if states of this policy were folded under another key than is used now.
        """
        given, name = self._settings.user_key, self._policy.name
        stored = facts.policies.get(name)
        if given is None:
            registered = stored or next(iter(facts.policies.values()), None)
            fingerprint = registered.user_key.fingerprint if registered is not None else None
            copies = [
                copy for _, copy in await identity.stored_user_keys(self._redis, _states(facts, self._own_states()))
            ]
            await identity.restore_made_key(self._redis, self._domain, fingerprint, copies)
        users = await identity.claim_user_key(self._redis, self._domain, given)
        if stored is not None and stored.user_key.fingerprint != users.fingerprint:
            for keys, copy in await identity.stored_user_keys(self._redis, self._own_states()):
                if copy.fingerprint != users.fingerprint:
                    raise identity.user_key_mismatch(keys.name, keys.partition, copy.fingerprint, users.fingerprint)
        return users

    def _own_states(self) -> list[PartitionKeys]:
        return _states_of(self._policy.name, self._partitions, reports=self._policy.takes_reports)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered policy."""

    settings: Settings
    redis: AnyRedis
    record: PolicyRecord  # as the registry has it
    pseudonyms: Pseudonyms  # under the domain's user key
    progress: ProgressStore

    async def restore(self) -> None:
        """Restore policy and user key in Redis, which may have lost them. Raises HatcastError if one has changed."""
        redis, policy, domain = self.redis, self.settings.policy, DomainKeys(self.settings.topics.telemetry)
        await identity.claim_policy(redis, domain, policy, self.record.partitions)
        await redis.set(domain.registered(policy.name), msgspec.json.encode(self.record))
        await identity.restore_user_key(redis, domain, self.pseudonyms, given=self.settings.user_key is not None)
        if self.record.first_slot_ms is not None:
            await self.progress.restore(self.record.first_slot_ms)


def configured_key(settings: Settings) -> UserKey:
    """Return the user key as configured; the fingerprint of a key that hatcast makes is unknown ("")."""
    given = settings.user_key
    return UserKey(fingerprint="" if given is None else Pseudonyms(given).fingerprint, made=given is None)


def own_record(
    settings: Settings, partitions: int, topic_ids: Mapping[str, str | None], user_key: UserKey
) -> PolicyRecord:
    """Return the policy's record by these settings. `partitions`: of telemetry; `topic_ids`: of the topics read."""
    topics, policy = settings.topics, settings.policy
    reports = topics.reports if policy.takes_reports else None
    return PolicyRecord(
        domain=topics.telemetry,
        policy=policy.name,
        policy_id=policy.policy_id,
        canonical=msgspec.Raw(policy.canonical),
        topics=PolicyTopics(means=topics.means, queries=topics.queries, budget=topics.budget, reports=reports),
        telemetry_id=topic_ids.get(topics.telemetry),
        reports_id=None if reports is None else topic_ids.get(reports),
        partitions=partitions,
        partitioner=topics.telemetry_partitioner,
        telemetry_format=topics.telemetry_format,
        reading_rules=READING_RULES,
        timezone=policy.timezone,
        user_key=user_key,
        first_date=policy.from_date,
        replaces=policy.replaces,
    )


def _decide(facts: Facts, own: PolicyRecord) -> dict[str, bytes]:
    """Return the record to write, none if it is registered already. Raises HatcastError if the registry differs."""
    registry_checks.check_facts(facts, own)
    stored = facts.policies.get(own.policy)
    wanted = own if stored is None else registry_checks.with_current_key(stored, own)
    return {} if stored == wanted else {f"{POLICY_KEY}{own.policy}": msgspec.json.encode(wanted)}


def _states(facts: Facts, own: list[PartitionKeys]) -> list[PartitionKeys]:
    """Return the partition states of all policies of the domain."""
    registered = [
        keys
        for record in facts.policies.values()
        for keys in _states_of(record.policy, record.partitions, reports=record.topics.reports is not None)
    ]
    return list(dict.fromkeys([*own, *registered]))


def _states_of(name: str, partitions: int, *, reports: bool) -> list[PartitionKeys]:
    names = [name, f"{name}/reports"] if reports else [name]
    return [PartitionKeys(each, partition) for each in names for partition in range(partitions)]
