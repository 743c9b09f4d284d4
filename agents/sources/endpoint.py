"""Address, credentials and TLS of a live source. Secrets come from the environment or from files."""

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hatcast.stream.errors import HatcastError

PASSWORD_VARIABLE: Final = "HATCAST_FEED_PASSWORD"  # noqa: S105 - the name of a variable, not a password
KEY_VARIABLE: Final = "HATCAST_FEED_KEY"


class SourceLost(Exception):
    """The connection to a source failed and is retried. The text contains no secret and no data."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s  # shortest wait before the next attempt


class SourceRejection(SourceLost):
    """The source rejects the connection. If no earlier connection succeeded, the bridge ends instead of retrying."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and credentials of a message broker."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None  # None: a plaintext connection

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Socket(ssl.SSLSocket):
    """Closes itself if its handshake fails: paho leaves it to the garbage collector, one for each attempt."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of `ssl`
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # it goes on later
            raise
        except BaseException:
            self.close()
            raise


def tls_context(
    ca_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """Return a TLS context that verifies certificate and host name. Raises HatcastError.

    ca_file   certificate authorities; None: the system's
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
        context.sslsocket_class = _Socket
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in (ca_file, cert_file, key_file) if path is not None)
        raise HatcastError(f"TLS: {names}: not matching PEM files ({error.strerror or error}); correct them") from None
    return context


def read_secret(variable: str, file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a secret from a file, else from the environment; None if neither has it. Raises HatcastError."""
    if file is None:
        return environment.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"{file}: cannot be read ({type(error).__name__}); name a readable file") from None


def source_error(error: BaseException, wait_s: float = 0.0) -> SourceLost:
    """Convert an error to the reason for a failed connection.

    The reason is the system's message or the error's type, never a text that may contain a secret.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return SourceRejection(
                f"its certificate is not trusted ({cause.verify_message}): correct --ca-file or the name"
            )
        if isinstance(cause, TimeoutError):
            return SourceLost("no answer in time", wait_s)
        if isinstance(cause, socket.gaierror):
            return SourceLost("its host is unknown", wait_s)
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return SourceLost(os.strerror(cause.errno).lower(), wait_s)
        cause = cause.__cause__ or cause.__context__
    return SourceLost(f"the connection failed ({type(error).__name__})", wait_s)
