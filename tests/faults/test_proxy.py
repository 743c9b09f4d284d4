"""The proxy does to real connections what its methods say."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from tests.faults.proxy import Proxy, proxy_of_kafka, proxy_of_redis
from tests.services import KafkaServer, RedisServer

SILENCE_S = 0.5
PATIENCE_S = 30.0


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with proxy_of_redis(redis_server) as (opened, url):
        assert url.startswith(f"redis://127.0.0.1:{opened.port}/")
        yield opened


def dial(proxy: Proxy) -> socket.socket:
    """A plain connection to Redis: a client of a library would try again where a test wants to see the fault."""
    return socket.create_connection((proxy.host, proxy.port), PATIENCE_S)


def ask(connection: socket.socket, command: str = "PING") -> bytes:
    """One answer; raises ConnectionError."""
    connection.sendall(command.encode() + b"\r\n")
    answer = connection.recv(1024)
    if not answer:
        raise ConnectionResetError
    return answer


def ask_in_vain(connection: socket.socket, command: str = "PING") -> None:
    """No answer comes for a while."""
    connection.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        ask(connection, command)
    connection.settimeout(PATIENCE_S)


def test_a_cut_ends_what_is_open_and_lets_in_what_is_new(proxy: Proxy) -> None:
    with dial(proxy) as connection:
        assert ask(connection) == b"+PONG\r\n"
        assert proxy.connections == 1
        proxy.cut()
        assert proxy.connections == 0
        with pytest.raises(ConnectionError):
            ask(connection)
    with dial(proxy) as connection:
        assert ask(connection) == b"+PONG\r\n"


def test_a_server_that_refuses_is_gone_until_it_is_healed(proxy: Proxy) -> None:
    with dial(proxy) as connection:
        assert ask(connection) == b"+PONG\r\n"
        proxy.refuse()
        with pytest.raises(ConnectionError):
            ask(connection)
    with pytest.raises(ConnectionError), dial(proxy) as connection:
        ask(connection)
    proxy.heal()
    with dial(proxy) as connection:
        assert ask(connection) == b"+PONG\r\n"


def test_what_is_sent_into_a_stalled_connection_arrives_once_it_is_healed(
    proxy: Proxy, redis_server: RedisServer, unique_name: str
) -> None:
    with dial(proxy) as connection, closing(redis_server.client()) as direct:
        assert ask(connection) == b"+PONG\r\n"
        proxy.stall()
        ask_in_vain(connection, f"SET {unique_name} late")
        with dial(proxy) as new:
            ask_in_vain(new)
        assert direct.get(unique_name) is None
        proxy.heal()
        assert connection.recv(1024) == b"+OK\r\n"
        assert direct.getdel(unique_name) == b"late"


def test_what_is_stalled_in_a_connection_that_is_cut_never_arrives(
    proxy: Proxy, redis_server: RedisServer, unique_name: str
) -> None:
    with dial(proxy) as connection, closing(redis_server.client()) as direct:
        proxy.stall()
        ask_in_vain(connection, f"SET {unique_name} lost")
        proxy.cut()
        proxy.heal()
        with dial(proxy) as new:
            assert ask(new) == b"+PONG\r\n"
        assert direct.get(unique_name) is None


def test_where_only_answers_stall_the_server_does_what_it_is_told(
    proxy: Proxy, redis_server: RedisServer, unique_name: str
) -> None:
    with dial(proxy) as connection, closing(redis_server.client()) as direct:
        proxy.stall(only_answers=True)
        ask_in_vain(connection, f"INCR {unique_name}")
        assert direct.getdel(unique_name) == b"1"


def test_a_delay_holds_up_every_answer(proxy: Proxy) -> None:
    with dial(proxy) as connection:
        proxy.delay(SILENCE_S)  # each way: the answer takes twice what is waited for
        ask_in_vain(connection)
        assert connection.recv(1024) == b"+PONG\r\n"
        proxy.heal()
        assert ask(connection) == b"+PONG\r\n"


def test_a_kafka_client_that_began_at_the_proxy_stays_behind_it(kafka: KafkaServer, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=1)
    with proxy_of_kafka(kafka) as (proxy, bootstrap_servers):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "reconnect.backoff.max.ms": 100})
        producer.produce(unique_name, b"first")
        assert producer.flush(30) == 0
        proxy.refuse()
        producer.produce(unique_name, b"second")
        assert producer.flush(SILENCE_S) == 1
        assert [record.value for record in kafka.read(unique_name)] == [b"first"]
        proxy.heal()
        assert producer.flush(30) == 0
    assert [record.value for record in kafka.read(unique_name)] == [b"first", b"second"]
    kafka.delete_topics([unique_name])
