"""The records of the registry topic, and the facts that a reader makes of them.    [docs/reliability.md, The registry]

Keys are `KIND/NAME`; a reader ignores the kinds that it does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from hatcast.stream.errors import HatcastError

_POLICY: Final = "policy/"


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a policy's topics beside telemetry: what it publishes, and what its devices send."""

    means: str
    queries: str
    budget: str
    reports: str | None = None


class UserKey(msgspec.Struct, frozen=True, kw_only=True):
    """The user key, named by its fingerprint. `made`: by hatcast, and stored in Redis; else given by the operator."""

    fingerprint: str
    made: bool


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed at the first start of a policy. Stored under the key `policy/NAME`.

    domain          the telemetry topic
    canonical       what `policy_id` is the hash of
    telemetry_id    Kafka's id of the telemetry topic, as its own tools print it; None: the broker has no topic ids
    reports_id      the same of the reports topic
    partitions      of telemetry
    first_date      the first local date of a policy that has one: `policy.from`, or that of the first slot
    first_slot_ms   start of the first slot under `add_remove` (ms UTC)
    """

    domain: str
    policy: str
    policy_id: str
    canonical: msgspec.Raw
    topics: Topics
    telemetry_id: str | None
    reports_id: str | None = None
    partitions: int
    partitioner: str
    timezone: str
    user_key: UserKey
    first_date: str | None = None
    first_slot_ms: int | None = None
    replaces: str | None = None

    def encoded(self) -> bytes:
        """The record's value."""
        return msgspec.json.encode(self)

    @classmethod
    def decoded(cls, value: bytes) -> Self:
        """The record in a value. Raises msgspec.DecodeError."""
        return msgspec.json.decode(value, type=cls)


@dataclass(frozen=True, slots=True)
class OutputTopics:
    """The names of all output topics that the policies of a domain have ever used, by what they hold."""

    means: frozenset[str] = frozenset()
    queries: frozenset[str] = frozenset()
    budget: frozenset[str] = frozenset()

    @property
    def releases(self) -> frozenset[str]:
        """The topics with releases: means, and answers to queries."""
        return self.means | self.queries

    @property
    def all(self) -> frozenset[str]:
        """Every one of them."""
        return self.releases | self.budget

    def with_topics(self, topics: Topics) -> "OutputTopics":
        """These, and those of one policy."""
        return OutputTopics(self.means | {topics.means}, self.queries | {topics.queries}, self.budget | {topics.budget})


@dataclass(frozen=True, slots=True)
class Facts:
    """What the registry of one domain says.

    values      key -> newest value, of the records of every kind
    policies    policy name -> its record
    """

    values: Mapping[str, bytes] = field(default_factory=dict)
    policies: Mapping[str, PolicyRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, topic: str, values: Mapping[str, bytes]) -> Self:
        """The facts in the newest values by key. Raises HatcastError if a policy's record cannot be read."""
        policies = {}
        for key, value in values.items():
            if key.startswith(_POLICY):
                try:
                    policies[key.removeprefix(_POLICY)] = PolicyRecord.decoded(value)
                except msgspec.DecodeError:
                    raise HatcastError(
                        f"topic {topic}: the record {key!r} cannot be read: a newer hatcast wrote it, or something else"
                        " did; start the newer version, or remove what wrote it and send the record's older value again"
                    ) from None
        return cls(values, policies)

    def of_kind(self, prefix: str) -> dict[str, bytes]:
        """Name -> value, of the records whose keys start with a prefix such as `policy/`."""
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def output_topics(self) -> OutputTopics:
        """Every output topic that a policy of this domain has ever used."""
        found = OutputTopics()
        for record in self.policies.values():
            found = found.with_topics(record.topics)
        return found


def policy_key(name: str) -> str:
    """The key of a policy's record."""
    return _POLICY + name
