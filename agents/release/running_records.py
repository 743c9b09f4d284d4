"""Messages of `hats.running`."""

import msgspec

from hatcast.agents.config.topics_table import TopicsTable
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.kafka.producers import Message
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.records import RunningRecord


def running_message(topics: TopicsTable, running: RunningRecord, partitions: int) -> Message:
    """Return the message of a running mean: equal for equal records. partitions: of the topic."""
    return Message(
        topic=topics.running,
        partition=by_murmur2(running.cell.encode(), partitions),
        key=f"{running.policy}/{running.name}/{running.cell}".encode(),
        value=msgspec.json.encode(running),
        headers=cloud_event("running", f"{running.running_id}/{running.stage}", topics.telemetry),
    )
