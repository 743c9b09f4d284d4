"""Names of the places of cells, by the stops of a timetable, as the map's page has them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache

import h3.api.basic_str as h3

from hatcast.agents.timetable.network import Stop


def place_names(stops: Iterable[Stop]) -> Callable[[str], str | None]:
    """Return a function that names the place of a cell: its stop with most routes, else the nearest stop around it.

    Of several such stops it is the one nearest to the centre; None: no stop is near, or it is not a cell.
    """
    known = sorted(stops, key=lambda stop: -len(stop.routes))

    @cache
    def by_cell(resolution: int) -> dict[str, list[Stop]]:
        found = defaultdict(list)
        for stop in known:
            found[h3.latlng_to_cell(*stop.place, resolution)].append(stop)
        return dict(found)

    @cache
    def name(cell: str) -> str | None:
        if not h3.is_valid_cell(cell):
            return None
        near, centre = by_cell(h3.get_resolution(cell)), h3.cell_to_latlng(cell)
        within = near.get(cell, [])
        chosen = [stop for stop in within if len(stop.routes) == len(within[0].routes)] or [
            stop for each in h3.grid_disk(cell, 1) for stop in near.get(each, [])
        ]
        nearest = min(chosen, key=lambda stop: h3.great_circle_distance(centre, stop.place), default=None)
        return None if nearest is None else f"near {nearest.name}"

    return name
