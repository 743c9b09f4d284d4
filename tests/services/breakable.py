"""A server that tests break and bring back."""

from abc import ABC, abstractmethod

from tests.services.lifecycle import Lifecycle, NotOurs


class BreakableServer(ABC):
    """A server that tests break: one of ours, or one that the environment gave, which stays as it is."""

    lifecycle: Lifecycle | None  # None: it was given by the environment
    source: str  # where it came from, for people

    @property
    def ours(self) -> Lifecycle:
        """The server's life in our hands; raises NotOurs where it was given."""
        if self.lifecycle is None:
            raise NotOurs(f"{self.source} is not ours to break")
        return self.lifecycle

    @abstractmethod
    def wait_until_ready(self) -> None:
        """Return once it answers; raise ServerDidNotStart with the end of its log."""

    def start(self) -> None:
        """Start it again with the same port and data, and wait until it answers."""
        self.ours.start()
        self.wait_until_ready()

    def stop(self) -> None:
        """End it in order (SIGTERM): what it answered is on the disk."""
        self.ours.stop()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.ours.kill()

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        self.ours.pause()

    def resume(self) -> None:
        """Thaw it."""
        self.ours.resume()

    def heal(self) -> None:
        """Bring it back to work, whatever a test did to it."""
        if self.lifecycle is not None:
            self.lifecycle.resume()
            self.start()
