"""Kafka clients: options, where all SASL and TLS settings pass through, and connecting with retries.

Connection errors become messages that name the broker and the fix.
"""

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import Waiting
from hatcast.stream.errors import HatcastError, SettingError, name_fix

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

Answer = TypeVar("Answer")

CLIENT_ID: Final = "hatcast"
BACKOFF_MS: Final = 100  # before the second attempt; doubled before each further one
BACKOFF_MAX_MS: Final = 2_000

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_PORT: Final = 9092
_PORT: Final = re.compile(r"[0-9]{1,5}")

# hatcast's own errors have the clients' reasons; the clients' log lines would repeat them.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
_NO_LOG: Final = logging.getLogger("hatcast.librdkafka")
_NO_LOG.addHandler(logging.NullHandler())
_NO_LOG.propagate = False


def aiokafka_options(settings: Settings) -> dict[str, Any]:
    """Return keyword arguments for every aiokafka client: the names are those of `[kafka]`. Raises SettingError."""
    _check(settings)
    options: dict[str, Any] = {
        "bootstrap_servers": ",".join(servers(settings)),
        "client_id": CLIENT_ID,
        "security_protocol": settings.kafka.security_protocol,
        "ssl_context": ssl_context(settings),
    }
    if _uses_sasl(settings):
        options |= {
            "sasl_mechanism": settings.kafka.sasl_mechanism,
            "sasl_plain_username": settings.kafka.sasl_plain_username,
            "sasl_plain_password": settings.kafka_password,
        }
    return options


def confluent_options(settings: Settings) -> dict[str, Any]:
    """Return the configuration of every confluent-kafka client. Raises SettingError."""
    _check(settings)
    ssl_context(settings)  # checks the same files, with an error that names their key
    table = settings.kafka
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(servers(settings)),
        "client.id": CLIENT_ID,
        "security.protocol": table.security_protocol,
        "reconnect.backoff.ms": BACKOFF_MS,
        "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
        "logger": _NO_LOG,
        # It retries by itself. Without a callback it prints; a fatal error is raised by the failing call.
        "error_cb": lambda _: None,
    }
    if _uses_sasl(settings):
        options |= {
            "sasl.mechanism": table.sasl_mechanism,
            "sasl.username": table.sasl_plain_username,
            "sasl.password": settings.kafka_password,
        }
    if _uses_tls(settings):
        files = {
            "ssl.ca.location": table.ssl_cafile,
            "ssl.certificate.location": table.ssl_certfile,
            "ssl.key.location": table.ssl_keyfile,
        }
        options |= {name: path for name, path in files.items() if path is not None}
        options["ssl.endpoint.identification.algorithm"] = "https" if table.ssl_check_hostname else "none"
    return options


def ssl_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of `[kafka]`; None if the protocol does not use TLS. Raises SettingError."""
    if not _uses_tls(settings):
        return None
    table = settings.kafka
    try:
        context = ssl.create_default_context(cafile=table.ssl_cafile)
        if table.ssl_certfile is not None:
            context.load_cert_chain(table.ssl_certfile, table.ssl_keyfile)
    except (OSError, ssl.SSLError) as error:
        problem = f"or ssl_certfile or ssl_keyfile is not a PEM file ({error})"
        raise SettingError("kafka.ssl_cafile", problem, "correct it") from None
    context.check_hostname = table.ssl_check_hostname
    return context


def servers(settings: Settings) -> list[str]:
    """Return the host:port of each bootstrap server. Raises SettingError."""
    servers = []
    for text in filter(None, (part.strip() for part in settings.kafka.bootstrap_servers.split(","))):
        host, colon, port = text.rpartition(":")
        bare = not colon or text.endswith("]")  # an IPv6 address without a port ends in a bracket
        if not bare and not (host and _PORT.fullmatch(port) and 0 < int(port) < 65536):
            fix = 'write "host:port", comma-separated'
            raise SettingError("kafka.bootstrap_servers", f"{text!r} is not host:port", fix)
        servers.append(f"{text}:{_DEFAULT_PORT}" if bare else text)
    if not servers:
        raise SettingError("kafka.bootstrap_servers", "is empty", 'write "host:port"')
    return servers


def _uses_sasl(settings: Settings) -> bool:
    return settings.kafka.security_protocol.startswith("SASL_")


def _uses_tls(settings: Settings) -> bool:
    return settings.kafka.security_protocol.endswith("SSL")


def _check(settings: Settings) -> None:
    """Raise SettingError if the keys of `[kafka]` contradict each other."""
    table = settings.kafka
    protocol = table.security_protocol
    if protocol not in _PROTOCOLS:
        raise SettingError("kafka.security_protocol", f"{protocol!r} is not a protocol", name_fix(protocol, _PROTOCOLS))
    if _uses_sasl(settings):
        if table.sasl_mechanism not in _MECHANISMS:
            problem = f"{table.sasl_mechanism!r} cannot be used with {protocol}"
            raise SettingError("kafka.sasl_mechanism", problem, name_fix(table.sasl_mechanism or "", _MECHANISMS))
        if not table.sasl_plain_username or not settings.kafka_password:
            fix = "set it, and HATCAST_KAFKA_PASSWORD or kafka.sasl_plain_password_file"
            raise SettingError("kafka.sasl_plain_username", "or its password is missing", fix)
    elif table.sasl_mechanism or table.sasl_plain_username:
        fix = "set kafka.security_protocol to SASL_SSL"
        raise SettingError("kafka.sasl_mechanism", f"is not used by {protocol}", fix)
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path: str | None = getattr(table, key)
        if path is not None and not _uses_tls(settings):
            fix = "set kafka.security_protocol to SSL or SASL_SSL"
            raise SettingError(f"kafka.{key}", f"is not used by {protocol}", fix)
        if path is not None and not Path(path).is_file():
            raise SettingError(f"kafka.{key}", f"{path} is not a file", "correct the path")


CONNECT_SECONDS: Final = 12.0  # for all attempts together
ATTEMPT_SECONDS: Final = 1.5  # for one attempt; an open connection is used again by the next one
REQUEST_SECONDS: Final = 15.0
PROBE_SECONDS: Final = 2.0
LEADERS_POLL_S: Final = 0.05  # between two requests while partitions have no leader

_LOGIN_ERRORS: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")
_LOGIN_FIX: Final = "correct kafka.sasl_mechanism, kafka.sasl_plain_username or HATCAST_KAFKA_PASSWORD"
# A leader is being elected or moves, or does not yet know the end of its log: the metadata names it before it is ready.
_LEADER_ERRORS: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",
    }
)
# Around the reason in librdkafka's texts: "sasl_ssl://host:9092/bootstrap: " and " (after 3ms in state AUTH_REQ)".
_DECORATION: Final = re.compile(r"^\S+/(bootstrap|\d+): | \(after \d+ms in state \w+[^)]*\)$")


def broker_name(settings: Settings) -> str:
    """Return the brokers' name for messages."""
    return f"Kafka at {settings.kafka.bootstrap_servers}"


def wait_for_broker(settings: Settings, patience_s: float = CONNECT_SECONDS) -> "ClusterMetadata":
    """Return the metadata of the cluster once a broker accepts the login; retry with backoff for `patience_s` seconds.

    A terminal gets a line after the first failed attempts: `Waiting`.

    Uses librdkafka: aiokafka does not distinguish a rejected login or certificate from a lost connection.
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
            return admin.list_topics(timeout=max(0.1, min(ATTEMPT_SECONDS, deadline_s - monotonic_s())))
        except KafkaException:
            admin.poll(0)
            _raise_permanent_error(settings, errors)
            if monotonic_s() >= deadline_s:
                raise HatcastError(_unreachable(settings, patience_s)) from None
            waiting.tried(monotonic_s())


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
def admin_client(settings: Settings, patience_s: float = CONNECT_SECONDS) -> Iterator["AdminClient"]:
    """Connect an admin client for the block; waits as `wait_for_broker` does.

    Raises HatcastError that names the broker if it is unreachable, rejects the login, or fails within the block.
    """
    from confluent_kafka.admin import AdminClient

    wait_for_broker(settings, patience_s)
    with translate_kafka_errors(settings):
        yield AdminClient(confluent_options(settings))


def ask_leaders(ask: Callable[[], Answer], patience_s: float = REQUEST_SECONDS) -> Answer:
    """Return the answer to a request to partitions' leaders; repeat it while leaders are elected or move.

    librdkafka repeats what it produces and fetches, and aiokafka all of its requests; librdkafka's requests for offsets
    fail at once, as they do just after a topic was created or a broker restarted.
    Raises KafkaException: any other error, or the last one after `patience_s` seconds.
    """
    from confluent_kafka import KafkaException

    deadline_s = monotonic_s() + patience_s
    while True:
        try:
            return ask()
        except KafkaException as raised:
            if raised.args[0].name() not in _LEADER_ERRORS or monotonic_s() >= deadline_s:
                raise
        time.sleep(LEADERS_POLL_S)


@contextmanager
def translate_kafka_errors(settings: Settings) -> Iterator[None]:
    """Turn librdkafka's errors within the block into HatcastErrors that name the broker."""
    from confluent_kafka import KafkaError, KafkaException

    where = broker_name(settings)
    try:
        yield
    except KafkaException as raised:
        error = raised.args[0]
        name, text = error.name(), " ".join(_DECORATION.sub("", error.str()).split())
        if name in _LOGIN_ERRORS:
            raise HatcastError(f"{where} rejects the login ({text}): {_LOGIN_FIX}") from None
        if name.endswith("AUTHORIZATION_FAILED"):
            raise HatcastError(f"{where} denies this user an operation ({text}): change the user's ACLs") from None
        if error.code() < KafkaError.UNKNOWN:  # librdkafka's own: no broker answered
            raise HatcastError(
                f"the connection to {where} was lost ({text}): check that it runs and that its advertised.listeners"
                " are reachable"
            ) from None
        raise HatcastError(f"{where} failed a request ({text}): see the broker's log") from None


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
