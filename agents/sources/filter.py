"""The door of a live bridge: what it lets through, as messages for Kafka.    [fold.md, rules 1 to 3]

Garbage goes nowhere from here: it is counted, and logged once a minute by its number alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.declarations import BRIDGE_REJECTED, BRIDGE_REPEATED, BRIDGE_UNDECODABLE
from hatcast.agents.monitoring.kinds import Counter as MetricCounter
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.readings.formats import Feed, Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Reading
from hatcast.stream.replay.heartbeats import Addresses, Message

log = structlog.get_logger()

Clock = Callable[[], int]
"""Milliseconds UTC."""

VALUE_BYTES_MAX: Final = 16 << 10  # of a canonical record; none with a readable time comes near it
_SAY_EVERY_S: Final = 60.0
_TABLE_ENTRIES: Final = 100_000  # vehicles; when full it is emptied, and some readings are sent again


class Filter:
    """Turns what a source sends into messages.

    readings           let through
    undecodable        records that no reading could be made of
    repeated           what a poll has brought before: the vehicle's time has not moved
    arrived_in_future  stopped by rule 1: this machine's clock was set back by more than max_ahead meanwhile
    """

    def __init__(
        self, feed: Feed, addresses: Addresses, max_ahead_ms: int, *, polled: bool = False, clock: Clock = now_ms
    ) -> None:
        """Args: `polled`, a source that sends all vehicles again and again, whether or not they have news."""
        self.readings = 0
        self.undecodable = 0
        self.repeated = 0
        self.arrived_in_future = 0
        self._feed = feed
        self._addresses = addresses
        self._max_ahead_ms = max_ahead_ms
        self._clock = clock
        self._times: dict[bytes, str | int | float] | None = {} if polled else None  # of each vehicle's last reading
        self._counted: Counter[MetricCounter] = Counter()
        self._told = 0
        self._told_s: float | None = None

    def messages(self, body: bytes, topic: str = "") -> Iterator[Message]:
        """The readings in one message of a source that has just come, one a record. Raises nothing.

        topic   where the source had it, if it has topics
        The timestamp of its records is when it came, by this bridge's own clock, however long they wait for room.
        """
        arrived_ms = self._clock()
        for record in self._feed.split(body, topic):
            reading = self._feed.decode(record)
            address = None if reading is None else self._addresses.of(reading.vehicle)
            value = b"" if address is None else canonical_value(Recorded(record, reading, None))
            if reading is None or address is None or len(value) > VALUE_BYTES_MAX:
                self.undecodable += 1
            elif self._is_repeated(address[0], reading):
                self.repeated += 1
            elif arrived_ms > self._clock() + self._max_ahead_ms:
                self.arrived_in_future += 1
            else:
                self.readings += 1
                key, partition = address
                yield Message(partition, arrived_ms, key, value)
        self._count()

    def _is_repeated(self, vehicle: bytes, reading: Reading) -> bool:
        times = self._times
        if times is None:
            return False
        if times.get(vehicle) == reading.time:
            return True
        if len(times) >= _TABLE_ENTRIES:
            times.clear()
        times[vehicle] = reading.time
        return False

    def _count(self) -> None:
        """For Prometheus, what has come to nothing since."""
        now = Counter(
            {
                BRIDGE_UNDECODABLE: self.undecodable,
                BRIDGE_REPEATED: self.repeated,
                BRIDGE_REJECTED: self.arrived_in_future,
            }
        )
        for metric, by in (now - self._counted).items():
            METERS.count(metric, by)
        self._counted = now
        if self.undecodable > self._told:
            self._say()

    def _say(self) -> None:
        """At most once a minute, how much could not be read. Never what it was."""
        if self._told_s is not None and monotonic_s() - self._told_s < _SAY_EVERY_S:
            return
        log.warning("undecodable", format=self._feed.name, records=self.undecodable - self._told)
        self._told, self._told_s = self.undecodable, monotonic_s()
