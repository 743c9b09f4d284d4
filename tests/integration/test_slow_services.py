"""What holds a worker up without an error: a transaction that nobody ends, and a Redis that takes seconds to answer."""

import pytest
from confluent_kafka import Producer

from hatcast.agents.worker import ingest
from tests.exposed import figures
from tests.faults.proxy import proxy_of_redis
from tests.integration.harness import Pipeline
from tests.integration.health import LISTEN, is_ready, missing, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import RedisServer

pytestmark = pytest.mark.pipeline(LISTEN, topics=True)


def impatient() -> None:
    """Take a transaction for hanging after two seconds, not after a minute."""
    ingest.PATIENCE_S = 2.0  # type: ignore[misc]


def test_a_transaction_that_nobody_ends_is_named_with_its_partition_until_it_is_ended(pipeline: Pipeline) -> None:
    records = [each.record() for each in traffic(1)]
    pipeline.kafka.produce(pipeline.name, records)
    options = {"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": pipeline.name}
    producer = Producer({**options, "transaction.timeout.ms": 900_000})  # else the broker ends it after a minute
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.name, records[0].value, records[0].key, 3, timestamp=NOON_MS)
    assert producer.flush(30) == 0
    pipeline.kafka.produce(pipeline.name, ticks(NOON_MS + 2 * HOUR_MS))

    worker = pipeline.worker(wrap=impatient)
    stable = sum(1 for each in records if each.partition == 3)
    expected = f"{pipeline.name} partition 3 waits at offset {stable} for "
    pipeline.wait(lambda: missing(worker).get("transactions", "").startswith(expected), "the wait", worker, seconds=60)
    assert figures(scraped(worker), "hatcast_ready")["transactions",] == 0
    pipeline.wait(lambda: "has not ended its transaction" in worker.logged(), "a line of the log", worker)
    assert pipeline.published() == {}

    producer.abort_transaction(30)
    pipeline.wait(lambda: is_ready(worker), "a ready worker", worker, seconds=60)
    pipeline.wait(pipeline.is_settled, "releases", worker)
    assert worker.logged().count("has not ended its transaction") == 1
    assert "the transaction has ended" in worker.logged()


def test_a_redis_that_takes_more_than_a_second_to_answer_is_named(
    pipeline: Pipeline, redis_server: RedisServer
) -> None:
    with proxy_of_redis(redis_server) as (proxy, url):
        worker = pipeline.worker(config=pipeline.changed({"redis": {"url": url}}))
        pipeline.wait(lambda: is_ready(worker), "a ready worker", worker)
        proxy.delay(0.8)  # both ways, so each answer takes 1.6 s and more
        pipeline.wait(lambda: "an answer takes " in missing(worker).get("redis", ""), "a slow Redis", worker)
        proxy.delay(0.0)
        pipeline.wait(lambda: is_ready(worker), "a ready worker again", worker)
