"""A Kafka with the topics, users and rights of the Helm chart, and hatcast as each of its users."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomlkit
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import confluent_options, wait_for_broker
from hatcast.agents.kafka.topics import topic_range
from tests.charts import Object, changed, render
from tests.integration.acls import grant
from tests.integration.forked import Forked
from tests.integration.harness import WorkerProcess
from tests.integration.health import LISTEN
from tests.integration.redis_user import PASSWORD, acl_line
from tests.services import RedisServer
from tests.services.kafka_server import java_command, prepare_local
from tests.services.lifecycle import Spawned

ROLES: Final = ("worker", "display", "feeds")
ADMIN: Final = "broker"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
PATTERNS: Final = {"literal": ResourcePatternType.LITERAL, "prefix": ResourcePatternType.PREFIXED}
OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
POLICY: Final = """
[kafka]
partitions = 2
[topics]
prefix = "@NAME@."
telemetry_retention = "none"
[worker]
checkpoint_interval = "200ms"
[policy]
name = "@NAME@"
upper_bound = 80.0
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
epsilon = 1.0
daily_limit = 20.0
max_hats_per_day = 10
min_users = 1
[policy.estimator]
name = "baseline"
[[policy.running]]
name = "today"
window = "today"
"""


class Running(WorkerProcess):
    """A command of hatcast that goes on, forked from a process that has loaded it."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        super().__init__(["hatcast", *arguments], log)
        self._arguments = arguments
        self.start()

    def _spawn(self) -> Spawned:
        return Forked(self._arguments, self.log, self.log)


@dataclass
class City:
    """A Kafka with the topics and the rights of the chart. `configs`: role -> its hatcast.toml, with its login."""

    name: str
    folder: Path
    configs: dict[str, Path]
    redis_server: RedisServer  # on which the worker has a user of its own, with the rights that are printed for it

    def settings(self, role: str) -> Settings:
        return load_settings(self.configs[role], {})

    def run(self, role: str, *arguments: str) -> tuple[int, str]:
        """Run a command to its end as this role; its exit code and what it said."""
        out = self.folder / f"{role}-{arguments[0]}.out"
        code = Forked([*arguments, "--config", str(self.configs[role])], out, out).wait(120)
        return code, out.read_text()

    def start(self, role: str, *arguments: str) -> Running:
        log = self.folder / f"{role}-{len(list(self.folder.iterdir()))}.log"
        return Running([*arguments, "--config", str(self.configs[role])], log)

    def lag(self) -> int:
        """Records of telemetry beyond the offsets that the workers' group has committed, by the worker's rights."""
        settings = self.settings("worker")
        ends = [end for _, end in topic_range(settings, settings.topics.telemetry)]
        partitions = [TopicPartition(settings.topics.telemetry, partition) for partition in range(len(ends))]
        consumer = Consumer(confluent_options(settings) | {"group.id": f"hatcast-{self.name}"})
        try:
            committed = [place.offset for place in consumer.committed(partitions, timeout=30)]
        finally:
            consumer.close()
        return sum(end - max(offset, 0) for end, offset in zip(ends, committed, strict=True))

    def published(self) -> int:
        """Records on `hats.means`, as the map's user sees them."""
        display = self.settings("display")
        return sum(end - first for first, end in topic_range(display, display.topics.means))


@contextmanager
def open_city(redis_server: RedisServer, folder: Path) -> Iterator[City]:
    """The example of Strimzi, on a Kafka that refuses what no right allows."""
    name = f"t-rights-{os.getpid():x}-{uuid.uuid4().hex[:6]}"
    objects = render(
        changed(
            "strimzi",
            folder,
            config=POLICY.replace("@NAME@", name),
            strimzi={"authentication": "scram-sha-512"},
        )
    )
    users = {made["metadata"]["name"]: made for made in objects if made["kind"] == "KafkaUser"}
    logins = " ".join(f'user_{user}="{PASSWORD}"' for user in (*users, ADMIN))
    server = prepare_local(
        java_command(),
        folder,
        "256m",
        {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} required username="{ADMIN}"'
            f' password="{PASSWORD}" {logins};',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",  # ANONYMOUS: the broker, to its own controller
        },
    )
    server.ours.start()
    try:
        configs = {
            role: configured(role, objects, server.bootstrap_servers, redis_server.url, folder) for role in ROLES
        }
        admin = folder / "admin.toml"
        admin.write_text(configs["worker"].read_text().replace(_user(objects, "worker"), ADMIN))
        wait_for_broker(load_settings(admin, {}), patience_s=60)
        prepare(AdminClient(confluent_options(load_settings(admin, {}))), objects)
        restrict(configs["worker"], name, redis_server)
        yield City(name, folder, configs, redis_server)
    finally:
        server.ours.close()
        redis_server.delete(f"{{{name}*")
        with closing(redis_server.client()) as redis:
            redis.execute_command("ACL", "DELUSER", name)  # type: ignore[no-untyped-call] # redis-py leaves it open


def _user(objects: list[Object], role: str) -> str:
    (config,) = (made["data"] for made in objects if made["kind"] == "ConfigMap" and f"{role}.toml" in made["data"])
    name: str = tomlkit.parse(config[f"{role}.toml"])["kafka"]["sasl_plain_username"]
    return name


def configured(role: str, objects: list[Object], servers: str, redis_url: str, folder: Path) -> Path:
    """hatcast.toml of a role as the chart makes it, but for what the test's Kafka and Redis have in Strimzi's place."""
    (config,) = (made["data"] for made in objects if made["kind"] == "ConfigMap" and f"{role}.toml" in made["data"])
    table: dict[str, Any] = tomlkit.parse(config[f"{role}.toml"]).unwrap()
    user = table["kafka"]["sasl_plain_username"]
    password = folder / "password"
    password.write_text(PASSWORD)
    table["kafka"] = {
        "bootstrap_servers": servers,
        "partitions": table["kafka"]["partitions"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password_file": password.name,
    }
    if role == "worker":
        table["redis"] = {"url": redis_url}
        table["worker"] = {**table["worker"], **LISTEN["worker"]}
    path = folder / f"{role}.toml"
    path.write_text(tomlkit.dumps(table))
    return path


def restrict(config: Path, user: str, redis_server: RedisServer) -> None:
    """Log the worker in as a user of Redis that has what `hatcast acls worker` prints."""
    with closing(redis_server.client()) as redis:
        redis.execute_command(*acl_line(load_settings(config, {}), user=user))  # type: ignore[no-untyped-call] # redis-py leaves it open
    table: dict[str, Any] = tomlkit.parse(config.read_text()).unwrap()
    table["redis"] |= {"username": user, "password_file": table["kafka"]["sasl_plain_password_file"]}
    config.write_text(tomlkit.dumps(table))


def prepare(admin: AdminClient, objects: list[Object]) -> None:
    """Make the topics and grant the rights, as Strimzi's operators do."""
    topics = [made["spec"] for made in objects if made["kind"] == "KafkaTopic"]
    new = [
        NewTopic(each["topicName"], each["partitions"], 1, config={**each["config"], "min.insync.replicas": "1"})
        for each in topics
    ]
    rights = [
        AclBinding(
            RESOURCES[acl["resource"]["type"]],
            acl["resource"]["name"],
            PATTERNS[acl["resource"]["patternType"]],
            f"User:{made['metadata']['name']}",
            acl["host"],
            OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for made in objects
        if made["kind"] == "KafkaUser"
        for acl in made["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    ]
    for future in admin.create_topics(new).values():
        future.result(30)
    grant(admin, rights)
