"""Replay of a recording: its records in arrival order, with heartbeat records between.    [docs/specification/fold.md]

The number of partitions does not change the result: records are sent in arrival order, and no heartbeat record is dated
after the next arrival. So when a record is folded, its partition's watermark is the record's own arrival, which is also
the greatest of the whole recording so far: it is late in its partition exactly if it is late in the recording, for any
`lateness`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Reading, cache, parse_time
from hatcast.stream.readings.vehicles import Partitioner, canonical_vehicle

HEARTBEAT_MS: Final = 10_000  # multiples of it, whatever `lateness` is
_EARLIEST_MS: Final = 1  # librdkafka replaces timestamp 0 by the current time
_CACHE_SIZE: Final = 100_000  # vehicles


class TelemetryMessage(NamedTuple):
    """One record for the telemetry topic, arrived at `timestamp_ms` (UTC); a heartbeat lacks key and value."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


def heartbeats(partitions: int, timestamp_ms: int) -> Iterator[TelemetryMessage]:
    """Yield one heartbeat record for each partition."""
    for partition in range(partitions):
        yield TelemetryMessage(partition, timestamp_ms, None, b"")


class Router:
    """Assigns key and partition to vehicles."""

    def __init__(self, partitions: int, partitioner: Partitioner) -> None:
        self.partitions = partitions
        self.no_vehicle = b"", partitioner(b"", partitions)  # key and partition of records without a readable vehicle
        self._partitioner = partitioner
        self._routes: dict[str, tuple[bytes, int] | None] = {}

    def route(self, vehicle: str) -> tuple[bytes, int] | None:
        """Return (canonical id in UTF-8, partition) of an id as sent; None if it cannot be made canonical."""
        try:
            return self._routes[vehicle]
        except KeyError:
            pass
        canonical = canonical_vehicle(vehicle)
        route = None
        if canonical is not None:
            key = canonical.encode()
            route = key, self._partitioner(key, self.partitions)
        return cache(self._routes, vehicle, route, _CACHE_SIZE)


class RecordingPass:
    """One pass over a recording. All its records determine the heartbeats, also those that are not sent."""

    def __init__(self, policy: Policy, calendar: Calendar, now_ms: int) -> None:
        self.arrived_in_future = 0  # records rejected by rule 1: later than now + max_ahead at the start of the pass
        self.arrived_before_1970 = 0  # records undecodable by rule 2: Kafka rejects their timestamps
        self.without_arrival = 0  # records left out under `add_remove`, because they have no readable arrival
        self.last_ms: int | None = None  # greatest arrival; None before the first record
        self._policy = policy
        self._calendar = calendar
        self._latest = now_ms + policy.max_ahead_ms
        self._last_slot: Slot | None = None
        self._last_slot_end = 0

    def with_heartbeats(self, records: Iterable[tuple[int, Recorded]]) -> Iterator[tuple[int, Recorded | None]]:
        """Yield (arrival, record) in the given arrival order, and (time, None) for heartbeats between them.

        Each partition gets one heartbeat record when a multiple of 10 s has passed since the last record, dated at the
        last such multiple that is not after the next arrival. One also precedes the first record.
        """
        next_heartbeat = 1
        hidden = self._policy.relation is Relation.ADD_REMOVE
        for arrival, recorded in records:
            if hidden and recorded.arrival is None:
                self.without_arrival += 1
                continue
            if arrival > self._latest:
                self.arrived_in_future += 1
                continue
            if arrival < 0:
                self.arrived_before_1970 += 1
                continue
            timestamp = max(arrival, _EARLIEST_MS)
            if timestamp >= next_heartbeat:
                heartbeat = timestamp - timestamp % HEARTBEAT_MS
                next_heartbeat = heartbeat + HEARTBEAT_MS
                if heartbeat:
                    yield heartbeat, None
            self.last_ms = timestamp
            # A reading's time is at most its arrival + max_ahead. While that is before the end of the last slot, no
            # reading is in a later slot.
            if recorded.reading is not None and timestamp + self._policy.max_ahead_ms >= self._last_slot_end:
                self._update_last_slot(timestamp, recorded.reading)
            yield timestamp, recorded

    def _update_last_slot(self, timestamp: int, reading: Reading) -> None:
        """Store the slot of a reading if it ends later than all before."""
        instant = parse_time(reading.time)
        if instant is None or instant > timestamp + self._policy.max_ahead_ms:
            return
        try:
            slot = self._calendar.slot_at(instant)
        except OverflowError:  # outside the range of calendars: rule 6 rejects it
            return
        if slot.outside is None and slot.end_ms > self._last_slot_end and timestamp < closes_at(slot, self._policy):
            self._last_slot, self._last_slot_end = slot, slot.end_ms

    def end_ms(self) -> int | None:
        """Return the time of the last heartbeat: end of the last slot + lateness, but not before the last arrival.

        The last slot is the latest of all readings that pass rules 6, 8 (dates, hours) and 9, those about time. If
        such a reading fails another rule, a slot without HATs is closed. None if there was no record.
        """
        if self.last_ms is None:
            return None
        return self.last_ms if self._last_slot is None else max(self.last_ms, closes_at(self._last_slot, self._policy))


class Replay(RecordingPass):
    """Messages of a replay."""

    def __init__(
        self, policy: Policy, calendar: Calendar, router: Router, now_ms: int, excluded: frozenset[str] = frozenset()
    ) -> None:
        """Args: `excluded`, the canonical ids of vehicles that are not sent."""
        super().__init__(policy, calendar, now_ms)
        self.undecodable = 0  # number of records sent as their raw bytes with the key ""
        self._router = router
        self._excluded = frozenset(vehicle.encode() for vehicle in excluded)

    def messages(self, records: Iterable[tuple[int, Recorded]]) -> Iterator[TelemetryMessage]:
        """Yield records and heartbeat records in order. See `with_heartbeats`."""
        yield from self.messages_of(self.with_heartbeats(records))

    def messages_of(self, passed: Iterable[tuple[int, Recorded | None]]) -> Iterator[TelemetryMessage]:
        """Yield the messages of what `with_heartbeats` yields."""
        partitions = self._router.partitions
        for timestamp, recorded in passed:
            if recorded is None:
                yield from heartbeats(partitions, timestamp)
                continue
            message = self._record(timestamp, recorded)
            if message.key not in self._excluded:
                yield message

    def _record(self, timestamp: int, recorded: Recorded) -> TelemetryMessage:
        reading = recorded.reading
        route = None if reading is None else self._router.route(reading.vehicle)
        if reading is None or route is None:
            self.undecodable += 1
            key, partition = self._router.no_vehicle
            return TelemetryMessage(partition, timestamp, key, recorded.raw)
        key, partition = route
        return TelemetryMessage(partition, timestamp, key, canonical_value(recorded))

    def end(self) -> Iterator[TelemetryMessage]:
        """Yield the last heartbeat records, which close the recording's last slot."""
        end = self.end_ms()
        if end is not None:
            yield from heartbeats(self._router.partitions, end)


class WholeDays(Replay):
    """Messages of a replay that ends with the recording's last date, which is closed if it is over."""

    def end_ms(self) -> int | None:
        """Return the time of the last heartbeat: the close of the last slot's date."""
        end = super().end_ms()
        if end is None or self._last_slot is None:
            return end
        closes = self._calendar.day_end(self._last_slot.date) + self._policy.lateness_ms
        return max(end, closes) if closes <= self._latest else end
