"""Real Kafka and Redis for tests and benches: plain context managers first, pytest fixtures as a thin layer over them.

``with open_kafka() as kafka, open_redis() as redis_server:`` works anywhere; the fixtures are in ``fixtures.py``.
"""

from tests.services.absent import ServiceAbsent
from tests.services.kafka_server import KafkaServer, Received, Record, docker_kafka, local_kafka, open_kafka
from tests.services.lifecycle import NotOurs, ServerDidNotStart
from tests.services.redis_server import RedisServer, docker_redis, local_redis, open_redis

__all__ = [
    "KafkaServer",
    "NotOurs",
    "Received",
    "Record",
    "RedisServer",
    "ServerDidNotStart",
    "ServiceAbsent",
    "docker_kafka",
    "docker_redis",
    "local_kafka",
    "local_redis",
    "open_kafka",
    "open_redis",
]
