"""Registry topic: facts about a domain's policies that must never change, stored in Kafka.    [decisions/0026]

`records` has the record types, `topic` reads and writes the topic, `checks` compares it with a worker's settings.
"""

from hatcast.agents.kafka.registry.records import (
    Facts,
    OutputTopics,
    PolicyRecord,
    Topics,
    UserKey,
    decode_record,
    policy_key,
)
from hatcast.agents.kafka.registry.topic import Registry, read_registry

__all__ = [
    "Facts",
    "OutputTopics",
    "PolicyRecord",
    "Registry",
    "Topics",
    "UserKey",
    "decode_record",
    "policy_key",
    "read_registry",
]
