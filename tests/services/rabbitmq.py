"""A real RabbitMQ, as a node of its own: its files in a temporary folder, every listener on 127.0.0.1.

Erlang's port mapper is ours too: one that a node starts itself would stay behind.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.services.absent import find_program
from tests.services.broker import Broker
from tests.services.lifecycle import ServerProcess, accepts, free_ports, serving, wait_until
from tests.services.tls import make_certificate

START_SECONDS: Final = 100.0  # 4 s on an idle machine; five times that under load
# Not the one in /usr/sbin, which becomes the user rabbitmq and knows one place for everything.
PLACES: Final = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin")
SETTINGS: Final = """\
listeners.tcp.1 = 127.0.0.1:{port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {certificate.ca_file}
ssl_options.certfile = {certificate.cert_file}
ssl_options.keyfile = {certificate.key_file}
log.console = true
log.console.level = warning
log.file = false
"""


class RabbitMQ(Broker):
    """A broker of AMQP, with the user guest."""

    NAME = "RabbitMQ"
    START_SECONDS = START_SECONDS


def programs() -> tuple[str, str]:
    """The server, and Erlang's port mapper. Raises ServiceAbsent where there are none."""
    server = find_program("rabbitmq-server", package="rabbitmq-server", places=PLACES)
    return server, find_program("epmd", package="rabbitmq-server")


@contextmanager
def local_rabbitmq() -> Iterator[RabbitMQ]:
    """A RabbitMQ on free ports. Raises ServiceAbsent where there is none."""
    server, mapper = programs()
    folder = Path(tempfile.mkdtemp(prefix="hatcast-rabbitmq-"))
    certificate = make_certificate(folder)
    (folder / "enabled_plugins").write_text("[].\n")
    with free_ports(1) as (mapper_port,):
        pass
    names = ServerProcess([mapper, "-address", "127.0.0.1", "-port", str(mapper_port)], folder / "epmd.log")

    def prepare() -> RabbitMQ:
        with free_ports(3) as (port, tls_port, node_port):
            text = SETTINGS.format(port=port, tls_port=tls_port, certificate=certificate)
            (folder / "rabbitmq.conf").write_text(text)
        environment = {
            "HOME": str(folder),  # for the cookie
            "RABBITMQ_NODENAME": f"hatcast{os.getpid()}@localhost",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
            "RABBITMQ_ALLOW_INPUT": "1",  # then its script becomes Erlang, and what ends the script ends the node
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper_port),
        }
        return RabbitMQ(
            port, tls_port, certificate, ServerProcess([server, "-noinput"], folder / "rabbitmq.log", environment)
        )

    try:
        names.start()
        wait_until(lambda: accepts("127.0.0.1", mapper_port), names, START_SECONDS, "epmd")
        with serving(prepare, folder) as broker:
            yield broker
    finally:
        names.close()
        shutil.rmtree(folder, ignore_errors=True)  # also where the mapper did not start
