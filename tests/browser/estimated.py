"""What a tracker publishes beside the day of day.py: estimates of two days, deferred HATs, a query of a settlement."""

import json
import math
from typing import Final

import h3

from tests.browser.day import HOURS, hexagons
from tests.displaying import CELLS, continual, estimate, release, running

GAP: Final = range(4, 8)  # hours without an estimate: nothing drove
SURPRISED: Final = CELLS[0]  # its last hour is far from what was expected: it has an alarm
CITY_ALARM: Final = HOURS - 2  # an hour in which the whole city has one
Z: Final = -4.25
NEVER_RELEASED: Final = sorted(h3.grid_ring(CELLS[0], 4))[:6]


def estimates() -> list[bytes]:
    """Of all hexagons of the day, and of some that never had a release; hours of the first date are settled."""
    cells = [*hexagons(), *NEVER_RELEASED]
    made = [one(hour, cell) for hour in range(HOURS) if hour not in GAP for cell in cells]
    return [estimate(1, cells[0], "live", road=1.0, half=20), *made]  # the first is replaced


def one(hour: int, cell: str) -> bytes:
    """The last estimate of an hour: the farther out, the less certain."""
    away = h3.grid_distance(CELLS[0], cell)
    road = 18 + 6.5 * away - 5 * math.sin(hour / 3.8)
    stage = "predicted" if away >= 3 or (hour + away) % 6 == 0 else "settled" if hour < 15 else "live"
    more = {"residual_z": Z, "alarm": "hexagon"} if (cell, hour) == (SURPRISED, HOURS - 1) else {}
    more |= {"alarm": "city"} if hour == CITY_ALARM else {}
    return estimate(hour, cell, stage, road=road, half=2.5 + 3 * away, **more)


def running_means() -> list[bytes]:
    """Of today and of the last 24 hours, at the end of the day: the farther out, the less certain; one has no mean."""
    made = []
    for at, cell in enumerate(hexagons()):
        away = h3.grid_distance(CELLS[0], cell)
        day = running(HOURS - 1, cell, "24h", 22.0 + away, half=1.0 + away, start="2022-01-02T09:00:00+05:30")
        made += [running(HOURS - 1, cell, mean=20.0 + away if at else None, half=2.5 + 3 * away), day]
    return made


def week() -> list[bytes]:
    """Releases of a continual policy, of two horizons; the first hexagon is suppressed."""
    return [
        continual(hour, cell, f"{21 + h3.grid_distance(CELLS[0], cell)}.{hour:02}0" if at else None)
        for hour in range(HOURS)
        for at, cell in enumerate(hexagons())
    ]


def deferred() -> list[bytes]:
    """HATs of the last hour of which a tracker made no query alone."""
    return [
        release(HOURS - 1, cell, None).replace(b'"suppressed"', b'"deferred"')
        for cell in sorted(h3.grid_ring(CELLS[0], 5))[:2]
    ]


def settlement() -> bytes:
    """A query about several hours of a cell, whose record names the first of them."""
    record = json.loads(release(HOURS - 1, sorted(h3.grid_ring(CELLS[0], 6))[0], "64.000"))
    return json.dumps(record | {"release_id": "city/2022-01-03Tsettlement/00001"}).encode()
