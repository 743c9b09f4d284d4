"""Login and TLS against servers that want them, and servers that do not answer."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.kafka.client import aiokafka_options, confluent_options, wait_for_broker
from hatcast.agents.kafka.dump import open_dump
from hatcast.agents.kafka.topics import ensure_topics, topic_range
from hatcast.agents.redis.connection import connect_redis, connect_redis_async
from hatcast.stream.errors import HatcastError
from tests.integration.tables import DEFAULTS, merged
from tests.services import KafkaServer, RedisServer, local_redis
from tests.services.kafka_server import java_command, prepare_local

PASSWORD = "s3cret"
STORE = "changeit"


def settings(**tables: Any) -> Settings:
    return parse_settings(merged(merged(DEFAULTS, {"policy": {"name": "p"}}), tables), Path("/nowhere"), {})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """How to reach a Kafka that wants SASL over TLS."""
    folder = tmp_path_factory.mktemp("guarded")
    java = java_command()
    ca = make_certificate(Path(java[0]).resolve().with_name("keytool"), folder)
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    guards = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{plain} required username="broker" password="b"'
        f' user_broker="b" user_bus="{PASSWORD}";',
        "ssl.keystore.location": str(folder / "store.p12"),
        "ssl.keystore.password": STORE,
        "ssl.truststore.location": str(folder / "store.p12"),
        "ssl.truststore.password": STORE,
    }
    server = prepare_local(java, folder, "256m", guards)
    server.ours.start()
    given = settings(
        kafka={
            "bootstrap_servers": server.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "bus",
            "ssl_cafile": str(ca),
        }
    )
    try:
        wait_for_broker(replace(given, kafka_password=PASSWORD), patience_s=60)
        yield replace(given, kafka_password=PASSWORD)
    finally:
        server.ours.close()


def make_certificate(keytool: Path, folder: Path) -> Path:
    """A key with its certificate for 127.0.0.1 in `store.p12`; the certificate alone as PEM."""
    store = ["-keystore", str(folder / "store.p12"), "-storetype", "PKCS12", "-storepass", STORE, "-alias", "kafka"]
    named = ["-dname", "CN=kafka", "-ext", "SAN=ip:127.0.0.1", "-keyalg", "EC", "-groupname", "secp256r1"]
    subprocess.run([str(keytool), "-genkeypair", *store, *named], check=True, capture_output=True)
    printed = subprocess.run([str(keytool), "-exportcert", "-rfc", *store], check=True, capture_output=True).stdout
    ca = folder / "ca.pem"
    ca.write_bytes(printed)
    return ca


async def test_every_client_logs_in_over_tls(guarded: Settings) -> None:
    ensure_topics(guarded)
    topic = guarded.topics.telemetry
    producer = Producer(confluent_options(guarded))
    producer.produce(topic, b"by confluent-kafka", partition=0)
    assert producer.flush(30) == 0

    async with AIOKafkaProducer(**aiokafka_options(guarded)) as other:
        await other.send_and_wait(topic, b"by aiokafka", partition=0)
    assert topic_range(guarded, guarded.topics.telemetry)[0] == (0, 2)
    with open_dump(guarded, topic) as dump:
        assert sum(records for _, records in dump.chunks()) == 2


def test_a_wrong_password_is_refused_at_once_and_not_shown(guarded: Settings) -> None:
    began = time.monotonic()
    with pytest.raises(
        HatcastError, match=r"Kafka at 127\.0\.0\.1:\d+ rejects the login .*HATCAST_KAFKA_PASSWORD"
    ) as refused:
        ensure_topics(replace(guarded, kafka_password="not-this-one"))
    assert time.monotonic() - began < 10
    assert "not-this-one" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("protocol", "kept"), [("PLAINTEXT", ()), ("SASL_PLAINTEXT", ("sasl_mechanism", "sasl_plain_username"))]
)
def test_a_broker_that_wants_tls_is_told_from_one_that_is_not_there(
    guarded: Settings, protocol: str, kept: tuple[str, ...]
) -> None:
    table = {key: getattr(guarded.kafka, key) for key in ("bootstrap_servers", *kept)}
    without = replace(settings(kafka={**table, "security_protocol": protocol}), kafka_password=PASSWORD)
    with pytest.raises(
        HatcastError, match=r"accepts connections but does not answer as Kafka .*kafka\.security_protocol"
    ):
        wait_for_broker(without, patience_s=2)


def test_a_broker_whose_certificate_nobody_knows_is_not_trusted(guarded: Settings) -> None:
    table = {key: getattr(guarded.kafka, key) for key in ("bootstrap_servers", "sasl_mechanism", "sasl_plain_username")}
    unknown = replace(settings(kafka={**table, "security_protocol": "SASL_SSL"}), kafka_password=PASSWORD)
    with pytest.raises(
        HatcastError,
        match=r"the TLS handshake with Kafka at .* failed \(.*certificate verify failed\): correct kafka\.ssl_cafile",
    ):
        wait_for_broker(unknown)


def test_a_mechanism_that_the_broker_does_not_have_is_named(guarded: Settings) -> None:
    other = replace(guarded, kafka=msgspec.structs.replace(guarded.kafka, sasl_mechanism="SCRAM-SHA-512"))
    with pytest.raises(HatcastError, match=r"rejects the login \(.*SCRAM-SHA-512.*\): correct kafka\.sasl_mechanism"):
        wait_for_broker(other)


def use_sync(given: Settings, patience_s: float = 1.0) -> None:
    with closing(connect_redis(given, patience_s)) as client:
        assert client.ping()


def use_async(given: Settings, patience_s: float = 1.0) -> None:
    async def ping() -> None:
        client = await connect_redis_async(given, patience_s)
        assert await client.ping()
        await client.aclose()

    asyncio.run(ping())


both = pytest.mark.parametrize("use", [use_sync, use_async], ids=["sync", "asyncio"])


@both
def test_redis_lets_in_who_knows_the_password(use: Callable[[Settings], None]) -> None:
    with local_redis() as server:
        with closing(server.client()) as admin:
            admin.acl_setuser("bus", enabled=True, passwords=[f"+{PASSWORD}"], categories=["+@all"], keys=["*"])
            admin.acl_setuser("default", enabled=False)
        right = settings(redis={"url": server.url, "username": "bus"})
        use(replace(right, redis_password=PASSWORD))
        for password in (None, "not-this-one"):
            with pytest.raises(HatcastError, match=r"rejects the login: .*HATCAST_REDIS_PASSWORD") as refused:
                use(replace(right, redis_password=password))
            assert "not-this-one" not in str(refused.value)


@both
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://:hidden@127.0.0.1:1/0", "Redis at 127.0.0.1:1 cannot be reached (connection refused; tried for 1 s)"),
        ("redis://:hidden@nowhere.invalid/0", "Redis at nowhere.invalid:6379 cannot be reached ("),
    ],
)
def test_a_redis_that_cannot_be_reached_is_named(use: Callable[[Settings], None], url: str, reason: str) -> None:
    with pytest.raises(HatcastError) as refused:
        use(settings(redis={"url": url}))
    assert str(refused.value).startswith(reason)
    assert "hidden" not in str(refused.value)
    assert "\n" not in str(refused.value)


@both
def test_a_database_that_redis_does_not_have_is_refused_at_once(
    use: Callable[[Settings], None], redis_server: RedisServer
) -> None:
    with pytest.raises(HatcastError, match="returned an error"):
        use(settings(redis={"url": redis_server.url.rsplit("/", 1)[0] + "/9999"}))


@both
def test_a_redis_that_comes_back_is_waited_for(
    use: Callable[[Settings, float], None], breakable_redis: RedisServer
) -> None:
    breakable_redis.stop()
    with ThreadPoolExecutor(1) as beside:
        used = beside.submit(use, settings(redis={"url": breakable_redis.url}), 60.0)
        breakable_redis.start()
        used.result()


def test_a_broker_that_comes_back_is_waited_for(breakable_kafka: KafkaServer) -> None:
    breakable_kafka.stop()
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(
            wait_for_broker, settings(kafka={"bootstrap_servers": breakable_kafka.bootstrap_servers}), 60.0
        )
        breakable_kafka.start()
        waited.result()
