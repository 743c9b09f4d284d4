"""Options for every Kafka client. All SASL and TLS settings pass through here.

The keys of `[kafka]` are kafka-python's names; they are translated for the other clients.
"""

import logging
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import Settings
from hatcast.stream.errors import SettingError, name_fix

CLIENT_ID: Final = "hatcast"
BACKOFF_MS: Final = 100  # before the second attempt; doubled before each further one
BACKOFF_MAX_MS: Final = 2_000

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_PORT: Final = 9092
_PORT: Final = re.compile(r"[0-9]{1,5}")

# hatcast's own errors have the clients' reasons; the clients' log lines would repeat them.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
_NO_LOG: Final = logging.getLogger("hatcast.librdkafka")
_NO_LOG.addHandler(logging.NullHandler())
_NO_LOG.propagate = False


def kafka_python_options(settings: Settings) -> dict[str, Any]:
    """Return keyword arguments for every kafka-python client. Raises SettingError."""
    _check(settings)
    options: dict[str, Any] = {
        "bootstrap_servers": servers(settings),
        "client_id": CLIENT_ID,
        "security_protocol": settings.kafka.security_protocol,
        "reconnect_backoff_ms": BACKOFF_MS,
        "reconnect_backoff_max_ms": BACKOFF_MAX_MS,
        **_sasl(settings),
    }
    if _uses_tls(settings):
        options["ssl_context"] = ssl_context(settings)
        options["ssl_check_hostname"] = settings.kafka.ssl_check_hostname
    return options


def aiokafka_options(settings: Settings) -> dict[str, Any]:
    """Return keyword arguments for every aiokafka client. Raises SettingError."""
    _check(settings)
    return {
        "bootstrap_servers": ",".join(servers(settings)),
        "client_id": CLIENT_ID,
        "security_protocol": settings.kafka.security_protocol,
        "ssl_context": ssl_context(settings),
        **_sasl(settings),
    }


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
        "error_cb": _ignore,  # without a callback librdkafka prints; a fatal error is raised by the failing call
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
        raise SettingError(
            "kafka.ssl_cafile", f"or ssl_certfile or ssl_keyfile is not a PEM file ({error})", "correct it"
        ) from None
    context.check_hostname = table.ssl_check_hostname
    return context


def servers(settings: Settings) -> list[str]:
    """Return the host:port of each bootstrap server. Raises SettingError."""
    servers = []
    for text in filter(None, (part.strip() for part in settings.kafka.bootstrap_servers.split(","))):
        host, colon, port = text.rpartition(":")
        bare = not colon or text.endswith("]")  # an IPv6 address without a port ends in a bracket
        if not bare and not (host and _PORT.fullmatch(port) and 0 < int(port) < 65536):
            raise SettingError(
                "kafka.bootstrap_servers", f"{text!r} is not host:port", 'write "host:port", comma-separated'
            )
        servers.append(f"{text}:{_DEFAULT_PORT}" if bare else text)
    if not servers:
        raise SettingError("kafka.bootstrap_servers", "is empty", 'write "host:port"')
    return servers


def _ignore(_error: object) -> None:
    """Ignore an error: librdkafka retries by itself."""


def _uses_sasl(settings: Settings) -> bool:
    return settings.kafka.security_protocol.startswith("SASL_")


def _uses_tls(settings: Settings) -> bool:
    return settings.kafka.security_protocol.endswith("SSL")


def _sasl(settings: Settings) -> Mapping[str, str | None]:
    """Return the login, under the names that kafka-python and aiokafka share."""
    if not _uses_sasl(settings):
        return {}
    return {
        "sasl_mechanism": settings.kafka.sasl_mechanism,
        "sasl_plain_username": settings.kafka.sasl_plain_username,
        "sasl_plain_password": settings.kafka_password,
    }


def _check(settings: Settings) -> None:
    """Raise SettingError if the keys of `[kafka]` contradict each other."""
    table = settings.kafka
    protocol = table.security_protocol
    if protocol not in _PROTOCOLS:
        raise SettingError("kafka.security_protocol", f"{protocol!r} is not a protocol", name_fix(protocol, _PROTOCOLS))
    if _uses_sasl(settings):
        if table.sasl_mechanism not in _MECHANISMS:
            raise SettingError(
                "kafka.sasl_mechanism",
                f"{table.sasl_mechanism!r} cannot be used with {protocol}",
                name_fix(table.sasl_mechanism or "", _MECHANISMS),
            )
        if not table.sasl_plain_username or not settings.kafka_password:
            raise SettingError(
                "kafka.sasl_plain_username",
                "or its password is missing",
                "set it, and HATCAST_KAFKA_PASSWORD or kafka.sasl_plain_password_file",
            )
    elif table.sasl_mechanism or table.sasl_plain_username:
        raise SettingError(
            "kafka.sasl_mechanism", f"is not used by {protocol}", "set kafka.security_protocol to SASL_SSL"
        )
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path: str | None = getattr(table, key)
        if path is None:
            continue
        if not _uses_tls(settings):
            raise SettingError(
                f"kafka.{key}", f"is not used by {protocol}", "set kafka.security_protocol to SSL or SASL_SSL"
            )
        if not Path(path).is_file():
            raise SettingError(f"kafka.{key}", f"{path} is not a file", "correct the path")
