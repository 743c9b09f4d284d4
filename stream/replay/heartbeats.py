"""What a replay sends, in order: a recording's records, and ticks between.    [design 4, Ticks; fold.md, Recordings]

Why the number of partitions changes nothing: records are sent in arrival order and no tick is dated after the next
arrival. So when a record is folded, its partition's clock is the record's own arrival, which is also the greatest of
the whole recording so far: it is late by its partition exactly if it is late by the recording, for any `lateness`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.partitioner import Partitioner
from hatcast.stream.readings.reading import Reading, canonical_vehicle, parse_time

TICK_MS: Final = 10_000
_EARLIEST_MS: Final = 1  # librdkafka takes the timestamp 0 for "now"
_TABLE_ENTRIES: Final = 100_000  # of vehicles: when full it is emptied, so memory stays bounded


class Message(NamedTuple):
    """One record for the telemetry topic. `timestamp_ms` is its arrival (UTC); a tick has key None and no value."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


def ticks(partitions: int, timestamp_ms: int) -> Iterator[Message]:
    """One tick for each partition."""
    for partition in range(partitions):
        yield Message(partition, timestamp_ms, None, b"")


class Addresses:
    """Key and partition of vehicles."""

    def __init__(self, partitions: int, partitioner: Partitioner) -> None:
        self.partitions = partitions
        self.nobody = b"", partitioner(b"", partitions)
        self._partitioner = partitioner
        self._known: dict[str, tuple[bytes, int] | None] = {}

    def of(self, vehicle: str) -> tuple[bytes, int] | None:
        """(canonical id in UTF-8, partition) of an id as sent; None if it has no canonical form."""
        try:
            return self._known[vehicle]
        except KeyError:
            pass
        canonical = canonical_vehicle(vehicle)
        address = None
        if canonical is not None:
            key = canonical.encode()
            address = key, self._partitioner(key, self.partitions)
        if len(self._known) >= _TABLE_ENTRIES:
            self._known.clear()
        self._known[vehicle] = address
        return address


class Passage:
    """One pass over a recording: its time base, which is that of all its records, whoever is sent or left out.

    arrived_in_future     records that rule 1 stops at the door: later than now + max_ahead when the pass began
    arrived_before_1970   records that rule 2 ends as undecodable, and whose timestamp Kafka does not take
    without_arrival       records left out under `add_remove`, since they do not say when they arrived
    last_ms               the greatest arrival; None before the first
    """

    def __init__(self, policy: Policy, calendar: Calendar, now_ms: int) -> None:
        self.arrived_in_future = 0
        self.arrived_before_1970 = 0
        self.without_arrival = 0
        self.last_ms: int | None = None
        self._policy = policy
        self._calendar = calendar
        self._latest = now_ms + policy.max_ahead_ms
        self._last_slot: Slot | None = None
        self._last_slot_end = 0

    def steps(self, records: Iterable[tuple[int, Recorded]]) -> Iterator[tuple[int, Recorded | None]]:
        """(arrival, record) in arrival order as they are given, and (time, None) for the ticks before each.

        Every partition is ticked when a multiple of 10 s has passed since the last record, once, dated at the last
        such multiple that is not after the next arrival. One comes before the first record too.
        """
        next_tick = 1
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
            if timestamp >= next_tick:
                tick = timestamp - timestamp % TICK_MS
                next_tick = tick + TICK_MS
                if tick:
                    yield tick, None
            self.last_ms = timestamp
            # A reading's time is at most its arrival + max_ahead: before that has left the last slot, none is later.
            if recorded.reading is not None and timestamp + self._policy.max_ahead_ms >= self._last_slot_end:
                self._see(timestamp, recorded.reading)
            yield timestamp, recorded

    def _see(self, timestamp: int, reading: Reading) -> None:
        """Remember the slot of a reading if it is the last so far."""
        instant = parse_time(reading.time)
        if instant is None or instant > timestamp + self._policy.max_ahead_ms:
            return
        try:
            slot = self._calendar.slot_at(instant)
        except OverflowError:  # outside of what calendars know: rule 6 ends it
            return
        if slot.outside is None and slot.end_ms > self._last_slot_end and timestamp < closes_at(slot, self._policy):
            self._last_slot, self._last_slot_end = slot, slot.end_ms

    def end_ms(self) -> int | None:
        """When the last tick is dated: the end of the last slot + lateness, not before the last arrival.

        The last slot is that of any reading which rules 6, 8 (dates, hours), 9 let through: those about time. Its
        place, value or cap may still end it, and then a slot without HATs is closed. None if there was no record.
        """
        if self.last_ms is None:
            return None
        return self.last_ms if self._last_slot is None else max(self.last_ms, closes_at(self._last_slot, self._policy))


class Replay(Passage):
    """What a replay sends of a recording.

    undecodable   records sent as their raw bytes with the key ""
    """

    def __init__(
        self,
        policy: Policy,
        calendar: Calendar,
        addresses: Addresses,
        now_ms: int,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Args: `left_out`, the canonical ids of vehicles that are not sent."""
        super().__init__(policy, calendar, now_ms)
        self.undecodable = 0
        self._addresses = addresses
        self._left_out = frozenset(vehicle.encode() for vehicle in left_out)

    def messages(self, records: Iterable[tuple[int, Recorded]]) -> Iterator[Message]:
        """The records, in arrival order as they are given, and the ticks before each (see `steps`)."""
        partitions = self._addresses.partitions
        for timestamp, recorded in self.steps(records):
            if recorded is None:
                yield from ticks(partitions, timestamp)
                continue
            message = self._record(timestamp, recorded)
            if message.key not in self._left_out:
                yield message

    def _record(self, timestamp: int, recorded: Recorded) -> Message:
        reading = recorded.reading
        address = None if reading is None else self._addresses.of(reading.vehicle)
        if reading is None or address is None:
            self.undecodable += 1
            key, partition = self._addresses.nobody
            return Message(partition, timestamp, key, recorded.raw)
        key, partition = address
        return Message(partition, timestamp, key, canonical_value(recorded))

    def end(self) -> Iterator[Message]:
        """The last ticks: they close the recording's last slot."""
        end = self.end_ms()
        if end is not None:
            yield from ticks(self._addresses.partitions, end)
