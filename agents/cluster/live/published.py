"""Compare the state file of a clustering with its published records: an older copy would draw noise again.

A state file is durable before a byte of it is sent. So everything on `hats.clusters` is in the file, with the same
bytes, unless the file is an older copy that was put back, or another copy is in use. What was drawn after the copy is
published through the centres that follow from it, and the charge is for one draw.
"""

from pathlib import Path
from typing import Final

from hatcast.agents.cluster.live.state import State
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.partition_reader import is_end, next_messages, open_consumer
from hatcast.stream.errors import HatcastError

PARTITION: Final = 0  # the topic has one
RESULT: Final = "result"
_BATCH: Final = 500
_POLL_S: Final = 0.1


def check_published(settings: Settings, state: State, path: Path) -> set[str]:
    """Check the published records of a clustering against its state file; return their rounds, and `result`.

    path   of the state file
    Raises HatcastError if the state file does not have it with the same bytes.
    """
    published = _published(settings, state.plan.clustering)
    for name, record in published.items():
        if record != _stored(state, name):
            raise HatcastError(
                f"{path} does not have what {settings.topics.clusters} has of this clustering ({name}): it is an older"
                " copy, or another copy is in use, and would draw noise again that is charged once; go on with the"
                " newest file, or start a new clustering with another --state"
            )
    return {*published}


def _stored(state: State, name: str) -> bytes | None:
    if name == RESULT:
        return state.result
    stored = state.round(int(name)) if name.isdecimal() and len(name) < 10 else None
    return None if stored is None else stored[0]


def _published(settings: Settings, clustering: str) -> dict[str, bytes]:
    """Return round or `result` -> the newest record of a clustering on `hats.clusters`."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

    found: dict[str, bytes] = {}
    try:
        with open_consumer(settings, "cluster", {}) as consumer:
            consumer.assign([TopicPartition(settings.topics.clusters, PARTITION, OFFSET_BEGINNING)])
            while True:
                for message in next_messages(consumer, _BATCH, _POLL_S):
                    if is_end(message):
                        return found
                    owner, _, name = (message.key() or b"").decode(errors="replace").partition("/")
                    if owner == clustering:
                        found[name] = message.value() or b""
    except KafkaException as error:
        raise HatcastError(
            f"{broker_name(settings)} does not show {settings.topics.clusters} ({error.args[0].str()}): grant Read on"
            " it, or start again with the same --state"
        ) from None
