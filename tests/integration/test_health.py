"""`/livez` and `/readyz` of a worker process, while its Redis and its Kafka come and go."""

import socket
from collections.abc import Callable

import pytest

from tests.exposed import figures
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.health import LISTEN, asked, is_ready, missing, scraped
from tests.services import KafkaServer, RedisServer

pytestmark = pytest.mark.pipeline(LISTEN)


def test_two_workers_of_one_file_are_ready_only_while_redis_and_kafka_answer(
    pipeline: Pipeline, breakable_kafka: KafkaServer, breakable_redis: RedisServer
) -> None:
    workers = [pipeline.worker(), pipeline.worker()]

    def wait_for_both(what: str, condition: Callable[[WorkerProcess], bool]) -> None:
        pipeline.wait(lambda: all(map(condition, workers)), f"two workers that {what}", *workers)

    wait_for_both("are ready", is_ready)
    parts = dict.fromkeys(
        ("redis", "ledger", "group", "partitions", "checkpoint", "clock", "transactions", "topics"), "ok"
    )
    ready = {"ready": True, "parts": parts}
    pipeline.wait(lambda: asked(workers[0], "/readyz")[1] == ready, "a worker with all its parts", *workers)
    breakable_redis.stop()
    wait_for_both("miss Redis", lambda worker: {"redis", "checkpoint"} <= missing(worker).keys())
    assert asked(workers[0], "/livez") == (200, {"alive": True})
    page = scraped(workers[0])
    assert (figures(page, "hatcast_ready")["redis",], figures(page, "hatcast_ready")["worker",]) == (0, 1)
    assert sum(figures(page, "hatcast_troubles_total").values()) > 0
    breakable_redis.start()
    wait_for_both("are ready again", is_ready)
    breakable_kafka.pause()
    wait_for_both("miss Kafka", lambda worker: missing(worker).keys() == {"group"})
    assert asked(workers[0], "/livez") == (200, {"alive": True})
    breakable_kafka.resume()
    wait_for_both("are ready at last", is_ready)
    assert [worker.terminate() for worker in workers] == [0, 0]


def test_an_address_that_is_taken_is_refused(pipeline: Pipeline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = pipeline.hatcast("worker", config=pipeline.changed({"worker": {"listen": where}}))
    assert refused.code == 1
    assert refused.err == (
        f"hatcast: worker.listen: cannot listen on {where} (address already in use): set another address,"
        " or port 0 for any free port: another process with these settings may have this one, such as the worker"
        " beside a drain\n"
    )
