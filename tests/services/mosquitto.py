"""A real mosquitto, as a local process: without TLS and, beside it, with TLS and users."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path
from typing import Final

from tests.services.absent import find_program
from tests.services.broker import Broker
from tests.services.lifecycle import ServerProcess, free_ports, serving
from tests.services.tls import make_certificate

START_SECONDS: Final = 30.0
USER: Final = "bridge"
PASSWORD: Final = "correct horse"
# Nothing is lost while a client with a session is away, and `restart` keeps sessions. Debian has it in /usr/sbin.
# Whoever starts it stays its user: one that becomes another user does not end with its parent any more (see tied.py).
SETTINGS: Final = """\
user {user}
per_listener_settings true
persistence true
persistence_location {folder}/
autosave_interval 1
max_queued_messages 0
max_inflight_messages 1000
listener {port} 127.0.0.1
allow_anonymous true
listener {tls_port} 127.0.0.1
allow_anonymous false
password_file {folder}/users
cafile {certificate.ca_file}
certfile {certificate.cert_file}
keyfile {certificate.key_file}
"""


class Mosquitto(Broker):
    """A broker of MQTT."""

    NAME = "mosquitto"
    START_SECONDS = START_SECONDS


def programs() -> tuple[str, str]:
    """The server, and what makes its file of users. Raises ServiceAbsent where there are none."""
    server = find_program("mosquitto", package="mosquitto", places=("/usr/sbin", "/usr/local/sbin"))
    return server, find_program("mosquitto_passwd", package="mosquitto")


@contextmanager
def local_mosquitto() -> Iterator[Mosquitto]:
    """A mosquitto on free ports. Raises ServiceAbsent where there is none."""
    binary, tool = programs()
    folder = Path(tempfile.mkdtemp(prefix="hatcast-mosquitto-"))
    certificate = make_certificate(folder)
    subprocess.run([tool, "-b", "-c", str(folder / "users"), USER, PASSWORD], check=True, capture_output=True)
    settings = folder / "mosquitto.conf"

    def prepare() -> Mosquitto:
        with free_ports(2) as (port, tls_port):
            text = SETTINGS.format(user=getuser(), folder=folder, port=port, tls_port=tls_port, certificate=certificate)
            settings.write_text(text)
        process = ServerProcess([binary, "-c", str(settings)], folder / "mosquitto.log")
        return Mosquitto(port, tls_port, certificate, process)

    with serving(prepare, folder) as server:
        yield server
