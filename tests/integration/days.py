"""Three days of made-up buses, and what queries over them have to answer."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import h3.api.basic_str as h3

from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample

DAY_MS: Final = 24 * HOUR_MS
DATES: Final = ("2022-01-02", "2022-01-03", "2022-01-04")
END_MS: Final = NOON_MS + 3 * DAY_MS
EPSILON: Final = 1e6  # noise below the grid: an answer is the true one
LIMIT: Final = 20.0
QUERIES: Final[list[dict[str, Any]]] = [
    {"name": "mean", "kind": "mean_speed", "days": 3, "from": DATES[0], "epsilon": EPSILON, "min_n": 5},
    {"name": "over", "kind": "over_speed_limit", "days": 3, "from": DATES[0], "epsilon": EPSILON, "speed_limit": LIMIT},
    {"name": "daily", "kind": "mean_speed", "days": 1, "epsilon": EPSILON, "min_n": 5},
]
POLICY: Final[dict[str, Any]] = {
    "privacy": {"epsilon": EPSILON, "acknowledge_weak_privacy": True, "daily_limit": 1e9},
    "query": QUERIES,
}


def days(dates: Iterable[int] = (0, 1, 2), vehicles: int = 9, places: int = 2) -> list[Sample]:
    """Two readings of each bus in the hours from 12:00 and 13:00; not every bus is at every place every day."""
    return [
        Sample(
            f"GJ05BX{vehicle:04}",
            NOON_MS + day * DAY_MS + hour * HOUR_MS + place * 60_000 + again * 5_000,
            place,
            10.0 + 3 * day + 2 * vehicle + place + again,
        )
        for day in dates
        for hour in range(2)
        for place in range(places)
        for vehicle in range(vehicles)
        for again in range(2)
        if (vehicle + day + place) % 4
    ]


def expected(samples: Sequence[Sample], name: str) -> dict[str, float]:
    """release_id without the policy -> the true answer, computed without anything of the product."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    for sample in samples:
        day, hour = divmod(sample.time_ms - NOON_MS, DAY_MS)
        date, slot = DATES[day], f"{12 + hour // HOUR_MS}:00"
        closing = date if name == "daily" else DATES[-1]
        users = found.setdefault((f"{closing}T{slot}", cell(sample.place)), {})
        users.setdefault((date, sample.vehicle), []).append(sample.speed)
    return {f"{slot}/{where}/{name}": _answer(users.values(), name) for (slot, where), users in found.items()}


def _answer(users: Iterable[list[float]], name: str) -> float:
    speeds = list(users)
    if name == "over":
        return sum(max(of_user) > LIMIT for of_user in speeds) / len(DATES)
    return sum(sum(of_user) / len(of_user) for of_user in speeds) / len(speeds)


def cell(place: int) -> str:
    """The H3 cell of a place, at the resolution of the tests' policy."""
    return str(h3.latlng_to_cell(*PLACES[place], 7))
