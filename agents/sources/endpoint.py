"""How a live source is reached: its address, who we are, and TLS. Secrets come from the environment or from files."""

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
    """The connection to a source is gone, or cannot be made; it is tried again. The text holds no secret and no data.

    wait_s   before the next try, at least
    """

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class SourceRefuses(SourceLost):
    """The source does not let us in. Where it never has, waiting would not help, and the bridge does not start."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker of messages.

    tls   None: a plain connection
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def tls_context(
    ca_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """TLS that checks the source's certificate and name, by `ca_file` or what the system trusts. Raises HatcastError."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in (ca_file, cert_file, key_file) if path is not None)
        raise HatcastError(
            f"TLS: {names}: not PEM files that fit together ({error.strerror or error}); correct them"
        ) from None
    return context


def secret(variable: str, file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """A secret from a file, else from the environment; None if neither has it. Raises HatcastError."""
    if file is None:
        return environment.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"{file}: cannot be read ({type(error).__name__}); name a readable file") from None


def lost(error: BaseException, wait_s: float = 0.0) -> SourceLost:
    """Why a connection failed: the system's words, or the kind of error. Never a text that may hold a secret."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return SourceRefuses(
                f"its certificate is not trusted ({seen.verify_message}): correct --ca-file or the name"
            )
        if isinstance(seen, TimeoutError):
            return SourceLost("no answer in time", wait_s)
        if isinstance(seen, socket.gaierror):
            return SourceLost("its host is unknown", wait_s)
        if isinstance(seen, OSError) and seen.errno and seen.errno > 0:
            return SourceLost(os.strerror(seen.errno).lower(), wait_s)
        seen = seen.__cause__ or seen.__context__
    return SourceLost(f"the connection failed ({type(error).__name__})", wait_s)
