"""`[kafka]` and `[redis]` as what each client is told, and what is refused before anybody is asked."""

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.kafka.client import (
    LEADERS_POLL_S,
    aiokafka_options,
    ask_leaders,
    confluent_options,
    ssl_context,
    translate_kafka_errors,
    wait_for_broker,
)
from hatcast.agents.redis.connection import redis_name, redis_options
from hatcast.stream.errors import HatcastError, SettingError
from tests.integration.tables import DEFAULTS, merged

PASSWORD = "s3cret"
# A certificate whose key nobody has.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBhjCCASugAwIBAgIUBEqPGBh+eeo9SpltkeiBGd92R/0wCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMaGF0Y2FzdC10ZXN0MCAXDTI2MTEyMTA3NDcxNloYDzIxMjYx
MDI4MDc0NzE2WjAXMRUwEwYDVQQDDAxoYXRjYXN0LXRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAAQduD+jazXkn8oVaMw1Ot8ADWuNgOCzhbJhQK42Sxl/AAc/
Wht2Lc3lBe1nk+DFvrrjrJFguULa5YpM0dBlP0qEo1MwUTAdBgNVHQ4EFgQUJBqS
kKn0HRB/NXTojOwkoqsDk7owHwYDVR0jBBgwFoAUJBqSkKn0HRB/NXTojOwkoqsD
k7owDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAxhZRV5vBTcou
a9ar/bYHh1D4GdLhxwCaeFoT39omc4YCIQDgzaYK/Q4Rp8RiGOeoby2EaJvsu17P
OD2xw3W2xU0zbA==
-----END CERTIFICATE-----
"""
SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "bus"}


def settings(password: str | None = PASSWORD, /, **tables: Any) -> Settings:
    environment = {} if password is None else {"HATCAST_KAFKA_PASSWORD": password, "HATCAST_REDIS_PASSWORD": password}
    return parse_settings(merged(merged(DEFAULTS, {"policy": {"name": "p"}}), tables), Path("/nowhere"), environment)


def test_without_a_word_about_security_every_client_speaks_plainly() -> None:
    plain = settings(None, kafka={"bootstrap_servers": "a:1, b , [::1]:3"})
    assert aiokafka_options(plain)["bootstrap_servers"] == "a:1,b:9092,[::1]:3"
    assert confluent_options(plain)["bootstrap.servers"] == "a:1,b:9092,[::1]:3"
    options = aiokafka_options(plain)
    assert options["security_protocol"] == "PLAINTEXT"
    assert not [key for key, value in options.items() if key.startswith(("sasl", "ssl")) and value is not None]
    assert not [key for key in confluent_options(plain) if key.startswith(("sasl", "ssl"))]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._AUTHENTICATION, "rejects the login"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "rejects the login"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "denies this user an operation"),
        (KafkaError._TRANSPORT, "was lost"),
        (KafkaError._TIMED_OUT, "was lost"),
        (KafkaError.UNKNOWN, "failed a request"),
        (KafkaError.POLICY_VIOLATION, "failed a request"),
    ],
)
def test_an_error_of_a_broker_names_the_broker_and_its_kind(code: int, said: str) -> None:
    with pytest.raises(HatcastError, match=said) as raised, translate_kafka_errors(settings()):
        raise KafkaException(KafkaError(code, "why"))
    assert "Kafka at " in str(raised.value)
    assert "(why)" in str(raised.value)


@pytest.mark.parametrize(
    ("code", "most"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1), (KafkaError.NOT_LEADER_FOR_PARTITION, 3)]
)
def test_only_a_missing_leader_is_asked_again_and_not_for_ever(code: int, most: int) -> None:
    asked = []

    def ask() -> None:
        asked.append(code)
        raise KafkaException(KafkaError(code))

    with pytest.raises(KafkaException) as raised:
        ask_leaders(ask, patience_s=1.5 * LEADERS_POLL_S)
    assert raised.value.args[0].code() == code
    assert min(most, 2) <= len(asked) <= most


def test_login_and_tls_reach_every_client(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(CERTIFICATE)
    given = settings(kafka=SASL | {"ssl_cafile": str(ca), "ssl_check_hostname": False})
    options = aiokafka_options(given)
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("bus", PASSWORD)
    assert options["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert not options["ssl_context"].check_hostname
    confluent = confluent_options(given)
    assert confluent["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (confluent["sasl.username"], confluent["sasl.password"]) == ("bus", PASSWORD)
    assert confluent["ssl.ca.location"] == str(ca)
    assert confluent["ssl.endpoint.identification.algorithm"] == "none"


def test_tls_checks_the_name_of_the_broker_unless_told_otherwise() -> None:
    given = settings(kafka={"security_protocol": "SSL"})
    context = ssl_context(given)
    assert context is not None
    assert context.check_hostname
    assert confluent_options(given)["ssl.endpoint.identification.algorithm"] == "https"


@pytest.mark.parametrize(
    ("kafka", "key"),
    [
        ({"security_protocol": "TLS"}, "kafka.security_protocol"),
        ({"security_protocol": "SASL_SSL"}, "kafka.sasl_mechanism"),
        (SASL | {"sasl_mechanism": "GSSAPI"}, "kafka.sasl_mechanism"),
        ({"sasl_mechanism": "PLAIN"}, "kafka.sasl_mechanism"),
        (SASL | {"sasl_plain_username": ""}, "kafka.sasl_plain_username"),
        ({"ssl_cafile": "ca.pem"}, "kafka.ssl_cafile"),
        ({"security_protocol": "SSL", "ssl_certfile": "absent.pem"}, "kafka.ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_cafile": json.__file__}, "kafka.ssl_cafile"),
        ({"bootstrap_servers": " , "}, "kafka.bootstrap_servers"),
        ({"bootstrap_servers": "host:port"}, "kafka.bootstrap_servers"),
        ({"bootstrap_servers": "host:0"}, "kafka.bootstrap_servers"),
        ({"bootstrap_servers": "host:²"}, "kafka.bootstrap_servers"),
        ({"bootstrap_servers": "host:" + "9" * 5_000}, "kafka.bootstrap_servers"),
        ({"bootstrap_servers": ":9092"}, "kafka.bootstrap_servers"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_their_key(kafka: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingError) as refused:
        wait_for_broker(settings(kafka=kafka))
    assert refused.value.key == key
    assert PASSWORD not in str(refused.value)


def test_a_login_without_a_password_is_refused() -> None:
    with pytest.raises(SettingError, match="HATCAST_KAFKA_PASSWORD"):
        aiokafka_options(settings(None, kafka=SASL))


@pytest.mark.parametrize(
    ("redis", "key"),
    [
        ({"url": "localhost:6379"}, "redis.url"),
        ({"url": "http://localhost:6379"}, "redis.url"),
        ({"url": f"redis://:{PASSWORD}@host:port/0"}, "redis.url"),
        ({"url": f"redis://:{PASSWORD}@host:1/zero"}, "redis.url"),
        ({"url": f"redis://:{PASSWORD}@host:1/²"}, "redis.url"),
        ({"url": f"redis://:{PASSWORD}@host:1/{'9' * 5_000}"}, "redis.url"),
        ({"url": "redis://host", "ssl_ca_certs": "ca.pem"}, "redis.ssl_ca_certs"),
        ({"url": "rediss://host", "ssl_ca_certs": "absent.pem"}, "redis.ssl_ca_certs"),
        ({"url": "rediss://host", "ssl_keyfile": "absent.pem"}, "redis.ssl_keyfile"),
    ],
)
def test_a_redis_that_cannot_be_meant_is_refused_without_its_password(redis: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingError) as refused:
        redis_options(settings(redis=redis))
    assert refused.value.key == key
    assert PASSWORD not in str(refused.value)


def test_messages_name_a_redis_without_its_password() -> None:
    assert redis_name(settings(redis={"url": f"rediss://user:{PASSWORD}@host:7/1"})) == "Redis at host:7"
    assert redis_name(settings(redis={"url": "redis://"})) == "Redis at localhost:6379"
    assert redis_name(settings(redis={"url": "unix:///run/redis.sock"})) == "Redis at /run/redis.sock"


def test_redis_gives_bytes_and_keeps_nobody_waiting_for_ever() -> None:
    options = redis_options(settings())
    assert options["decode_responses"] is False
    assert 0 < options["socket_connect_timeout"] <= options["socket_timeout"] <= 30
