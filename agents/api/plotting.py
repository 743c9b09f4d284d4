"""A map of one hour as a figure of matplotlib."""

from collections.abc import Sequence

import h3.api.basic_str as h3
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from hatcast.stream.records import EstimateRecord


def draw_hexagons(records: Sequence[EstimateRecord], axes: Axes | None) -> Axes:
    """Draw the hexagons of estimates of one hour, by value, fainter where the interval is wide."""
    if axes is None:
        _, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    figures = [record.road if record.mean is None else record.mean for record in records]
    values = np.array([each.value for each in figures])
    widths = np.array([each.interval95[1] - each.interval95[0] for each in figures])
    corners = [[(lon, lat) for lat, lon in h3.cell_to_boundary(record.cell)] for record in records]
    hexagons = PolyCollection(corners, array=values, cmap="viridis", edgecolor="white")
    hexagons.set_alpha((1 - 0.8 * widths / max(float(widths.max()), 1e-9)).tolist())
    axes.add_collection(hexagons)
    axes.autoscale_view()
    latitude = np.mean([lat for each in corners for _, lat in each])
    axes.set_aspect(1 / np.cos(np.radians(latitude)))  # a degree of longitude is shorter
    first = records[0]
    axes.set(title=f"{first.date}, {first.slot}", xlabel="longitude", ylabel="latitude")
    axes.figure.colorbar(hexagons, ax=axes, label=f"mean, {first.unit}")
    return axes
