"""How many timeslots the ids of a day live in: ids that change from trip to trip make one bus many users.

Only counts over all vehicles of a day with many of them leave the fold: for hints to the operator, and a metric.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FEW_SLOTS: Final = 2
_LEAST_SLOTS: Final = 6  # of a day: with fewer of them most buses are in few, whatever their ids are
_LEAST_VEHICLES: Final = 20  # of a day
_SHARE: Final = 0.9


@dataclass(slots=True)
class IdSpans:
    """Vehicles of days that are over, those of a day with few vehicles or few timeslots not counted.

    few    vehicles that were in one or two timeslots of their day
    many   all others
    """

    few: int = 0
    many: int = 0

    def add(self, slots_of_vehicles: Iterable[int], slots_of_day: int) -> None:
        """Add a day. slots_of_vehicles: the number of timeslots of each vehicle; 0: not seen in this run."""
        seen = [slots for slots in slots_of_vehicles if slots]
        if slots_of_day >= _LEAST_SLOTS and len(seen) >= _LEAST_VEHICLES:
            few = sum(slots <= FEW_SLOTS for slots in seen)
            self.few += few
            self.many += len(seen) - few

    def merge(self, other: "IdSpans") -> None:
        """Add the days of another partition."""
        self.few += other.few
        self.many += other.many

    def hint(self) -> str | None:
        """Return a line for the operator if nearly all ids live in one or two timeslots of a day, else None."""
        vehicles = self.few + self.many
        if not self.few or self.few < _SHARE * vehicles:
            return None
        return (
            f"{self.few:,} of {vehicles:,} vehicle ids are in one or two timeslots of their day: if ids change from"
            " trip to trip, one bus has many budgets; use a feed whose ids last (docs/limits.md)"
        )
