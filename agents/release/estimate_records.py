"""Estimate records: one for each cell after each slot, from the records of `hats.means` alone."""

import msgspec

from hatcast.agents.config.topics_table import TopicsTable
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.kafka.producers import Message
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.records import EstimateRecord


def estimate_message(topics: TopicsTable, estimate: EstimateRecord, partitions: int) -> Message:
    """Return the message of an estimate: equal for equal estimates. partitions: of the topic."""
    return Message(
        topic=topics.estimates,
        partition=by_murmur2(estimate.cell.encode(), partitions),
        key=estimate.estimate_id.encode(),
        value=msgspec.json.encode(estimate),
        headers=cloud_event("estimate", f"{estimate.estimate_id}/{estimate.stage}", topics.telemetry),
    )
