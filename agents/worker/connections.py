"""Connections of a worker, and the stores behind them."""

from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore


@dataclass(frozen=True, slots=True)
class Connections:
    """Settings and connections that the parts of one worker share.

    partitions   number of telemetry partitions
    client       options of aiokafka
    producer     sends dead letters, heartbeats and budget records
    topic_ids    reads topic ids; None: they are not compared
    """

    settings: Settings
    partitions: int
    client: dict[str, Any]
    redis: AnyRedis
    producer: AIOKafkaProducer
    topic_ids: TopicIds | None
    store: HatStore
    ledger: LedgerStore
