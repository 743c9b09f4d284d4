"""Deterministic city of 3,000 buses in ITMS format, each with a report every 10 s.

It is a box of 28 x 28 km, about 180 H3 cells of resolution 7; a quarter of the buses stand still at any moment.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import numpy as np

VEHICLES: Final = 3_000
STEP_S: Final = 10
OFFSET: Final = timezone(timedelta(hours=5, minutes=30))
START: Final = datetime(2022, 1, 2, 9, 30, tzinfo=OFFSET)
START_MS: Final = int(START.timestamp()) * 1000
DELAY_MS: Final = 2_000  # from a reading to its arrival

_SOUTH, _WEST, _BOX = 21.05, 72.70, 0.25
_METRES: Final = 111_320.0  # of a degree of latitude
_WIDTH: Final = math.cos(math.radians(21.2))

PLATES: Final = [f"GJ05{'ABCDEFGH'[i % 8]}{'VXYZ'[i % 4]}{1000 + i}" for i in range(VEHICLES)]
KEYS: Final = [plate.encode() for plate in PLATES]


@dataclass(frozen=True, slots=True)
class Report:
    """One ITMS report, split at its time, so that it can be sent again with another time.

    second   seconds since the start
    head     the record before its time
    tail     the record after its time
    """

    vehicle: int
    second: int
    head: bytes
    tail: bytes

    def at(self, start: datetime) -> bytes:
        """Return the record, with its time relative to `start`."""
        time = (start + timedelta(seconds=self.second)).isoformat().encode()
        return self.head + time + self.tail


def reports(seed: int = 7) -> Iterator[Report]:
    """Yield reports in order of time, without end."""
    random = np.random.default_rng(seed)
    phase = random.integers(0, STEP_S, VEHICLES)
    order = np.argsort(phase, kind="stable").tolist()
    phases = phase.tolist()
    latitude = _SOUTH + _BOX * random.random(VEHICLES)
    longitude = _WEST + _BOX * random.random(VEHICLES)
    heading = random.random(VEHICLES) * 2 * math.pi
    step = 0
    while True:
        speed = np.where(random.random(VEHICLES) < 0.25, 0, random.integers(3, 66, VEHICLES))
        heading += random.normal(0, 0.25, VEHICLES)
        distance = speed / 3.6 * STEP_S / _METRES
        latitude += distance * np.cos(heading)
        longitude += distance * np.sin(heading) / _WIDTH
        outside = (latitude < _SOUTH) | (latitude > _SOUTH + _BOX) | (longitude < _WEST) | (longitude > _WEST + _BOX)
        heading[outside] += math.pi
        np.clip(latitude, _SOUTH, _SOUTH + _BOX, out=latitude)
        np.clip(longitude, _WEST, _WEST + _BOX, out=longitude)
        delay = random.integers(-200, 1500, VEHICLES).tolist()
        lats, lons, speeds = latitude.tolist(), longitude.tolist(), speed.tolist()
        for i in order:
            second = step * STEP_S + phases[i]
            yield Report(i, second, *_pieces(i, second, delay[i], speeds[i], (lons[i], lats[i])))
        step += 1


def _pieces(vehicle: int, second: int, delay: int, speed: int, place: tuple[float, float]) -> tuple[bytes, bytes]:
    stop = f"{9 + second // 3600 % 12:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    head = (
        f'{{"trip_direction":"{"UP" if vehicle % 2 else "DN"}","trip_id":"{24_000_000 + vehicle}",'
        f'"route_id":"{vehicle % 140}U","trip_delay":{delay},"actual_trip_start_time":"2022-01-02T09:12:19+05:30",'
        f'"last_stop_arrival_time":"{stop}","vehicle_label":"P{vehicle % 99}","observationDateTime":"'
    )
    tail = (
        f'","speed":{speed},"license_plate":"{PLATES[vehicle]}","last_stop_id":"{2000 + vehicle % 600}",'
        f'"location":{{"coordinates":[{place[0]:.6f},{place[1]:.6f}],"type":"Point"}},"id":"surat-itms-live-eta"}}'
    )
    return head.encode(), tail.encode()


@dataclass(frozen=True, slots=True)
class Sent:
    """A Kafka record to send."""

    key: bytes
    arrival_ms: int
    value: bytes


def workload(records: int) -> Iterator[Sent]:
    """Yield the ingest benchmark's records: the city's, with some faults.

    Of 10,000 records 100 are duplicates, 10 are too fast, 10 are at (0, 0) and 1 is truncated.
    """
    sent = 0
    for report in reports():
        value = report.at(START)
        arrival = START_MS + report.second * 1000 + DELAY_MS
        if sent % 1_000 == 500:
            value = value.replace(b'"speed":', b'"speed":9', 1).replace(b'"speed":90,', b'"speed":990,', 1)
        elif sent % 1_000 == 250:
            at = value.index(b'"coordinates":[')
            value = value[: at + 15] + b"0.0,0.0" + value[value.index(b"]", at) :]
        elif sent % 10_000 == 77:
            value = value[:100]
        for _ in range(2 if sent % 100 == 33 else 1):
            if sent == records:
                return
            yield Sent(KEYS[report.vehicle], arrival, value)
            sent += 1
