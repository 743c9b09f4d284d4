"""Reference implementation of docs/specification/fold.md, simple and slow, without the product's code.

It covers the workload only: one time zone without clock changes, integer km/h, no late readings.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import h3

UPPER_BOUND_KMH: Final = 65
REJECT_ABOVE_KMH: Final = 150
INTERVAL_S: Final = 10
RESOLUTION: Final = 7

Totals = dict[str, tuple[int, int, int, int]]


@dataclass
class Reference:
    """Reference fold: records by outcome, and each user's readings in every HAT, {step: km/h}."""

    outcomes: dict[str, int] = field(default_factory=dict)
    hats: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)

    def add(self, value: bytes) -> None:
        """Fold one record."""
        outcome = self._fold(value)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _fold(self, value: bytes) -> str:
        try:
            record = json.loads(value)
        except json.JSONDecodeError:
            return "undecodable"
        longitude, latitude = record["location"]["coordinates"]
        if latitude == longitude == 0:
            return "bad_place"
        if record["speed"] > REJECT_ABOVE_KMH:
            return "bad_value"
        if record["speed"] == 0:
            return "zero"
        time = datetime.fromisoformat(record["observationDateTime"])
        hat = f"{h3.latlng_to_cell(latitude, longitude, RESOLUTION)}/{time:%Y-%m-%d/%H}:00"
        steps = self.hats.setdefault(hat, {}).setdefault(record["license_plate"], {})
        step = (time.minute * 60 + time.second) // INTERVAL_S
        if step in steps:
            return "duplicate"
        steps[step] = min(record["speed"], UPPER_BOUND_KMH)
        return "accepted"

    @property
    def entries(self) -> int:
        """Number of (user, HAT) pairs."""
        return sum(len(users) for users in self.hats.values())

    def totals(self) -> Totals:
        """Return users, readings, sum and maximum (milli-units) by HAT."""
        found = {}
        for hat, users in self.hats.items():
            speeds = [speed for steps in users.values() for speed in steps.values()]
            found[hat] = (len(users), len(speeds), 1000 * sum(speeds), 1000 * max(speeds))
        return found
