"""Connect to Kafka with retries, and turn connection errors into messages that name the broker and the fix."""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import Waiting
from hatcast.agents.kafka.client_settings import aiokafka_options, confluent_options, kafka_python_options, servers
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

CONNECT_SECONDS: Final = 12.0  # for all attempts together
ATTEMPT_SECONDS: Final = 1.5  # for one attempt; an open connection is used again by the next one
REQUEST_SECONDS: Final = 15.0
PROBE_SECONDS: Final = 2.0

_LOGIN_FIX: Final = "correct kafka.sasl_mechanism, kafka.sasl_plain_username or HATCAST_KAFKA_PASSWORD"
# Around the reason in librdkafka's texts: "sasl_ssl://host:9092/bootstrap: " and " (after 3ms in state AUTH_REQ)".
_DECORATION: Final = re.compile(r"^\S+/(bootstrap|\d+): | \(after \d+ms in state \w+[^)]*\)$")


def broker_name(settings: Settings) -> str:
    """Return the brokers' name for messages."""
    return f"Kafka at {settings.kafka.bootstrap_servers}"


def wait_for_broker(settings: Settings, patience_s: float = CONNECT_SECONDS) -> None:
    """Wait until a broker accepts the login and answers; retry with backoff for `patience_s` seconds.

    A terminal gets a line after the first failed attempts: `Waiting`.

    Uses librdkafka: the other clients do not distinguish a rejected login or certificate from a lost connection.
    Raises HatcastError that names the broker; at once if waiting would not help.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[tuple[str, str]] = []
    admin = AdminClient(
        confluent_options(settings) | {"error_cb": lambda error: errors.append((error.name(), error.str()))}
    )
    start_s = monotonic_s()
    deadline_s, waiting = start_s + patience_s, Waiting(broker_name(settings), patience_s, start_s)
    while True:
        try:
            admin.list_topics(timeout=max(0.1, min(ATTEMPT_SECONDS, deadline_s - monotonic_s())))
        except KafkaException:
            admin.poll(0)
            _raise_permanent_error(settings, errors)
            if monotonic_s() >= deadline_s:
                raise HatcastError(_unreachable(settings, patience_s)) from None
            waiting.tried(monotonic_s())
        else:
            return


def _raise_permanent_error(settings: Settings, errors: Iterable[tuple[str, str]]) -> None:
    """Raise HatcastError if one of librdkafka's errors is permanent. `errors`: (name, text)."""
    for name, text in errors:
        reason = _DECORATION.sub("", text)
        if name == "_AUTHENTICATION":
            raise HatcastError(f"{broker_name(settings)} rejects the login ({reason}): {_LOGIN_FIX}")
        if name == "_SSL":
            brief = reason.partition(": broker certificate")[0]
            raise HatcastError(
                f"the TLS handshake with {broker_name(settings)} failed ({brief}): correct kafka.ssl_cafile,"
                " kafka.ssl_certfile or kafka.ssl_check_hostname"
            )


@contextmanager
def admin_client(settings: Settings, patience_s: float = CONNECT_SECONDS) -> Iterator["KafkaAdminClient"]:
    """Connect an admin client and close it at the end of the block; waits as `wait_for_broker` does.

    Raises HatcastError that names the broker if it is unreachable, rejects the login, or fails within the block.
    """
    from kafka import KafkaAdminClient

    wait_for_broker(settings, patience_s)
    patience_ms = int(REQUEST_SECONDS * 1000)
    with (
        translate_kafka_errors(settings),
        closing(
            KafkaAdminClient(
                **kafka_python_options(settings), bootstrap_timeout_ms=patience_ms, request_timeout_ms=patience_ms
            )
        ) as client,
    ):
        yield client


@contextmanager
def translate_kafka_errors(settings: Settings) -> Iterator[None]:
    """Turn kafka-python's errors within the block into HatcastErrors that name the broker."""
    from kafka import errors

    where = broker_name(settings)
    try:
        yield
    except (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError) as error:
        raise HatcastError(f"{where} rejects the login ({_text(error)}): {_LOGIN_FIX}") from None
    except errors.AuthorizationError as error:
        raise HatcastError(f"{where} denies this user an operation ({_text(error)}): change the user's ACLs") from None
    except (errors.KafkaConnectionError, errors.NodeNotReadyError) as error:
        raise HatcastError(
            f"the connection to {where} was lost ({_text(error)}): check that it runs and that its advertised.listeners"
            " are reachable"
        ) from None
    except errors.KafkaError as error:
        raise HatcastError(f"{where} failed a request ({_text(error)}): see the broker's log") from None


def _text(error: Exception) -> str:
    return " ".join(str(error).split())


def _unreachable(settings: Settings, patience_s: float) -> str:
    """Return the error message for an unreachable broker; a plain TCP connection shows the reason."""
    reasons = {_probe(server) for server in servers(settings)}
    if reasons == {""}:
        return (
            f"{broker_name(settings)} accepts connections but does not answer as Kafka"
            f" (tried for {patience_s:g} s): check the port and kafka.security_protocol"
        )
    return (
        f"{broker_name(settings)} cannot be reached ({', '.join(sorted(filter(None, reasons)))}; tried for"
        f" {patience_s:g} s): start it, or correct kafka.bootstrap_servers or HATCAST_KAFKA_BOOTSTRAP_SERVERS"
    )


def _probe(server: str) -> str:
    """Return the reason why a TCP connection to the server fails; empty if it succeeds."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS).close()
    except socket.gaierror:
        return f"unknown host {host}"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


__all__ = [
    "CONNECT_SECONDS",
    "REQUEST_SECONDS",
    "admin_client",
    "aiokafka_options",
    "broker_name",
    "confluent_options",
    "kafka_python_options",
    "translate_kafka_errors",
    "wait_for_broker",
]
