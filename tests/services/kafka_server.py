"""One real Kafka: given, in Docker, or from its own jars as a local process (KRaft, one node)."""

import base64
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.services import kafka_jars, kafka_records
from tests.services.breakable import BreakableServer
from tests.services.kafka_records import Received, Record
from tests.services.lifecycle import (
    Lifecycle,
    ServerContainer,
    ServerProcess,
    accepts,
    docker_answers,
    free_ports,
    serving,
    wait_until,
)

START_SECONDS: Final = 60.0
TOLD_SECONDS: Final = 60.0
PARTITIONS: Final = 4  # of a topic, unless a test wants others: what waits costs Kafka and workers by partition
DOCKER_IMAGE: Final = "apache/kafka:{version}"


def server_settings(host: str, port: int, controller: int, bind: str) -> dict[str, str]:
    """The broker's settings: one node, nothing made by accident, nothing deleted by age."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://{bind}:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "3000",  # after kill -9 the node waits for the end of its own old session
        "broker.heartbeat.interval.ms": "500",
        # Four of them wait most of the time: with fewer threads and no empty records of metadata that takes 0.9 s of a
        # processor a minute in place of 1.6.
        "metadata.max.idle.interval.ms": "0",
        "num.io.threads": "2",
        "num.network.threads": "1",
        "log.retention.ms": "-1",  # else records of a recording, with an old CreateTime, are deleted
        # Topics that hatcast makes have 72 hours: of these such records were deleted every five minutes.
        "log.retention.check.interval.ms": "86400000",
        # Else records with old times are compacted within seconds: a marker, which has the time of now, ends a segment.
        "log.cleaner.enable": "false",
    }


@dataclass(eq=False)
class KafkaServer(BreakableServer):
    """A Kafka that answers, and what tests do with it."""

    bootstrap_servers: str
    source: str  # where it came from, for people
    lifecycle: Lifecycle | None = None  # None: it was given by the environment

    def wait_until_ready(self, timeout: float = START_SECONDS) -> None:
        """Return once the broker answers and is registered; raise ServerDidNotStart with the end of its log."""
        host, _, port = self.bootstrap_servers.split(",")[0].rpartition(":")
        wait_until(lambda: accepts(host, int(port)), self.lifecycle, timeout, "Kafka")
        wait_until(lambda: kafka_records.answers(self.bootstrap_servers), self.lifecycle, timeout, "Kafka")

    def create_topic(self, name: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> str:
        """Make a topic, wait until all know it, and return its name. ``config`` as in Kafka, all strings."""
        with closing(self._client()) as admin:
            admin.create_topics(
                {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}},
                wait_for_metadata=True,
            )
        return name

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic, and wait until the broker has them. ``config`` as in Kafka, all strings."""
        from kafka.admin import ConfigResource, ConfigResourceType

        with closing(self._client()) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, dict(config))])

            def is_told() -> bool:
                """A broker answers a change before it tells of it, or goes by it."""
                found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])["topic"][name]
                return all(found[key]["value"] == value for key, value in config.items())

            wait_until(is_told, None, TOLD_SECONDS, f"change of {name}")

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete these topics, and wait until the broker tells of none; those that do not exist are not an error."""
        with closing(self._client()) as admin:
            here = set(admin.list_topics()) & set(names)
            if here:
                admin.delete_topics(sorted(here))
                wait_until(lambda: not here & set(admin.list_topics()), None, TOLD_SECONDS, "end of topics")

    def topics(self) -> set[str]:
        """The names of all topics, Kafka's own apart."""
        with closing(self._client()) as admin:
            return {name for name in admin.list_topics() if not name.startswith("__")}

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Send and wait for acks=all. Without a partition, murmur2 of the key chooses, as in the Java client."""
        kafka_records.produce(self.bootstrap_servers, topic, records)

    def read(self, topic: str, *, committed: bool = True) -> list[Received]:
        """All records of a topic up to its end, by partition and offset; ``committed=False`` shows aborted ones too."""
        return kafka_records.read(self.bootstrap_servers, topic, committed=committed)

    def _client(self) -> Any:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)


@contextmanager
def open_kafka() -> Iterator[KafkaServer]:
    """The Kafka of this machine: HATCAST_TEST_KAFKA, else Docker, else the jars. Raises ServiceAbsent without any."""
    given = os.environ.get("HATCAST_TEST_KAFKA")
    if given:
        server = KafkaServer(given, "HATCAST_TEST_KAFKA")
        server.wait_until_ready()
        yield server
        return
    with docker_kafka() if docker_answers() else local_kafka() as server:
        yield server


@contextmanager
def local_kafka(
    heap: str = "512m",
    settings: Mapping[str, str] | None = None,
    beside: Mapping[str, int] | None = None,
    log4j: Path | None = None,
) -> Iterator[KafkaServer]:
    """Kafka from its jars on a free port, data in a temporary folder. Raises ServiceAbsent without Java 17.

    beside   name of a further listener -> its port; `settings` say how it is guarded
    """
    java = java_command(log4j)
    folder = Path(tempfile.mkdtemp(prefix="hatcast-kafka-"))
    with serving(lambda: prepare_local(java, folder, heap, settings or {}, beside or {}), folder) as server:
        yield server


def java_command(log4j: Path | None = None) -> list[str]:
    """Java with Kafka's jars, for a server of minutes. Raises ServiceAbsent.

    What the optimising compiler costs, it does not live long enough to save.
    """
    logs = f"-Dlog4j2.configurationFile={log4j or kafka_jars.HERE / 'log4j2.properties'}"
    java = [kafka_jars.java(), "-cp", f"{kafka_jars.jars()}/*", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", logs]
    if _archive().is_file():
        java.insert(1, f"-XX:SharedArchiveFile={_archive()}")  # of another Java it is ignored
    return java


def _archive() -> Path:
    return kafka_jars.jars().parent / f"{kafka_jars.jars().name}.jsa"


def archive_classes() -> None:
    """Keep Kafka's classes as Java has loaded them: each later start takes two seconds of a processor less, of six."""
    if _archive().is_file():
        return
    with tempfile.TemporaryDirectory(prefix=f"{_archive().name}.", dir=_archive().parent) as temporary:
        made = Path(temporary) / "made"
        java = java_command()
        # Ours rests on that of Java's own classes, which the Java of a wheel comes without. Of one that is not ours
        # to write, both stay away.
        if not (Path(java[0]).resolve().parents[1] / "lib" / "server" / "classes.jsa").is_file():
            subprocess.run([java[0], "-Xshare:dump"], capture_output=True, check=False)
        java.insert(1, f"-XX:ArchiveClassesAtExit={made}")
        with serving(lambda: prepare_local(java, Path(temporary), "256m", {}), Path(temporary) / "data") as server:
            server.create_topic("any", partitions=1)
            server.produce("any", [Record(b"value", b"key", 0)])
            server.read("any")
            server.ours.stop()
            if made.is_file():
                made.rename(_archive())


def prepare_local(
    java: list[str],
    folder: Path,
    heap: str,
    settings: Mapping[str, str],
    beside: Mapping[str, int] = MappingProxyType({}),
) -> KafkaServer:
    """Write the properties and the ids into the data folder; the server is not started."""
    with free_ports(2) as (port, controller):
        run = folder / str(port)
        run.mkdir()
        wanted = server_settings("127.0.0.1", port, controller, "127.0.0.1") | {"log.dirs": str(run / "data")}
        for name, number in beside.items():
            wanted["listeners"] += f",{name}://127.0.0.1:{number}"
            wanted["advertised.listeners"] += f",{name}://127.0.0.1:{number}"
        properties = run / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in (wanted | dict(settings)).items()))
        # What Kafka's own tool writes into a data folder, which takes two seconds of a processor.
        (run / "data").mkdir()
        ids = "".join(f"{name}.id={_uuid()}\n" for name in ("cluster", "directory"))
        (run / "data" / "meta.properties").write_text(f"version=1\nnode.id=1\n{ids}")
    # The libraries that it unpacks go with its folder: one that is killed deletes nothing.
    options = f"-Xms{heap}", f"-Xmx{heap}", f"-Djava.io.tmpdir={run}"
    command = [*java, *options, "kafka.Kafka", str(properties)]
    process = ServerProcess(command, run / "kafka.log")
    return KafkaServer(f"127.0.0.1:{port}", f"jars {kafka_jars.version()}", process)


def _uuid() -> str:
    """A UUID as Kafka writes it; one that begins with "-" would be an option to its tools."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "x")


@contextmanager
def docker_kafka() -> Iterator[KafkaServer]:
    """Kafka's own image through testcontainers, on a fixed free port, so that it is the same after a restart."""
    from testcontainers.core.container import DockerContainer

    image = DOCKER_IMAGE.format(version=kafka_jars.version())
    with free_ports(1) as (port,):
        container = DockerContainer(image).with_bind_ports(port, port)
    host = container.get_docker_client().host()
    for name, value in server_settings(host, port, 9093, "0.0.0.0").items():
        container = container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    lifecycle = ServerContainer(container)
    server = KafkaServer(f"{host}:{port}", f"Docker {image}", lifecycle)
    try:
        server.start()
        yield server
    finally:
        lifecycle.close()


__all__ = ["KafkaServer", "Received", "Record", "docker_kafka", "local_kafka", "open_kafka", "server_settings"]
