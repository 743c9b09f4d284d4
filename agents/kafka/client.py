"""The way to Kafka: connecting, trying again, and how a broker that does not answer is named."""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client_settings import aiokafka_options, confluent_options, kafka_python_options, servers
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

CONNECT_SECONDS: Final = 12.0  # how long a broker that does not answer is tried again
ATTEMPT_SECONDS: Final = 1.5  # one try of those; a connection that stands is kept for the next
REQUEST_SECONDS: Final = 15.0
PROBE_SECONDS: Final = 2.0

_LOGIN_FIX: Final = "correct kafka.sasl_mechanism, kafka.sasl_plain_username or HATCAST_KAFKA_PASSWORD"
# Around what librdkafka says: "sasl_ssl://host:9092/bootstrap: " and " (after 3ms in state AUTH_REQ)".
_DECORATION: Final = re.compile(r"^\S+/(bootstrap|\d+): | \(after \d+ms in state \w+[^)]*\)$")


def broker_name(settings: Settings) -> str:
    """The brokers, as messages name them."""
    return f"Kafka at {settings.kafka.bootstrap_servers}"


def wait_for_broker(settings: Settings, patience_s: float = CONNECT_SECONDS) -> None:
    """Returns once a broker has let us in and answered; it is tried again, with back-off, for `patience_s` seconds.

    librdkafka asks: the other clients do not tell a login that is refused, or a certificate, from a lost connection.
    Raises HatcastError that names the broker; at once where waiting would not help.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    said: list[tuple[str, str]] = []
    asking = AdminClient(
        confluent_options(settings) | {"error_cb": lambda error: said.append((error.name(), error.str()))}
    )
    deadline_s = monotonic_s() + patience_s
    while True:
        try:
            asking.list_topics(timeout=max(0.1, min(ATTEMPT_SECONDS, deadline_s - monotonic_s())))
        except KafkaException:
            asking.poll(0)
            _refuse_for_good(settings, said)
            if monotonic_s() >= deadline_s:
                raise HatcastError(_unreachable(settings, patience_s)) from None
        else:
            return


def _refuse_for_good(settings: Settings, said: Iterable[tuple[str, str]]) -> None:
    """Raises HatcastError if librdkafka has said what will not change by itself. `said`: (name, text) of its errors."""
    for name, text in said:
        reason = _DECORATION.sub("", text)
        if name == "_AUTHENTICATION":
            raise HatcastError(f"{broker_name(settings)} refuses the login ({reason}): {_LOGIN_FIX}")
        if name == "_SSL":
            brief = reason.partition(": broker certificate")[0]
            raise HatcastError(
                f"{broker_name(settings)} and hatcast do not agree on TLS ({brief}): correct kafka.ssl_cafile,"
                " kafka.ssl_certfile or kafka.ssl_check_hostname"
            )


@contextmanager
def admin_client(settings: Settings, patience_s: float = CONNECT_SECONDS) -> Iterator["KafkaAdminClient"]:
    """A connected admin client, closed at the end of the block; waits as `wait_for_broker` does.

    Raises HatcastError that names the broker: it cannot be reached, refuses the login, or failed within the block.
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
    """Turns what kafka-python raises within the block into a HatcastError that names the broker."""
    from kafka import errors

    where = broker_name(settings)
    try:
        yield
    except (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError) as error:
        raise HatcastError(f"{where} refuses the login ({_text(error)}): {_LOGIN_FIX}") from None
    except errors.AuthorizationError as error:
        raise HatcastError(f"{where} does not allow this user to do that ({_text(error)}): change its ACLs") from None
    except (errors.KafkaConnectionError, errors.NodeNotReadyError) as error:
        raise HatcastError(
            f"{where} was lost ({_text(error)}): see that it runs, and that its advertised.listeners can be reached"
        ) from None
    except errors.KafkaError as error:
        raise HatcastError(f"{where} did not do what was asked ({_text(error)}): see the broker's log") from None


def _text(error: Exception) -> str:
    return " ".join(str(error).split())


def _unreachable(settings: Settings, patience_s: float) -> str:
    """Why a broker did not answer, as far as a plain connection shows it."""
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
    """Why nobody can be reached there; empty if somebody accepts."""
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
