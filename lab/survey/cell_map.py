"""Map of a survey: the cells with a reading, and the busy ones among them.    [T III.C]

The file loads nothing from elsewhere, no tiles, fonts or scripts: no server learns which place is looked at.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h3.api.basic_int as h3
import numpy as np

from hatcast.agents.cli.report import open_figure
from hatcast.lab.survey.report import busy_criterion
from hatcast.lab.survey.run import Survey
from hatcast.stream.policy.policy import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH: Final = 7.0  # inches
_HEIGHTS: Final = (3.5, 11.0)
_KM_PER_DEGREE: Final = 111.19  # of latitude
_MARGIN: Final = 0.04
_BUSY, _OTHER, _EDGE = "#4caf50", "#dddddd", "#666666"

Ring = list[tuple[float, float]]
"""(longitude, latitude) of each corner, in degrees"""


def draw_map(survey: Survey, policy: Policy, users: Fraction, path: Path) -> None:
    """Draw the cells of the policy's resolution, the busy ones filled. Raises HatcastError if it cannot be written."""
    from matplotlib.collections import PolyCollection

    busy = set(survey.busy)
    rings = dict(zip(survey.cells, rings_of(survey.cells), strict=True))
    corners = np.array([corner for ring in rings.values() for corner in ring])
    west, south, east, north = (float(each) for each in (*corners.min(axis=0), *corners.max(axis=0)))
    stretch = 1 / max(math.cos(math.radians((south + north) / 2)), 0.01)  # of a degree of latitude against longitude
    height = min(max(_WIDTH * (north - south) * stretch / (east - west), _HEIGHTS[0]), _HEIGHTS[1])
    title = f"Not private. Cells of resolution {policy.h3_resolution} with a reading; busy ones have\n"
    with open_figure(path, title + busy_criterion(policy, users, survey.days), (_WIDTH, height), "--map") as figure:
        panel = figure.add_subplot()
        for name, fill, cells in (("busy", _BUSY, busy), ("other", _OTHER, rings.keys() - busy)):
            shown = [rings[cell] for cell in sorted(cells)]
            label = f"{len(shown):,} {name} {'cell' if len(shown) == 1 else 'cells'}"
            panel.add_collection(PolyCollection(shown, facecolors=fill, edgecolors=_EDGE, linewidths=0.4, label=label))
        across, up = _MARGIN * (east - west), _MARGIN * (north - south)
        panel.set(xlim=(west - across, east + across), ylim=(south - 3 * up, north + up))
        panel.set(xlabel="longitude", ylabel="latitude", aspect=stretch)
        _draw_scale(panel, (west, south - 2 * up), (east - west) / stretch * _KM_PER_DEGREE / 4, stretch)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def rings_of(cells: Sequence[int]) -> list[Ring]:
    """Return the corners of each cell, with longitudes less than 180 degrees from the first corner of the first cell.

    So they may be beyond 180, and cells on both sides of that meridian are drawn side by side.
    """
    if not cells:
        return []
    first = h3.cell_to_boundary(cells[0])[0][1]
    return [
        [((longitude - first + 180) % 360 - 180 + first, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]
        for cell in cells
    ]


def _draw_scale(panel: "Axes", start: tuple[float, float], most_km: float, stretch: float) -> None:
    """Draw a bar of 1, 2 or 5 times a power of ten km, as long as `most_km` allows. start: (longitude, latitude)."""
    power = 10.0 ** math.floor(math.log10(most_km))
    km = max(each * power for each in (1, 2, 5) if each * power <= most_km)
    end = start[0] + km / _KM_PER_DEGREE * stretch
    panel.plot((start[0], end), (start[1], start[1]), color="black", linewidth=2, solid_capstyle="butt")
    panel.annotate(f"{km:g} km", (end, start[1]), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
