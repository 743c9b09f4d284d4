"""A log with all that goes wrong on the road: from a seed, in numpy, record by record only as it is sent.

Two days or more of a small city. Of a hundred readings some come twice, late, long after they were made, dated ahead,
for a wrong partition, or cannot be read; users meet more HATs a day than the cap allows. Every arrival is before the
log's end, where the last slot is still open, so a run ends with releases and with open contributions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.readings.vehicles import by_murmur2
from tests.services import Record

PARTITIONS: Final = 4
DAYS: Final = 2  # of most logs
DAY_MS: Final = 86_400_000
SLOT_MS: Final = 1_800_000
FIRST_MS: Final = 1_641_110_400_000  # 2022-01-02T08:00Z
DATES: Final = ("2022-01-02", "2022-01-03")  # of most logs
OPEN_MS: Final = 8 * 3_600_000  # buses run from 08:00 to 16:00
PLACES: Final = [(21.0 + 0.05 * row, 72.7 + 0.05 * column) for row in range(4) for column in range(3)]  # a cell each
READINGS_A_DAY: Final = 125  # of one vehicle; fewer than the steps of `min_interval`

Numbers = NDArray[np.int64]


def end_of(days: int) -> int:
    """Where every clock ends, ms UTC: within the last slot of the last day."""
    return FIRST_MS + (days - 1) * DAY_MS + OPEN_MS - SLOT_MS // 2


END_MS: Final = end_of(DAYS)


@dataclass(frozen=True)
class Log:
    """A log to send, as columns in the order of arrival.

    kind     what is wrong with a record: a key of `_VALUES`
    end_ms   where every clock ends
    """

    vehicle: Numbers
    time_ms: Numbers
    arrival_ms: Numbers
    place: Numbers
    speed: Numbers
    partition: Numbers
    kind: Numbers
    end_ms: int

    def __len__(self) -> int:
        return len(self.vehicle)

    def records(self, first: int, end: int) -> Iterator[Record]:
        """The records `first` to `end` - 1."""
        columns = (self.vehicle, self.time_ms, self.arrival_ms, self.place, self.speed, self.partition, self.kind)
        for vehicle, time, arrival, place, speed, partition, kind in zip(
            *(column[first:end].tolist() for column in columns), strict=True
        ):
            key = b"GJ05BX%05d" % vehicle
            latitude, longitude = PLACES[place] if kind != _NOWHERE else (0.0, 0.0)
            value = b'{"vehicle":"%s","time":%d,"lat":%.2f,"lon":%.2f,"speed":%d.%d,"unit":"km/h","delay":%d}' % (
                key,
                time,
                latitude,
                longitude,
                *divmod(speed, 10),
                (vehicle * 613 + time // 7_000) % 5_500 - 1_200,  # s; some are outside of what a policy keeps
            )
            yield Record(value[:40] if kind == _CUT_SHORT else value, key, partition, arrival)


_WHOLE, _CUT_SHORT, _NOWHERE = range(3)


def generate(seed: int, readings: int, days: int = DAYS) -> Log:
    """At least `readings` readings, and the ticks apart (`last_ticks`)."""
    end_ms = end_of(days)
    random = np.random.default_rng(seed)
    whole = readings + readings // 20  # some fall off at the end of the log
    vehicles = max(50, whole // (days * READINGS_A_DAY))
    vehicle = random.integers(0, vehicles, whole)
    time = FIRST_MS + random.integers(0, days, whole) * DAY_MS + random.integers(0, OPEN_MS, whole)
    # Two places in an hour, other ones in the next.
    place = (vehicle * 7 + time // 3_600_000 * (1 + vehicle % 3) + random.integers(0, 2, whole)) % len(PLACES)
    arrival = time + random.exponential(3_000, whole).astype(np.int64)
    _some(random, arrival, 0.10, 5_000, 280_000)  # out of order, and in time
    _some(random, arrival, 0.02, 4_200_000, 18_000_000)  # late
    _some(random, time, 0.01, 600_000, DAY_MS)  # made in a future that has not arrived
    again = random.integers(0, whole, whole // 33)
    rows = np.concatenate([np.arange(whole), again])
    vehicle, time, place, arrival = vehicle[rows], time[rows], place[rows], arrival[rows]
    arrival[whole:] += random.integers(0, 60_000, len(again))
    speed = random.integers(0, 650, whole)[rows]
    speed[random.random(len(rows)) < 0.01] = 0
    speed[random.random(len(rows)) < 0.002] = 1_510  # a broken sensor
    home = np.array([by_murmur2(b"GJ05BX%05d" % number, PARTITIONS) for number in range(vehicles)], np.int64)
    partition = home[vehicle]
    _some(random, partition, 0.01, 1, PARTITIONS)
    kind = np.zeros(len(rows), np.int64)
    kind[random.random(len(rows)) < 0.003] = _CUT_SHORT
    kind[random.random(len(rows)) < 0.002] = _NOWHERE
    order = np.argsort(arrival, kind="stable")
    order = order[arrival[order] < end_ms]
    stamped = arrival[order]
    _some(random, stamped, 0.05, -3_000, 0)  # a producer's clock is not quite its neighbour's
    return Log(
        vehicle[order],
        time[order],
        stamped,
        place[order],
        speed[order],
        partition[order] % PARTITIONS,
        kind[order],
        end_ms,
    )


def _some(random: np.random.Generator, column: NDArray[Any], share: float, low: int, high: int) -> None:
    """Add a number in [low, high) to a share of a column."""
    chosen = np.flatnonzero(random.random(len(column)) < share)
    column[chosen] += random.integers(low, high, len(chosen))


def last_ticks(log: Log) -> list[Record]:
    """One for each partition, after all records: every clock ends where the log does."""
    return [Record(b"", None, partition, log.end_ms) for partition in range(PARTITIONS)]
