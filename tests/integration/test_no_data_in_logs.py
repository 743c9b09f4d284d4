"""Every byte that a worker writes for operators, while errors come whose texts hold a record: none of it is data.

Searched are its log at the level `debug`, dead letters, `/metrics` and `/readyz`, for vehicles, pseudonyms, readings,
true sums and true means.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.readings.pseudonyms import Pseudonyms
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.health import asked, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, ticks
from tests.integration.stumbling_worker import (
    BUSES,
    DATE,
    FATAL_RECORD,
    KEY,
    MUTANTS,
    SAMPLES,
    product,
    stumble,
    text_in_the_last_line,
    true_sums_logged,
)
from tests.services import KafkaServer, Record, RedisServer

POISON: Final = SAMPLES[0].value.replace(b'"speed":', b'"speed":"')
CHANGES: Final = {
    "worker": {"listen": "127.0.0.1:0", "user_key_file": "user_key"},
    "policy": {"upper_bound": 100.0, "estimator": {"name": "baseline"}},
}
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")  # six digits of it may be those of a sum


def marks() -> Mapping[str, set[str]]:
    """By kind, what must not be found."""
    milli = [[round(each.speed * 1000) for each in SAMPLES[at : at + BUSES]] for at in range(0, len(SAMPLES), BUSES)]
    return {
        "vehicle": {each.vehicle for each in SAMPLES},
        "pseudonym": {Pseudonyms(KEY).of(each.vehicle, DATE).hex() for each in SAMPLES},
        "reading": {text for hat in milli for value in hat for text in (str(value), str(value / 1000))},
        "sum": {text for hat in milli for text in (str(sum(hat)), str(sum(hat) / 1000))},
        "mean": {f"{sum(hat) / len(hat) / 1000:.3f}" for hat in milli},
    }


def found_in(text: str) -> set[str]:
    """The kinds of data that a text holds."""
    text = _INSTANT.sub("", text)
    return {
        kind
        for kind, forms in marks().items()
        if any(re.search(rf"(?<![\w.]){re.escape(form)}(?!\d)", text, re.IGNORECASE) for form in forms)
    }


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    (tmp_path / "user_key").write_text(KEY.hex())
    with open_pipeline(kafka, redis_server, tmp_path, "marked", CHANGES) as opened:
        ensure_topics(opened.settings)
        yield opened


def run(pipeline: Pipeline, fatal: str, mutant: str) -> tuple[WorkerProcess, str]:
    """A worker from its start to its failure; with what it has written for operators."""
    kafka, topics = pipeline.kafka, pipeline.settings.topics
    worker = pipeline.worker("--log-level", "debug", wrap=partial(stumble, fatal, mutant))
    kafka.produce(pipeline.name, [each.record() for each in SAMPLES[:BUSES]])
    kafka.produce(pipeline.name, [Record(POISON, b"poison", 0, NOON_MS), *ticks(NOON_MS + HOUR_MS + 600_000)])
    pipeline.wait(lambda: "stumbled" in worker.logged(), "worker that has stumbled", worker)
    pipeline.wait(lambda: pipeline.is_settled() and len(pipeline.published()) == 1, "release", worker)
    break_a_key(pipeline, worker)
    kafka.produce(pipeline.name, [each.record() for each in SAMPLES[BUSES:]])
    pipeline.wait(pipeline.is_caught_up, "folded records", worker)
    seen = [scraped(worker), str(asked(worker, "/readyz"))]
    if fatal == "fold":
        kafka.produce(pipeline.name, [Record(FATAL_RECORD, b"fatal", 1, NOON_MS + 3 * HOUR_MS)])
    else:
        kafka.produce(pipeline.name, ticks(NOON_MS + 3 * HOUR_MS + 600_000))
    assert worker.wait() == 1, worker.log_tail()
    letters = kafka.read(topics.dead_letters)
    assert letters  # more than one of the record, where it was folded again
    return worker, "\n".join([worker.logged(), *map(str, letters), *seen])


def break_a_key(pipeline: Pipeline, worker: WorkerProcess) -> None:
    """A key of the state is of another type for a while: Redis refuses what a script and a pipeline do with it."""
    key = PartitionKeys(pipeline.settings.policy.name, SAMPLES[0].partition).outcomes
    with closing(pipeline.redis_server.client()) as redis:
        kept = redis.dump(key)
        assert isinstance(kept, bytes)
        redis.set(key, SAMPLES[0].value)
        pipeline.kafka.produce(pipeline.name, [SAMPLES[0].record(NOON_MS + HOUR_MS + 600_000)])
        pipeline.wait(lambda: "WRONGTYPE" in worker.logged(), "refused script", worker)
        redis.restore(key, 0, kept, replace=True)
    pipeline.wait(pipeline.is_caught_up, "folded record", worker)


@pytest.mark.parametrize("fatal", ["fold", "draw"])
def test_nothing_that_a_worker_writes_for_operators_holds_data_whatever_errors_it_meets(
    fatal: str, pipeline: Pipeline
) -> None:
    worker, written = run(pipeline, fatal, product.__name__)
    assert found_in(written) == set(), written
    log = worker.logged()
    # And all of it was met, and is there by its kind and its place.
    for said in (
        '"operation": "write a checkpoint", "service": "Redis", "cause": "no connection (closed by the server)"',
        '"operation": "read the stored offsets", "service": "Redis", "cause": "it rejected a command (ERR)"',
        '"operation": "commit releases", "service": "Redis", "cause": "a script failed at its line 12: ',
        '"operation": "publish releases", "service": "Kafka", "cause": "KafkaError"',
        "a key has another type (WRONGTYPE)",
        "Task exception was never retrieved [",
        "Exception in callback [",
        "a thread ended: ValueError at ",
        "ignored: ValueError at ",
        "Failed fetch messages from 1: ValueError at ",
        "Unexpected error in fetcher routine [",
        "a message of aiokafka.consumer.fetcher, line ",
        '"event": "an error of ours"',
        '"event": "another error of ours"',
    ):
        assert said in log, said
    kind, place = ("ValueError", "hatcast/") if fatal == "fold" else ("KeyError", "hatcast/agents/release/hats.py:")
    assert re.search(rf"\nhatcast: the worker failed \({kind} at {place}\S*:?\d+\); its log has the details\n$", log), (
        worker.log_tail()
    )


@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - {product.__name__}))
def test_a_worker_that_writes_a_true_sum_or_the_text_of_an_error_is_seen(mutant: str, pipeline: Pipeline) -> None:
    _, written = run(pipeline, "draw", mutant)
    found = found_in(written)
    if mutant == true_sums_logged.__name__:
        assert found == {"sum"}
    else:
        assert found >= {"vehicle", "pseudonym", "reading", "sum"}
    if mutant == text_in_the_last_line.__name__:
        assert found_in(written.replace("hatcast: the worker failed", "\0").partition("\0")[0]) == set()
