"""Filter of a live bridge: convert a source's messages to Kafka messages.

It applies docs/specification/fold.md, rules 1 to 3. Undecodable records are dropped and counted; their number, never
their content, is logged once a minute.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring import declarations as declared
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.positions import SpeedDeriver
from hatcast.stream.readings.reading import Reading
from hatcast.stream.replay.heartbeats import Router, TelemetryMessage

log = structlog.get_logger()

KEPT_MS: Final = 3_600_000  # since the last poll that had the vehicle
VEHICLES_MAX: Final = 300_000  # as many as the vehicles of the largest poll
_PURGE_MS: Final = 60_000


class Repetitions:
    """The time of each vehicle's last reading.

    Whether a reading is repeated depends on readings of its own vehicle alone, as presence requires that is hidden
    (docs/proofs.md): a vehicle is dropped an hour after its own last poll, never because others need its room.
    """

    def __init__(self, vehicles_max: int = VEHICLES_MAX) -> None:
        self._vehicles_max = vehicles_max
        self._last: OrderedDict[bytes, tuple[str | int | float, int]] = OrderedDict()  # time, arrival
        self._next_purge_ms = 0

    def is_repeated(self, vehicle: bytes, time: str | int | float, arrived_ms: int) -> bool:
        """Return whether the vehicle's last reading, at most an hour ago, has the same time; store this one."""
        if arrived_ms >= self._next_purge_ms:
            self._purge(arrived_ms)
        last = self._last.get(vehicle)
        if last is not None or len(self._last) < self._vehicles_max:
            self._last[vehicle] = time, arrived_ms
            self._last.move_to_end(vehicle)
        return last is not None and last[0] == time and arrived_ms - last[1] <= KEPT_MS

    def _purge(self, arrived_ms: int) -> None:
        """Drop the vehicles whose next reading is none that is repeated, whatever it is."""
        last = self._last
        while last and arrived_ms - next(iter(last.values()))[1] > KEPT_MS:
            last.popitem(last=False)
        self._next_purge_ms = arrived_ms + _PURGE_MS


Clock = Callable[[], int]  # milliseconds UTC

VALUE_BYTES_MAX: Final = 16 << 10  # a canonical record with a readable time is far smaller
_LOG_INTERVAL_S: Final = 60.0
_DERIVE_HINT: Final = "some lack only their speed: --derive-speed derives it from positions"


class Filter:
    """Convert a source's messages to Kafka messages, and count the records that it drops."""

    def __init__(
        self, feed: Format, router: Router, max_ahead_ms: int, *, polled: bool = False, clock: Clock = now_ms
    ) -> None:
        """Args: `polled`, every message of the source has all vehicles, changed or not."""
        self.readings = 0  # records that passed
        self.undecodable = 0  # records that are not a reading
        self.repeated = 0  # readings that an earlier poll had: the vehicle's time has not changed
        self.without_speed = 0  # positions that gave no speed, where speeds are derived
        # rejected by rule 1: this machine's clock was set back by more than max_ahead meanwhile
        self.arrived_in_future = 0
        self._deriver = None if feed.derivation is None else SpeedDeriver(feed.derivation)
        self._feed = feed
        self._router = router
        self._max_ahead_ms = max_ahead_ms
        self._clock = clock
        self._repetitions = Repetitions() if polled else None
        self._reported: Counter[declared.Counter] = Counter()
        self._lacks_speeds = False
        self._logged = 0
        self._logged_s = -math.inf

    def messages(self, body: bytes, topic: str = "") -> Iterator[TelemetryMessage]:
        """Yield the readings in one message of a source, as one Kafka message each. Raises nothing.

        topic   the source's topic, if it has topics
        All have the time at which iteration began, by this bridge's clock, however long they wait to be produced.
        """
        arrived_ms = self._clock()
        for record in self._feed.split(body, topic):
            message = self._message(record, arrived_ms)
            if message is not None:
                yield message
        self._report_counts()

    def count_undecodable(self) -> None:
        """Count a message that was dropped before it was decoded."""
        self.undecodable += 1
        self._report_counts()

    def _message(self, record: bytes, arrived_ms: int) -> TelemetryMessage | None:
        """Return the message of one record; None if it is dropped."""
        reading: Reading | None = self._feed.decode(record)
        address = None if reading is None else self._router.route(reading.vehicle)
        value = b"" if address is None else canonical_value(Recorded(record, reading, None))
        if reading is None or address is None or len(value) > VALUE_BYTES_MAX:
            self.undecodable += 1
            self._lacks_speeds = self._lacks_speeds or self._feed.lacks_only_its_speed(record)
            return None
        repetitions = self._repetitions
        if repetitions is not None and repetitions.is_repeated(address[0], reading.time, arrived_ms):
            self.repeated += 1
            return None
        if arrived_ms > self._clock() + self._max_ahead_ms:
            self.arrived_in_future += 1
            return None
        if self._deriver is not None:
            derived = self._deriver.reading(arrived_ms, reading)
            if derived is None:
                self.without_speed += 1
                return None
            if self._feed.counts is not None and not self._feed.counts(record):
                self.undecodable += 1
                return None
            value = canonical_value(Recorded(record, derived, None))
        self.readings += 1
        key, partition = address
        return TelemetryMessage(partition, arrived_ms, key, value)

    def _report_counts(self) -> None:
        """Add the records dropped since the last call to the metrics, and log them."""
        now = Counter(
            {
                declared.BRIDGE_UNDECODABLE: self.undecodable,
                declared.BRIDGE_REPEATED: self.repeated,
                declared.BRIDGE_WITHOUT_SPEED: self.without_speed,
                declared.BRIDGE_REJECTED: self.arrived_in_future,
            }
        )
        for metric, by in (now - self._reported).items():
            METERS.count(metric, by)
        self._reported = now
        # At most once a minute; never their content.
        if self.undecodable > self._logged and monotonic_s() - self._logged_s >= _LOG_INTERVAL_S:
            hint = {"hint": _DERIVE_HINT} if self._lacks_speeds else {}
            log.warning("undecodable", format=self._feed.name, records=self.undecodable - self._logged, **hint)
            self._logged, self._logged_s = self.undecodable, monotonic_s()
