"""A broker of messages of our own, without TLS and with it."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tests.services.lifecycle import ServerProcess, accepts, wait_until
from tests.services.tls import Certificate


@dataclass(eq=False)
class Broker:
    """One that answers. Ports, and what it keeps for whoever is away, outlive `stop` and `start`."""

    NAME: ClassVar[str]
    START_SECONDS: ClassVar[float]

    port: int
    tls_port: int
    certificate: Certificate
    ours: ServerProcess

    def start(self) -> None:
        """Start it, and wait until it answers on both ports."""
        self.ours.start()
        for port in (self.port, self.tls_port):
            wait_until(partial(accepts, "127.0.0.1", port), self.ours, self.START_SECONDS, self.NAME)

    def stop(self) -> None:
        """End it in order."""
        self.ours.stop()
