"""Counts over a sample of a telemetry topic, which show whether workers can read it.

Pure: the caller reads the records. A sample has counts only, never an id, a place or a speed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.fold.open_slots import IdSpans
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.readings.reading import Reading, parse_time
from hatcast.stream.readings.vehicles import PARTITIONERS, canonical_vehicle

SAME_TIME_SHARE: Final = 0.9
_YEAR_MS: Final = 366 * 86_400_000

Decode = Callable[[bytes], Reading | None]


class TopicSample:
    """Counts of sampled records, which are added in the order of their partitions.

    records     with a value
    empty       without one: heartbeat records
    tombstones  without a value, but with a key
    decoded     readings whose vehicle has a canonical id
    no_speed    undecodable only because they have no speed
    keyed       readings whose record key is the vehicle id
    timed       readings with a readable time
    copied      readings whose Kafka timestamp is the reading's own time
    late        readings after the end of their slot and `lateness`, by the timestamps before them
    ahead       records whose timestamp is after `now` + `max_ahead`
    unordered   records with a smaller timestamp than an earlier one of their partition
    largest     bytes of the largest value
    """

    def __init__(self, policy: Policy, decode: Decode, without_speed: Decode | None, partitions: int) -> None:
        self.records = self.empty = self.tombstones = self.decoded = self.no_speed = 0
        self.keyed = self.timed = self.copied = self.late = self.ahead = self.unordered = self.largest = 0
        self.others: Counter[str] = Counter()  # undecodable records that another format decodes, by format
        self.matching: Counter[str] = Counter()  # readings in the partition of their vehicle, by partitioner
        self._policy = policy
        self._calendar = Calendar(policy)
        self._decode = decode
        self._without_speed = without_speed
        self._partitions = partitions
        self._watermarks: dict[int, int] = {}
        self._homes: dict[str, set[int]] = {}
        self._lags: list[int] = []
        self._slots: dict[tuple[str, str], set[str]] = {}

    @property
    def vehicles(self) -> int:
        """Number of vehicles."""
        return len(self._homes)

    @property
    def scattered(self) -> int:
        """Number of vehicles with readings in more than one partition."""
        return sum(len(homes) > 1 for homes in self._homes.values())

    @property
    def spans(self) -> IdSpans:
        """Numbers of sampled vehicles with few and with many timeslots in a day."""
        spans = IdSpans()
        for day in {day for day, _ in self._slots}:
            of_day = [slots for (date, _), slots in self._slots.items() if date == day]
            spans.add(map(len, of_day), len(set[str]().union(*of_day)))
        return spans

    @property
    def median_lag_ms(self) -> int | None:
        """Median of the Kafka timestamp minus the reading's own time; None without a readable time."""
        return sorted(self._lags)[len(self._lags) // 2] if self._lags else None

    def add(self, partition: int, ts: int, key: bytes | None, value: bytes | None, now: int) -> None:
        """Count one record. `ts`, `now`: its Kafka timestamp and the present, in ms UTC."""
        watermark = self._watermarks.get(partition, ts)
        self.unordered += ts < watermark
        self._watermarks[partition] = watermark = max(watermark, ts)
        self.ahead += ts > now + self._policy.max_ahead_ms
        if not value:
            self.empty += 1
            self.tombstones += key is not None
            return
        self.records += 1
        self.largest = max(self.largest, len(value))
        reading = self._decode(value)
        vehicle = None if reading is None else canonical_vehicle(reading.vehicle)
        if reading is None or vehicle is None:
            self._explain(value)
            return
        self.decoded += 1
        user = vehicle.encode()
        self.keyed += key == user
        self._homes.setdefault(vehicle, set()).add(partition)
        for name, partitioner in PARTITIONERS.items():
            self.matching[name] += partitioner(user, self._partitions) == partition
        self._count_times(vehicle, ts, watermark, parse_time(reading.time))

    def _explain(self, value: bytes) -> None:
        if self._without_speed is not None and self._without_speed(value) is not None:
            self.no_speed += 1
            return
        for name, feed in FORMATS.items():
            if feed.decode(value) is not None:
                self.others[name] += 1
                return

    def _count_times(self, vehicle: str, ts: int, watermark: int, time: int | None) -> None:
        if time is None or abs(ts - time) > 100 * _YEAR_MS:
            return
        self.timed += 1
        self.copied += ts == time
        self._lags.append(ts - time)
        if 0 < time < ts + self._policy.max_ahead_ms:
            slot = self._calendar.slot_at(time)
            self.late += watermark >= closes_at(slot, self._policy)
            self._slots.setdefault((slot.date, vehicle), set()).add(slot.key)


def share(part: int, whole: int) -> str:
    """Return a share in percent, in which neither a few records nor all but a few round away."""
    if not part or part == whole:
        return "100 %" if part and part == whole else "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def best_partitioner(matching: Mapping[str, int], decoded: int) -> str | None:
    """Return the partitioner that all readings follow; None if none does."""
    return next((name for name in PARTITIONERS if decoded and matching.get(name, 0) == decoded), None)
