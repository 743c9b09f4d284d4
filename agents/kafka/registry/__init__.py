"""The registry: what must never change about a domain's policies, kept in Kafka.    [decisions/0026]

`records` has the types, `topic` reads and writes the registry topic, `checks` compares it with a worker's own settings.
"""

from hatcast.agents.kafka.registry.records import Facts, OutputTopics, PolicyRecord, Topics, UserKey, policy_key
from hatcast.agents.kafka.registry.topic import Registry, read_registry

__all__ = [
    "Facts",
    "OutputTopics",
    "PolicyRecord",
    "Registry",
    "Topics",
    "UserKey",
    "policy_key",
    "read_registry",
]
