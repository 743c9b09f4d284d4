"""The fixtures that every test may use. One Kafka and one Redis a process; each test has its own topics and keys."""

import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.services import data
from tests.services.absent import ServiceAbsent
from tests.services.kafka_server import PARTITIONS, KafkaServer, open_kafka
from tests.services.mosquitto import Mosquitto, local_mosquitto
from tests.services.postgres import local_postgres
from tests.services.rabbitmq import RabbitMQ, local_rabbitmq
from tests.services.redis_server import RedisServer, open_redis


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real Kafka with ``bootstrap_servers``, ``create_topic``, ``produce`` and ``read``."""
    with open_kafka() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A real Redis, append-only, with ``url`` and ``client()``."""
    with open_redis() as server:
        yield server


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """A real MQTT broker, without TLS and with it; a test that stops it starts it again."""
    with local_mosquitto() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A real AMQP broker, without TLS and with it; it takes six seconds of a processor to start: use it in one file."""
    with local_rabbitmq() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL: use it in one file."""
    with local_postgres() as server:
        yield server


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without hatcast.toml, whose policy commands would take: the repository has one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a name as short as those of common systems."""
    with tempfile.TemporaryDirectory(prefix="hatcast-test-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def breakable_kafka(kafka: KafkaServer) -> Iterator[KafkaServer]:
    """The same Kafka for a test that stops, kills or pauses it; it works again after the test."""
    if kafka.lifecycle is None:
        raise ServiceAbsent("no Kafka of our own to break: unset HATCAST_TEST_KAFKA")
    yield kafka
    kafka.heal()


@pytest.fixture
def breakable_redis(redis_server: RedisServer) -> Iterator[RedisServer]:
    """The same Redis for a test that stops, kills, pauses or empties it; it works again after the test."""
    if redis_server.lifecycle is None:
        raise ServiceAbsent("no Redis of our own to break: unset HATCAST_TEST_REDIS")
    yield redis_server
    redis_server.heal()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run has; good for topics, groups, policies and key prefixes."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return f"t-{test[:40].strip('-')}-{os.getpid():x}-{uuid.uuid4().hex[:6]}"


class MakeTopic(Protocol):
    """What the fixture ``make_topic`` gives."""

    def __call__(self, suffix: str = "", partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> str:
        """Make the topic ``<unique_name><suffix>`` and return its name."""


@pytest.fixture
def make_topic(kafka: KafkaServer, unique_name: str) -> Iterator[MakeTopic]:
    """A function that makes topics of this test, which are deleted after it."""

    def make(suffix: str = "", partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> str:
        return kafka.create_topic(unique_name + suffix, partitions, config)

    yield make
    kafka.delete_topics(name for name in kafka.topics() if name.startswith(unique_name))


@pytest.fixture(scope="session")
def recordings() -> Callable[[str], Path]:
    """``recordings("itms/suratITMS.json")``: the path; raises ServiceAbsent."""
    return data.recording
