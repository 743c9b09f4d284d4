"""A city with devices on guarded services, in which every role does its work with a user of its own."""

import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.grants import Role
from tests.devices import NOON, recording, two_hours
from tests.integration.agency import agency
from tests.integration.clustering import DATE
from tests.integration.guarded import Guarded, Privilege, privileges_of, scram_tables
from tests.integration.harness import SECONDS, Finished, Pipeline, WorkerProcess, open_pipeline
from tests.integration.tables import merged
from tests.services import Record
from tests.services.lifecycle import free_ports

PASSWORDS: Final = {role.value: f"s3cret-of-{role}-7Kq" for role in Role}
USER_KEY: Final = "5e" * 32
WITH_REDIS: Final = (Role.WORKER, Role.FEED, Role.OPERATOR, Role.CLUSTER)
GROUP: Final = "answers"
HYBRID: Final = {"policy": {"estimator": {"name": "pwh"}, "running": [{"name": "today", "window": "today"}]}}


@dataclass
class City:
    """A pipeline with a user for each role, and what they did."""

    guarded: Guarded
    pipeline: Pipeline
    configs: dict[Role, Path] = field(default_factory=dict)
    granted: dict[Role, list[Privilege]] = field(default_factory=dict)
    commands: dict[Role, set[str]] = field(default_factory=dict)
    command_lines: list[str] = field(default_factory=list)

    def begin(self, role: Role, *arguments: object, code: int = 0) -> Callable[[], Finished]:
        """Start a command of a role, beside others; call what is returned to wait for its end."""
        finished = self.pipeline.begin(*arguments, config=self.configs[role])

        def ended() -> Finished:
            done = finished(SECONDS)
            assert done.code == code, (role, arguments, done.err)
            return done

        return ended

    def run(self, role: Role, *arguments: object, code: int = 0) -> Finished:
        """Run a command of a role to its end."""
        return self.begin(role, *arguments, code=code)()

    def cluster(self, state: str, code: int = 0) -> Callable[[], Finished]:
        """Start a clustering of an hour, in one round after the first, as `begin` does: most of the time it waits."""
        options = ("--epsilon", 1, "--clusters", 1, "--iterations", 1, "--round-seconds", 4, "--seed", 1)
        given = ("--date", DATE, "--slots", "12:00", *options, "--state", self.pipeline.folder / state, "--json")
        return self.begin(Role.CLUSTER, "cluster", "live", *given, code=code)

    def settings(self, role: Role) -> Settings:
        return load_settings(self.configs[role], {})


@contextmanager
def open_city(guarded: Guarded, folder: Path) -> Iterator[City]:
    """A day of the city, in which every role did its work over SASL_SSL, with its own rights only."""
    with open_pipeline(guarded.kafka, guarded.redis_server, folder, "access", HYBRID) as pipeline:
        made = City(guarded, pipeline)
        for role in Role:
            grant(made, role)
        worker = pipeline.worker("--log-level", "debug", config=made.configs[Role.WORKER])
        pipeline.wait_for_partitions(worker)
        answering = devices_report(made)
        file = recording(folder / "city.jsonl", two_hours(["a", "b", "c"]))
        made.run(Role.FEED, "feed", "replay", file, "--format", "jsonl", "--speedup", 0, "--json")
        topics = pipeline.settings.topics
        guarded.kafka.produce(topics.telemetry, [Record(b"garbage", b"a", 0, NOON)])
        pipeline.wait(lambda: bool(pipeline.published()) and pipeline.is_settled(), "releases", worker)
        pipeline.wait(lambda: bool(guarded.kafka.read(topics.dead_letters)), "dead letter", worker)
        # While the day is open.
        clustered = made.cluster("cluster.db")
        look(made)
        made.run(Role.OPERATOR, "status", "--why", "next", "--json")
        clustered()
        answers = topics.cluster_answers
        pipeline.wait(partial(uses, made, Role.DEVICE, "WRITE", answers), "answer of the device", answering)
        answering.terminate()
        heartbeats(made, worker)
        assert worker.terminate() == 0
        operate(made)
        yield made


def grant(city: City, role: Role) -> None:
    """Write the configuration of a role, and apply what `hatcast acls` prints for it."""
    folder, pipeline = city.pipeline.folder, city.pipeline
    (folder / f"{role}-password").write_text(PASSWORDS[role] + "\n")
    made = scram_tables(city.guarded, role, f"{role}-password", redis=role in WITH_REDIS)
    if role in (Role.WORKER, Role.OPERATOR):  # doctor compares the key
        (folder / "user-key").write_text(USER_KEY)
        made["worker"] = {"user_key_file": "user-key"}
    city.configs[role] = pipeline.changed(made, f"{role}.toml")
    groups = ("--group", GROUP) if role is Role.READER else ()
    printed = pipeline.hatcast("acls", role, "--user", role, *groups)
    assert (printed.code, printed.err) == (0, "")
    city.guarded.apply(printed.out.splitlines(), PASSWORDS[role])
    for line in printed.out.splitlines():
        if line.startswith("kafka-acls.sh"):
            city.granted.setdefault(role, []).extend(privileges_of(line))
        else:
            city.commands[role] = {word[1:] for word in line.split() if word.startswith("+")}


def devices_report(city: City) -> WorkerProcess:
    """A device reports its day. Returns the process that goes on to answer clusterings."""
    own = recording(city.pipeline.folder / "own.jsonl", two_hours(["d"]))
    given = ("device", own, "--fleet", 1, "--state", city.pipeline.folder / "state.db", "--speedup", 0, "--json")
    assert city.run(Role.DEVICE, *given).json["sent"] > 0
    answering = city.pipeline.start(*given, "--cluster-epsilon", 1, config=city.configs[Role.DEVICE])
    rounds = city.pipeline.settings.topics.clusters
    city.pipeline.wait(partial(uses, city, Role.DEVICE, "READ", rounds), "reader of rounds", answering)
    city.command_lines.append(Path(f"/proc/{answering.pid}/cmdline").read_text())
    return answering


def uses(city: City, role: Role, operation: str, topic: str) -> bool:
    asked = {(each.user, each.operation, each.name) for each in city.guarded.decisions()}
    return (role.value, operation, topic) in asked


def look(city: City) -> None:
    """The display, `tail`, `export`, and a program with a consumer group."""
    pipeline = city.pipeline
    with free_ports(1) as (port,):
        pass
    display = pipeline.start("display", "--port", port, "--log-level", "debug", config=city.configs[Role.DISPLAY])
    pipeline.wait(lambda: is_ready(port), "map", display)
    assert b'"released"' in fetched(port, "/api/v1/latest")
    city.command_lines.append(Path(f"/proc/{display.pid}/cmdline").read_text())
    display.terminate()
    assert city.run(Role.READER, "tail", "--from-beginning", "--for", 1, "--json").out.count('"released"') > 0
    city.run(Role.READER, "export", "--to", pipeline.folder / "exported")
    topics = pipeline.settings.topics
    options = {"group.id": GROUP, "auto.offset.reset": "earliest"}
    with closing(Consumer(confluent_options(city.settings(Role.READER)) | options)) as consumer:
        read = (topics.budget, topics.estimates, topics.running, topics.clusters)
        consumer.subscribe([*read])
        pipeline.wait(lambda: has_message(consumer), "record for a consumer")
        consumer.commit(asynchronous=False)
        for topic in read:  # the consumer goes on in a thread of its own
            pipeline.wait(partial(uses, city, Role.READER, "READ", topic), f"reader of {topic}")


def heartbeats(city: City, worker: WorkerProcess) -> None:
    """A bridge is live, and a device: the worker sends heartbeat records to the partitions without records."""
    with agency() as address:
        bridge = ("feed", "gtfs-rt", address, "--every", "1s", "--for", 3, "--derive-speed", "--json")
        city.run(Role.FEED, *bridge)
    topics = city.pipeline.settings.topics
    city.guarded.kafka.produce(topics.reports, [Record(b"", None, 0, now_ms())])
    for topic in (topics.telemetry, topics.reports):
        city.pipeline.wait(partial(uses, city, Role.WORKER, "WRITE", topic), "heartbeat records", worker)
    # The days of the recordings are over now.
    city.pipeline.wait(lambda: "srem" in city.guarded.redis_log.sent()[Role.WORKER], "a sealed day", worker)


def operate(city: City) -> None:
    """What an operator looks at."""
    telemetry = city.pipeline.settings.topics.telemetry
    looks = (("budget", "show", "--json"), ("contributions", "--json"), ("doctor", "--json"))
    prints_json = [city.begin(Role.OPERATOR, *each) for each in looks]
    others = [city.begin(Role.OPERATOR, *each) for each in (("dump", telemetry), ("doctor", "--topic", telemetry))]
    assert all(ended().json is not None for ended in prints_json)
    for ended in others:
        ended()
    prepare_successor(city)


def prepare_successor(city: City) -> None:
    """The operator gets the privileges for a policy that is to replace this one, and looks whether it can."""
    role, pipeline = Role.OPERATOR, city.pipeline
    policy = {"name": f"{pipeline.name}-2", "replaces": pipeline.name, "from": "2098-01-01"}
    config = pipeline.write(merged(tomllib.loads(city.configs[role].read_text()), {"policy": policy}), "successor.toml")
    printed = pipeline.hatcast("acls", role, "--user", role, config=config)
    city.guarded.apply(printed.out.splitlines(), PASSWORDS[role])
    checks = pipeline.hatcast("doctor", "--json", config=config).json["checks"]
    assert [each["state"] for each in checks if each["name"] == "replaced policy"] == ["ok"], checks


def is_ready(port: int) -> bool:
    try:
        return bool(fetched(port, "/readyz"))
    except OSError:
        return False


def fetched(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        whole: bytes = answer.read()
    return whole


def has_message(consumer: Consumer) -> bool:
    message = consumer.poll(0.2)
    return message is not None and message.error() is None
