"""Producers that cannot be made: what whoever holds them is told."""

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from hatcast.agents.kafka.producers import TransactionalProducers


async def test_a_producer_that_finds_no_broker_named_is_a_kafka_that_is_away_and_not_the_workers_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(producer: AIOKafkaProducer) -> None:
        await producer.client.coordinator_lookup(1, "t")  # as its own start does; it knows no broker

    monkeypatch.setattr(AIOKafkaProducer, "start", start)
    producers = TransactionalProducers("domain", "policy", {"bootstrap_servers": "127.0.0.1:1"})
    with pytest.raises(KafkaConnectionError, match="no broker"):
        await producers.start_missing(frozenset({0}))
    assert producers.renewed() == frozenset()
