"""The services that the other tests stand on: they start, keep their data and leave nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.services import KafkaServer, Record, RedisServer, local_redis
from tests.services.fixtures import MakeTopic
from tests.services.lifecycle import ServerDidNotStart, ServerProcess, wait_until
from tests.services.redis_server import redis_binary


def test_a_record_comes_back_from_kafka_as_it_was_sent(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    kafka.produce(topic, [Record(b"v", b"k", partition=1, timestamp_ms=1_000, headers=(("id", b"1"),)), Record(None)])
    received = [each for each in kafka.read(topic) if each.key is not None]
    assert [(e.partition, e.offset, e.timestamp_ms, e.key, e.value, e.headers) for e in received] == [
        (1, 0, 1_000, b"k", b"v", (("id", b"1"),))
    ]


def test_a_topic_that_nobody_made_is_refused(kafka: KafkaServer, unique_name: str) -> None:
    with pytest.raises(KafkaException):
        kafka.produce(unique_name, [Record(b"v")])
    assert unique_name not in kafka.topics()


def test_records_of_long_ago_are_kept(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    kafka.produce(topic, [Record(b"old", timestamp_ms=1)])
    assert [each.value for each in kafka.read(topic)] == [b"old"]


def test_an_aborted_transaction_shows_only_to_those_who_ask_for_it(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    assert kafka.read(topic) == []
    assert [each.value for each in kafka.read(topic, committed=False)] == [b"aborted"]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_kafka_keeps_records_and_port_over_a_restart(
    breakable_kafka: KafkaServer, make_topic: MakeTopic, how: str
) -> None:
    topic = make_topic(partitions=1)
    breakable_kafka.produce(topic, [Record(b"v")])
    before = breakable_kafka.bootstrap_servers
    if how == "kill":
        breakable_kafka.kill()
        breakable_kafka.start()
    else:
        breakable_kafka.restart()
    breakable_kafka.produce(topic, [Record(b"w")])
    assert [each.value for each in breakable_kafka.read(topic)] == [b"v", b"w"]
    assert breakable_kafka.bootstrap_servers == before


def test_redis_keeps_what_it_answered_over_a_kill(breakable_redis: RedisServer, unique_name: str) -> None:
    with closing(breakable_redis.client()) as client:
        client.set(unique_name, b"v")
    breakable_redis.kill()
    breakable_redis.start()
    with closing(breakable_redis.client()) as client:
        assert client.get(unique_name) == b"v"


def test_a_paused_redis_answers_nothing_until_it_is_resumed(breakable_redis: RedisServer) -> None:
    breakable_redis.pause()
    with pytest.raises(ServerDidNotStart):
        breakable_redis.wait_until_ready(timeout=0.3)
    breakable_redis.resume()
    breakable_redis.wait_until_ready(timeout=60)


def test_a_flushed_redis_is_empty(breakable_redis: RedisServer, unique_name: str) -> None:
    with closing(breakable_redis.client()) as client:
        client.set(unique_name, b"v")
        breakable_redis.flush()
        assert client.dbsize() == 0


def test_keys_of_one_test_are_deleted_without_those_of_another(redis_server: RedisServer, unique_name: str) -> None:
    with closing(redis_server.client()) as client:
        client.mset({f"{unique_name}:a": 1, f"{unique_name}:b": 1, f"{unique_name}-other": 1})
        redis_server.delete(f"{unique_name}:*")
        assert client.keys(f"{unique_name}*") == [f"{unique_name}-other".encode()]
        client.delete(f"{unique_name}-other")


def test_a_server_that_does_not_start_shows_its_log() -> None:
    with pytest.raises(ServerDidNotStart, match="no-such-option"), local_redis("--no-such-option", "1"):
        pass


def test_a_server_started_in_a_thread_outlives_the_thread(tmp_path: Path) -> None:
    server = ServerProcess([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert server.running
    server.close()
    assert not server.running


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's tie between processes is Linux's")
def test_a_killed_test_run_leaves_no_server_behind(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "from tests.services import local_redis\n"
        "with local_redis() as server:\n"
        "    print(server.lifecycle.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    redis_binary()  # where there is none the process below could not say so
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # a killed run cannot clear its folders away
    run = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    server = int(run.stdout.readline())
    os.kill(server, 0)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    wait_until(lambda: not _alive(server), None, 10.0, "the end of the orphan")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
