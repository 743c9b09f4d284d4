"""The registry topic on real Kafka: what a first start fixes holds for every later one, whatever became of Redis."""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.registry import Facts, PolicyRecord, Registry, read_registry
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.worker import registration
from hatcast.agents.worker.registration import Registration
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.hidden import CELLS, HIDDEN
from tests.integration.readings import HOUR_MS, Stores, open_stores
from tests.integration.test_worker_refusals import assert_refused
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

KEY = "11" * 32


@pytest.fixture(scope="module")
def started(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pipeline, WorkerProcess]]:
    """A policy that was started once; no test below starts it otherwise."""
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("registry"), "registry") as pipeline:
        (pipeline.folder / "key").write_text(KEY)
        worker = pipeline.worker()
        pipeline.wait_for_partitions(worker)
        yield pipeline, worker


@pytest.fixture(scope="module")
def emptied(started: tuple[Pipeline, WorkerProcess]) -> Pipeline:
    """The same after FLUSHALL, while no worker runs."""
    pipeline, worker = started
    if worker.code is None:
        assert worker.terminate() == 0
    pipeline.forget()
    return pipeline


def stored_keys(pipeline: Pipeline) -> list[bytes]:
    with closing(pipeline.redis_server.client()) as redis:
        return list(redis.scan_iter(f"{{{pipeline.name}*"))


def registered(pipeline: Pipeline) -> PolicyRecord:
    settings = pipeline.settings
    return read_registry(settings, settings.topics.registry).policies[settings.policy.name]


@pytest.mark.parametrize("role", ["means", "queries", "budget"])
def test_an_output_topic_that_differs_from_that_of_a_running_worker_is_refused(
    role: str, started: tuple[Pipeline, WorkerProcess]
) -> None:
    pipeline, worker = started
    config = pipeline.changed({"topics": {role: f"{pipeline.name}.{role}-2"}})
    done = pipeline.hatcast("worker", config=config)
    assert_refused(
        done, f"topics.{role} is '{pipeline.name}.{role}-2'", f"'{pipeline.name}.{role}'", "again", "policy.name"
    )
    assert worker.code is None


def test_the_registry_says_what_the_first_start_had(started: tuple[Pipeline, WorkerProcess]) -> None:
    pipeline, _ = started
    record, settings = registered(pipeline), pipeline.settings
    assert record.domain == settings.topics.telemetry
    assert (record.policy_id, bytes(record.canonical)) == (settings.policy.policy_id, settings.policy.canonical)
    assert (record.topics.means, record.topics.budget) == (settings.topics.means, settings.topics.budget)
    assert (record.partitions, record.partitioner, record.timezone) == (PARTITIONS, "murmur2", settings.policy.timezone)
    assert record.telemetry_id is not None
    assert record.user_key.made


def test_status_and_doctor_show_what_is_registered_and_doctor_what_contradicts_it(
    started: tuple[Pipeline, WorkerProcess],
) -> None:
    pipeline, _ = started
    record = registered(pipeline)
    shown = pipeline.hatcast("status", "--json")
    assert shown.json["registry"]["topic"] == f"{pipeline.name}.hatcast"
    assert shown.json["registry"]["policies"][pipeline.name]["telemetry_id"] == record.telemetry_id
    assert f"registered      {pipeline.name}: {record.policy_id}" in pipeline.hatcast("status").out.replace("\n", " ")
    found = {check["name"]: check for check in pipeline.hatcast("doctor", "--json").json["checks"]}
    assert found["registry"]["state"] == "ok"
    assert str(record.telemetry_id) in found[f"registered policy {pipeline.name}"]["found"]
    config = pipeline.changed({"topics": {"telemetry_partitioner": "crc32"}})
    done = pipeline.hatcast("doctor", "--json", config=config)
    (problem,) = [check for check in done.json["checks"] if check["state"] == "problem"]
    assert (done.code, problem["name"]) == (1, "registry")
    assert "topics.telemetry_partitioner is 'crc32'" in problem["mend"]


CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "means": ({"topics": {"means": "{name}.means-2"}}, ["topics.means is '{name}.means-2'", "'{name}.means'"]),
    "queries": (
        {"topics": {"queries": "{name}.queries-2"}},
        ["topics.queries is '{name}.queries-2'", "'{name}.queries'"],
    ),
    "budget": ({"topics": {"budget": "{name}.budget-2"}}, ["topics.budget is '{name}.budget-2'", "'{name}.budget'"]),
    "epsilon": ({"policy": {"privacy": {"epsilon": 0.5}}}, ["another policy.privacy.epsilon:", "new policy.name"]),
    "partitioner": (
        {"topics": {"telemetry_partitioner": "crc32"}},
        ["topics.telemetry_partitioner is 'crc32'", "'murmur2'"],
    ),
    "format": (
        {"topics": {"telemetry_format": "hfp"}},
        ["topics.telemetry_format is 'hfp'", "'jsonl' again"],
    ),
    "a time zone under a new name": (
        {"policy": {"name": "{name}-next", "timezone": "Asia/Kolkata"}},
        ["policy.timezone is 'Asia/Kolkata'", "'{name}'", "use 'UTC'"],
    ),
    "a user key": (
        {"worker": {"user_key_file": "key"}},
        ["another user key is configured", "one that hatcast generated"],
    ),
}


def named(what: Any, name: str) -> Any:
    if isinstance(what, dict):
        return {key: named(value, name) for key, value in what.items()}
    return what.replace("{name}", name) if isinstance(what, str) else what


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_registered_does_not_change_with_an_emptied_redis(change: str, emptied: Pipeline) -> None:
    changes, words = CHANGES[change]
    done = emptied.hatcast("worker", config=emptied.changed(named(changes, emptied.name)))
    assert_refused(done, *(word.replace("{name}", emptied.name) for word in words))
    assert stored_keys(emptied) == [], "a start that is refused claims nothing"


def test_a_name_that_a_policy_of_another_telemetry_has_is_refused_also_on_another_redis(emptied: Pipeline) -> None:
    other = {role: f"{emptied.name}.2.{role}" for role in ("telemetry", "means", "queries", "budget")}
    done = emptied.hatcast("worker", config=emptied.changed({"topics": other}))
    assert_refused(done, f"policy of telemetry '{emptied.name}' on this Kafka", "new policy.name")


def test_an_emptied_redis_is_filled_from_the_registry_and_the_same_policy_goes_on(emptied: Pipeline) -> None:
    before = registered(emptied)
    worker = emptied.worker()
    emptied.wait_for_partitions(worker)
    after = registered(emptied)
    assert after.user_key.fingerprint != before.user_key.fingerprint, "it was lost with Redis and nothing is left of it"
    assert after.policy_id == before.policy_id
    with closing(emptied.redis_server.client()) as redis:
        cached = redis.get(f"{{{emptied.name}}}:registered:{emptied.name}")
    assert cached == msgspec.json.encode(after)
    assert worker.terminate() == 0


pytestmark = pytest.mark.pipeline(topics=True)


class Unfenced(Registry):
    """The mutant: every writer has a transactional id of its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._transactional_id += f"/{uuid.uuid4()}"


@pytest.mark.parametrize(("kind", "written"), [(Registry, [b"of the faster"]), (Unfenced, [b"of the faster", b"ours"])])
def test_of_two_writers_of_one_fact_the_first_wins_and_the_other_decides_again(
    kind: type[Registry], written: list[bytes], pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    settings, calls = pipeline.settings, 0

    def faster() -> None:
        asyncio.run(
            kind(settings).write(lambda facts: {} if "test/a" in facts.values else {"test/a": b"of the faster"})
        )

    def decide(facts: Facts) -> dict[str, bytes]:
        nonlocal calls
        calls += 1
        decided = {} if "test/a" in facts.values else {"test/a": b"ours"}
        if calls == 2:  # fenced and read, and not written yet
            thread = threading.Thread(target=faster)
            thread.start()
            thread.join()
        return decided

    facts = asyncio.run(kind(settings).write(decide))
    log = [each.value for each in pipeline.kafka.read(settings.topics.registry)]
    assert log == written
    assert facts.values["test/a"] == written[-1]
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_registry_that_is_not_there_is_not_an_empty_one(pipeline: Pipeline) -> None:
    from aiokafka.errors import UnknownTopicOrPartitionError

    with pytest.raises(UnknownTopicOrPartitionError):
        read_registry(pipeline.settings, f"{pipeline.name}.never.hatcast")


async def test_under_add_remove_an_emptied_redis_does_not_move_the_first_slot(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))

    async def register(settings: Settings, stores: Stores) -> PolicyRecord:
        registering = Registration(settings, stores.redis, PARTITIONS, {})
        await registering.check()
        record = (await registering.register()).record
        assert (await stores.ledger.progress.read()).first_ms == record.first_slot_ms
        return record

    async def start_lose_start(opened: Pipeline) -> tuple[PolicyRecord, PolicyRecord]:
        settings = load_settings(opened.config, {})
        async with open_stores(opened, claim=False) as stores:
            first = await register(settings, stores)
            opened.forget()
            monkeypatch.setattr(registration, "now_ms", lambda: now_ms() + 30 * HOUR_MS)
            return first, await register(settings, stores)

    with open_pipeline(kafka, redis_server, tmp_path, "first", HIDDEN) as opened:
        ensure_topics(opened.settings)
        first, again = await start_lose_start(opened)
    assert first.first_slot_ms is not None
    assert again.first_slot_ms == first.first_slot_ms
    assert again.first_date == first.first_date
