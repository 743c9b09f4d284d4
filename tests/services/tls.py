"""Certificates for tests: an authority of our own, and one that it signed for 127.0.0.1."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.services.absent import find_program


@dataclass(frozen=True)
class Certificate:
    ca_file: Path
    cert_file: Path
    key_file: Path


def find_openssl() -> str:
    """Makes certificates. Raises ServiceAbsent where there is none."""
    return find_program("openssl", package="openssl")


def make_certificate(folder: Path) -> Certificate:
    """A certificate for localhost and 127.0.0.1, and its authority. Raises ServiceAbsent without openssl."""
    openssl = find_openssl()
    made = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    new = [openssl, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca_key, request, names = folder / "ca.key", folder / "server.csr", folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    sign = [openssl, "x509", "-req", "-days", "2", "-CAcreateserial", "-extfile", str(names)]
    for command in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=tests", "-keyout", str(ca_key), "-out", str(made.ca_file)],
        [*new, "-subj", "/CN=localhost", "-keyout", str(made.key_file), "-out", str(request)],
        [*sign, "-in", str(request), "-CA", str(made.ca_file), "-CAkey", str(ca_key), "-out", str(made.cert_file)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made


def make_client_certificate(folder: Path, name: str) -> Certificate:
    """A client's certificate, CN=name, from the authority of `make_certificate` in the same folder."""
    openssl = find_openssl()
    made = Certificate(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
    request = folder / f"{name}.csr"
    new = [
        openssl,
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        f"/CN={name}",
    ]
    sign = [openssl, "x509", "-req", "-days", "2", "-CAcreateserial", "-CA", str(made.ca_file)]
    for command in (
        [*new, "-keyout", str(made.key_file), "-out", str(request)],
        [*sign, "-CAkey", str(folder / "ca.key"), "-in", str(request), "-out", str(made.cert_file)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made
