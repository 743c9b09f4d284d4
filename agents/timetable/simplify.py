"""Simplification of lines, of many at once: a geometry library would be a dependency for this one function."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.agents.timetable.tables import Points

_METRES_A_DEGREE: Final = 111_195.0  # of latitude
_BATCH: Final = 200_000  # points that are simplified at a time: some 150 bytes each

_Vectors = tuple[NDArray[np.float64], NDArray[np.float64]]


def kept_points(points: Points, tolerance_m: float) -> NDArray[np.bool_]:
    """Return which points to keep, so that no line moves by more than the tolerance.    [Douglas & Peucker 1973]

    A line keeps its ends. Distances are those of a plane, which is exact enough for lines of a city.
    """
    keep = np.zeros(len(points.number), dtype=np.bool_)
    starts = np.flatnonzero(np.r_[True, np.diff(points.number) > 0]) if len(keep) else np.zeros(0, dtype=np.int64)
    batches = starts[np.r_[True, np.diff(starts // _BATCH) > 0]] if len(starts) else starts
    for start, end in zip(batches, np.r_[batches[1:], len(keep)], strict=True):
        part = slice(int(start), int(end))
        keep[part] = _kept(Points(points.number[part], points.lats[part], points.lngs[part]), tolerance_m)
    return keep


def _kept(points: Points, tolerance_m: float) -> NDArray[np.bool_]:
    """Each pass splits every pending chord of every line at the point that is farthest from it."""
    y, x = points.lats * _METRES_A_DEGREE, points.lngs * _METRES_A_DEGREE
    narrow = np.cos(np.radians(points.lats))  # metres of a degree of longitude, over those of a degree of latitude
    edge = np.flatnonzero(np.diff(points.number))
    first, last = np.r_[0, edge + 1], np.r_[edge, len(x) - 1]
    keep = np.zeros(len(x), dtype=np.bool_)
    keep[first] = keep[last] = True
    while True:
        has_inner = last - first > 1
        first, last = first[has_inner], last[has_inner]
        if not len(first):
            return keep
        sizes = last - first - 1
        begins = np.r_[0, np.cumsum(sizes)[:-1]]
        inner = np.arange(sizes.sum()) + np.repeat(first + 1 - begins, sizes)
        starts, ends = np.repeat(first, sizes), np.repeat(last, sizes)
        scale = narrow[starts]
        chords = (x[ends] - x[starts]) * scale, y[ends] - y[starts]
        away = _distances(((x[inner] - x[starts]) * scale, y[inner] - y[starts]), chords)
        most = np.maximum.reduceat(away, begins)
        chord = np.repeat(np.arange(len(first)), sizes)
        at_most = np.flatnonzero(away == most[chord])
        _, one_each = np.unique(chord[at_most], return_index=True)
        split = inner[at_most[one_each]]
        is_far = most > tolerance_m
        keep[split[is_far]] = True
        first, last = np.r_[first[is_far], split[is_far]], np.r_[split[is_far], last[is_far]]


def _distances(points: _Vectors, chords: _Vectors) -> NDArray[np.float64]:
    """Return the distance of each point from its chord, a segment; both are relative to the segment's start."""
    (px, py), (dx, dy) = points, chords
    length2 = dx * dx + dy * dy
    along = np.clip((px * dx + py * dy) / np.where(length2 > 0, length2, 1.0), 0.0, 1.0)
    return np.hypot(px - along * dx, py - along * dy)
