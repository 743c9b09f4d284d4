"""Alarms: where buses go at half the speed that was expected.    [docs/specification/tracker.md, section 6]

Of each hexagon, of each hexagon with its neighbours, and of the whole city there is a running sum of the logarithm of a
likelihood ratio: of a slot's released numbers if the speed were half of what the model expects, over that if it were as
expected (Page, Continuous inspection schemes, Biometrika 1954). It is never below 0, and there is an alarm while it is
at its threshold. Innovations of a Kalman filter are independent of each other, so that their ratios multiply.

Post-processing of released numbers and public counts: a function of what the model has, and of nothing else.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal, get_args

import h3.api.basic_str as h3

from hatcast.stream.tracker.counts import Integers

Area = Literal["hexagon", "neighbours", "city"]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
"""What an alarm is about, from small to large: a hexagon, a hexagon with those around it, all hexagons"""

# Found by simulation: about one alarm of a city is false in a month (bench/alarms.py). A tracker has few numbers.
OF_RELEASES: Final = 8.5  # threshold of the city's sum where each HAT has a release
OF_TRACKER: Final = 5.0  # threshold of the city's sum under a tracker
_SLOWER: Final = 0.5  # part of the expected speed that an incident takes away
_CITY: Final = -1  # in place of a cell's number


class Alarms:
    """Running sums of one date. They begin at 0 on each date, so no state outlives it."""

    def __init__(self, threshold: float) -> None:
        """threshold: of the city's sum. With numbers of n hexagons theirs are higher by ln(n): one passes as rarely."""
        self._threshold = threshold
        self._sums: dict[tuple[Area, str], float] = {}
        self._ratios: dict[int, float] = {}  # of the present slot, by the number of the cell

    def add(self, cells: Integers, share: float, expected: float, innovation: float, variance: float) -> None:
        """Add a released number that is about the present slot.

        cells        numbers of the cells that it is about: one, or those of a pulse
        share        of it that is about this slot, by weight
        expected     of it
        innovation   its difference from that
        variance     of the innovation
        """
        shift = -_SLOWER * share * max(expected, 0.0)
        ratio = shift * (innovation - shift / 2) / variance
        for number in (_CITY, *cells.tolist()) if len(cells) == 1 else (_CITY,):
            self._ratios[number] = self._ratios.get(number, 0.0) + ratio

    def close_slot(self, cells: Sequence[str]) -> dict[str, Area]:
        """Return the cells with an alarm, with the smallest area that it is about. cells: all, by their numbers."""
        known = frozenset(cells)
        ratios: dict[tuple[Area, str], float] = {}
        for number, ratio in self._ratios.items():
            if number == _CITY:
                ratios["city", ""] = ratio
                continue
            ratios["hexagon", cells[number]] = ratio
            for centre in h3.grid_disk(cells[number], 1):
                if centre in known:
                    ratios["neighbours", centre] = ratios.get(("neighbours", centre), 0.0) + ratio
        found: dict[str, Area] = {}
        of_hexagons = self._threshold + math.log(max(1, len(self._ratios) - 1))  # the other one is the city's
        self._ratios = {}
        for (area, centre), ratio in ratios.items():
            threshold = self._threshold if area == "city" else of_hexagons
            # At most the threshold, so that an alarm ends with the first slot that is against it.
            total = min(max(self._sums.get((area, centre), 0.0) + ratio, 0.0), threshold)
            self._sums[area, centre] = total
            if total == threshold:
                for cell in cells if area == "city" else [centre]:
                    found[cell] = min(found.get(cell, area), area, key=AREAS.index)
        return found
