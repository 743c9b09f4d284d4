"""What stands on the output topics of a real Kafka keeps the contracts, and the programs of docs/consume.md read it.

Published by the code that publishes in a worker; between two days sent again, overtaken and aborted, as crashes of
workers leave it. So whatever a program makes of that stands before what it has to print last.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.release.estimates import EstimatePublisher
from tests.contracts.check import closed, message_problems, value_problems
from tests.integration.answering import answering
from tests.integration.days import DAY_MS, END_MS, POLICY, days
from tests.integration.harness import SECONDS, Pipeline, open_pipeline
from tests.integration.readings import open_stores, store_closed
from tests.services import KafkaServer, Received, Record, RedisServer
from tests.services.data import ROOT
from tests.services.lifecycle import ServerProcess
from tools.schemas import FOLDER, RECORDS
from tools.schemas.golden import Golden

PAGE: Final = (ROOT / "docs" / "consume.md").read_text()
ELSEWHERE: Final = ("clusters",)  # test_cluster_live.py
SENT: Final = tuple(name for name, record in RECORDS.items() if record.event_id is not None and name not in ELSEWHERE)
RUNNING: Final = {
    "running": [{"name": "today", "window": "today"}, {"name": "week", "window": "7d", "of": "estimates"}]
}
GHOST: Final = "ghost"  # in what was sent and aborted
# What Faust puts before a printed line; before the first one also what its spinner has drawn.
_LOGGED: Final = re.compile(r"^.*?\[[^][]*\] \[\d+\] \[WARNING\] ")


def topic_of(pipeline: Pipeline, name: str) -> str:
    found: str = getattr(pipeline.settings.topics, RECORDS[name].topic)
    return found


async def publish(pipeline: Pipeline) -> None:
    """Releases, answers and budget of three days, their estimates and running means, and two dead letters."""
    producer = AIOKafkaProducer(bootstrap_servers=pipeline.kafka.bootstrap_servers)
    await producer.start()
    try:
        async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
            for day in range(3):
                await store_closed(stores, pipeline.settings.policy, days([day]), END_MS - (2 - day) * DAY_MS)
                await releaser.round(asyncio.Event())
                if day == 0:
                    await asyncio.to_thread(send_again, pipeline)
            settings, partitions = pipeline.settings, pipeline.settings.kafka.partitions
            snapshots = SnapshotStore(stores.redis, settings.topics.telemetry, settings.policy.name)
            through = releaser.published_through
            for _ in range(2):  # the second continues from the snapshot of the first, and sends the last day again
                estimates = EstimatePublisher(
                    settings, partitions, producer, snapshots, lambda: frozenset(range(partitions)), through
                )
                assert await estimates.round(asyncio.Event())
        letters = DeadLetters(producer, pipeline.settings.topics.dead_letters, pipeline.name)
        letters.add(3, 17, "undecodable")
        letters.add(4, 18, "bad_record")
        await letters.flush()
        assert letters.sent == 2
    finally:
        await producer.stop()


def send_again(pipeline: Pipeline) -> None:
    """What workers that crashed leave: everything twice, the day's budget overtaken, and bytes of aborted sends."""
    ghosts = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": pipeline.name})
    ghosts.init_transactions()
    ghosts.begin_transaction()
    for name in ("release", "query", "budget"):
        topic = topic_of(pipeline, name)
        first = pipeline.kafka.read(topic)
        pipeline.kafka.produce(
            topic, [Record(r.value, r.key, r.partition, r.timestamp_ms, as_sent(r.headers)) for r in first]
        )
        for each in first[:3]:
            fields = {"release_id": GHOST, "query": GHOST, "policy": GHOST, "cell": GHOST}
            payload = json.loads(each.value or b"")
            made = payload | {field: text for field, text in fields.items() if field in payload}
            ghosts.produce(topic, msgspec.json.encode(made), GHOST.encode(), each.partition)
    ghosts.flush()
    ghosts.abort_transaction()


def as_sent(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value or b"") for name, value in headers)


@pytest.fixture(scope="module")
def published(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    with open_pipeline(
        kafka, redis_server, tmp_path_factory.mktemp("consume"), "consume", {"policy": POLICY | RUNNING}
    ) as opened:
        ensure_topics(opened.settings)
        asyncio.run(publish(opened))
        yield opened


def golden(received: Received) -> Golden:
    """A message as goldens are."""
    return Golden(
        key=None if received.key is None else received.key.decode(),
        headers={name: (value or b"").decode() for name, value in received.headers},
        value=msgspec.Raw(received.value or b""),
    )


@pytest.mark.parametrize("name", SENT)
def test_every_message_that_is_sent_is_a_cloud_event_with_a_record_of_its_schema(
    name: str, published: Pipeline
) -> None:
    messages = [golden(each) for each in published.kafka.read(topic_of(published, name))]
    schema = closed(json.loads((FOLDER / f"{name}.schema.json").read_bytes()))
    assert messages
    for message in messages:
        assert [*value_problems(schema, message.payload)] == []
        assert [*message_problems(RECORDS[name], message, published.name)] == []
    events: dict[tuple[str, str], set[tuple[bytes, str]]] = {}
    for message in messages:
        event = events.setdefault((message.headers["ce_source"], message.headers["ce_id"]), set())
        event.add((bytes(message.value), str(sorted(message.headers.items()))))
    assert {len(each) for each in events.values()} == {1}, "one event, two contents"
    assert name == "dead-letter" or len(events) < len(messages), "nothing was sent twice"


@dataclass(frozen=True)
class Program:
    """A program of the page.

    heading    where it stands
    record     what it reads
    arguments  that the page says to start it with
    expected   line -> how often, of all records of the topic that were committed
    """

    heading: str
    record: str
    expected: Callable[[Sequence[dict[str, Any]]], Mapping[str, int]]
    arguments: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        section = PAGE.partition(f"\n## {self.heading}")[2].partition("\n## ")[0]
        found = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        assert len(found) == 1, self.heading
        return str(found[0])


def lines_of_means(records: Sequence[dict[str, Any]]) -> Mapping[str, int]:
    return dict.fromkeys(
        (
            f"{one['cell']} {one['date']} {one['slot']}: {one['mean']} km/h, noise within"
            f" {one['interval95'][0]} to {one['interval95'][1]}"
            for one in records
        ),
        1,
    )


def lines_of_answers(records: Sequence[dict[str, Any]]) -> Mapping[str, int]:
    return dict.fromkeys(
        (
            f"{one['query']} {one['cell']} {one['slot']}, {one['first_date']} to {one['last_date']}:"
            f" {one['mean']} {one['unit']}"
            for one in records
        ),
        1,
    )


def lines_of_budget(records: Sequence[dict[str, Any]]) -> Mapping[str, int]:
    """Of each day those whose number is not below that of any before."""
    lines: Counter[str] = Counter()
    greatest: dict[str, int] = {}
    for one in records:
        if one["seq"] >= greatest.get(one["date"], 0):
            greatest[one["date"]] = one["seq"]
            lines[f"{one['policy']} {one['date']}: {one['epsilon_user_day']} of {one['limit']} spent"] += 1
    assert sum(lines.values()) < len(records), "nothing was overtaken"
    return lines


PROGRAMS: Final = (
    Program("kafka-python", "release", lines_of_means),
    Program("confluent-kafka", "budget", lines_of_budget),
    Program("Faust", "query", lines_of_answers, ("worker", "--without-web")),
)


@pytest.fixture(scope="module")
def running(published: Pipeline) -> Iterator[dict[str, tuple[ServerProcess, Path]]]:
    """All programs of the page, at once: heading -> process and what it prints."""
    found: dict[str, tuple[ServerProcess, Path]] = {}
    with ExitStack() as stack:
        for program in PROGRAMS:
            file = published.folder / f"{program.record}.py"
            file.write_text(program.code)
            printed = file.with_suffix(".printed")
            options = ["--datadir", str(published.folder / "faust"), *program.arguments] if program.arguments else []
            environment = {
                "KAFKA": published.kafka.bootstrap_servers,
                "TOPIC": topic_of(published, program.record),
                "GROUP": published.name,
            }
            process = stack.enter_context(
                closing(ServerProcess([sys.executable, str(file), *options], printed, environment))
            )
            process.start()
            found[program.heading] = process, printed
        yield found


@pytest.mark.parametrize("program", PROGRAMS, ids=[each.heading for each in PROGRAMS])
def test_a_program_of_the_page_prints_what_was_published_and_nothing_else(
    program: Program, published: Pipeline, running: Mapping[str, tuple[ServerProcess, Path]]
) -> None:
    topic = topic_of(published, program.record)
    records = [json.loads(each.value or b"") for each in published.kafka.read(topic)]
    assert len(published.kafka.read(topic, committed=False)) == len(records) + 3
    expected = program.expected(records)
    process, printed = running[program.heading]
    deadline = time.monotonic() + SECONDS

    def told() -> Counter[str]:
        lines = (_LOGGED.sub("", line).rstrip() for line in printed.read_text().splitlines())
        return Counter(line for line in lines if line in expected or GHOST in line)

    while (found := told()).total() < sum(expected.values()):
        assert process.running, process.log_tail()
        assert time.monotonic() < deadline, f"{found}\n{process.log_tail()}"
        time.sleep(0.05)
    assert found == expected


def test_every_program_of_the_page_is_run() -> None:
    elsewhere = ("PostgreSQL",)  # test_consume_postgres.py
    assert len(re.findall(r"^```python$", PAGE, re.MULTILINE)) == len(PROGRAMS) + len(elsewhere)
