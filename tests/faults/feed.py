"""Sends a generated log while the storm goes on: a thread that is allowed to go so far, and then a bit further."""

from threading import Condition, Thread
from typing import Final

from tests.faults.generate import Log, last_ticks
from tests.services import KafkaServer

_BLOCK: Final = 2_000  # records sent at once


class Feed:
    """The one producer of a run. Kafka may be away meanwhile: what is not acknowledged is sent again."""

    def __init__(self, kafka: KafkaServer, topic: str, log: Log) -> None:
        self._kafka = kafka
        self._topic = topic
        self._log = log
        self._sent = 0
        self._allowed = 0
        self._moved = Condition()
        self._failed: BaseException | None = None
        self._thread = Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def allow(self, share: float) -> None:
        """Let it send up to this share of the log; returns at once. Raises what ended it, if something did."""
        if self._failed is not None:
            raise self._failed
        with self._moved:
            self._allowed = max(self._allowed, min(len(self._log), round(share * len(self._log))))
            self._moved.notify_all()

    def rest(self) -> int:
        """Wait until it has sent what it may; the greatest timestamp of that, ms UTC."""
        with self._moved:
            self._moved.wait_for(lambda: self._sent == self._allowed or self._failed is not None)
        self.allow(0.0)
        return int(self._log.arrival_ms[: self._sent].max(initial=0))

    def finish(self) -> None:
        """Send the rest and the last ticks, and wait for that."""
        self.allow(1.0)
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        self._kafka.produce(self._topic, last_ticks(self._log))

    def _run(self) -> None:
        try:
            while self._sent < len(self._log):
                with self._moved:
                    while self._sent >= self._allowed:
                        self._moved.wait()
                    end = min(self._sent + _BLOCK, self._allowed)
                self._kafka.produce(self._topic, self._log.records(self._sent, end))
                with self._moved:
                    self._sent = end
                    self._moved.notify_all()
        except BaseException as error:  # told to whoever waits for us
            with self._moved:
                self._failed = error
                self._moved.notify_all()
