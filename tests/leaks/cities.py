"""Policies of each kind, over a recording whose readings are marked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import h3.api.basic_str as h3

from hatcast.stream.readings.vehicles import KEY_BYTES, by_murmur2
from tests.integration.hidden import CELLS, HIDDEN
from tests.integration.readings import PLACES
from tests.integration.tables import merged
from tests.leaks.marks import UPPER_BOUND, Marked, Truth, marked
from tests.leaks.search import Search, search_for
from tests.services.kafka_server import PARTITIONS

KEY: Final = bytes(31 * at % 251 for at in range(7, 7 + KEY_BYTES))
DATE: Final = "2022-01-02"
HORIZON: Final = "2022-01-02"
LIST: Final = "private.txt"
PUBLIC: Final = "cells.txt"
LIMITS: Final = {"max_hats_per_day": 40, "daily_limit": 105.0, "min_users": 3}
OVER_LIMIT: Final = {"name": "over", "kind": "over_speed_limit", "days": 1, "epsilon": 1.0, "speed_limit": 5e5}
SUM: Final[dict[str, Any]] = {"name": "mean", "kind": "mean_speed", "days": 1, "epsilon": 1.0, "min_n": 5}


@dataclass(frozen=True, eq=False)
class City:
    """A policy, and the vehicles that it is about.

    vehicles   in each place, in the first hour
    devices    vehicles of these numbers send reports and no readings
    hidden     presence is private, so numbers of users and of readings are too
    again      readings of a vehicle in a HAT
    periods    dates of its users' pseudonyms
    fills      output topics that get records, besides those of means, budgets and dead letters
    """

    name: str
    policy: dict[str, Any]
    vehicles: Sequence[int] = (12, 13, 14)
    devices: range = range(0)
    hidden: bool = False
    again: int = 2
    periods: Sequence[str | None] = (DATE,)
    fills: Sequence[str] = ("estimates",)
    readings: list[Marked] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "readings", marked(self.name, self.vehicles, hours=2, again=self.again))

    @property
    def table(self) -> dict[str, Any]:
        """Changes to a pipeline's configuration."""
        common = {"upper_bound": UPPER_BOUND, "reject_above": "none", "hours": [11, 15]}
        return {
            "worker": {"listen": "127.0.0.1:0", "user_key_file": "user_key"},
            "policy": common | self.policy,  # a value of None removes a key of the tests' defaults
        }

    def write_files(self, folder: Path) -> None:
        """What the configuration names."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "user_key").write_text(KEY.hex())
        cells = sorted(h3.latlng_to_cell(*place, 7) for place in PLACES)
        private = ['source = "private"', "epsilon = 0.5", 'days = "2021-12-30,2021-12-31"', 'timezone = "UTC"', *cells]
        (folder / LIST).write_text("\n".join(private) + "\n")
        (folder / PUBLIC).write_text("\n".join(['source = "public"', *CELLS]) + "\n")

    def search(self) -> Search:
        """Return the search for everything that is true of its vehicles."""
        return search_for(Truth(self.readings, _partition), KEY, self.periods, counts=self.hidden)


def _partition(vehicle: str) -> int:
    return by_murmur2(vehicle.encode(), PARTITIONS)


REPLACE: Final = City(
    "replace",
    {
        "privacy": LIMITS,
        "estimator": {"name": "array_averaging"},
        "query": [OVER_LIMIT, SUM],
        "cells": LIST,
        "running": [{"name": "today", "window": "today"}],
    },
    fills=("estimates", "running", "queries"),
)
TRACKER: Final = City(
    "tracker",
    {
        "privacy": {"epsilon": None, "max_hats_per_day": None, "daily_limit": 5.0, "min_users": 3},
        "estimator": {"name": "tracker"},
        "running": [{"name": "today", "window": "today"}],
    },
    fills=("estimates", "running"),
)
HYBRID: Final = City("hybrid", {"privacy": LIMITS, "estimator": {"name": "pwh"}}, devices=range(9, 20))
CONTINUAL: Final = City(
    "continual",
    {
        "privacy": {"epsilon": 10.0, "max_hats_per_day": None, "daily_limit": None, "min_users": 3},
        "estimator": None,
        "continual": {"kind": "tree", "horizon_days": 7, "max_slots": 6, "max_cells": 3},
    },
    periods=(DATE, HORIZON),
    fills=(),
)
ADD_REMOVE: Final = City(
    "hidden",
    merged(
        HIDDEN["policy"],
        {
            "privacy": {"epsilon": 1.0, "acknowledge_weak_privacy": None, "max_hats_per_day": 20, "daily_limit": 105.0},
            "query": [{**OVER_LIMIT}],
        },
    ),
    vehicles=(1_213, 1_087),
    hidden=True,
    fills=("estimates", "queries"),
)
CITIES: Final = {city.name: city for city in (REPLACE, TRACKER, HYBRID, CONTINUAL, ADD_REMOVE)}
