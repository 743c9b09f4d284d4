"""Estimates of all HATs of a day at once, with two parts of each error.    [docs/specification/running.md, 3]

The *common* part is the error of city, hour and cell: HATs of one cell share most of it. The *own* part is the error of
the HAT's own deviation, which a smoother takes as independent of all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.contributions import Floats, Hat
from hatcast.stream.tracker.model import Covariance
from hatcast.stream.tracker.track import Track


@dataclass(frozen=True, slots=True, eq=False)
class DayParts:
    """HATs of the present day, in the order in which they were added.

    records   of each HAT
    means     float64 [H]  of all readings of the HAT, above the policy's lower bound, not clipped
    common    float64 [H]  standard deviation of the common part of the error
    own       float64 [H]  variance of its own part
    """

    records: Sequence[ReleaseRecord]
    means: Floats
    common: Floats
    own: Floats


def day_parts(records: Sequence[ReleaseRecord], hats: Sequence[Hat], track: Track, covariance: Covariance) -> DayParts:
    """Return the estimates of a day's HATs: those that `Track.estimate` returns one by one.

    records, hats   of each HAT of the day, in the order of their numbers
    """
    cells = np.array([hat.cell for hat in hats], np.int64)
    rows = covariance.slopes[cells]
    rows[:, 0] += 1
    rows[np.arange(len(hats)), 1 + np.array([hat.hour for hat in hats], np.int64)] += 1
    rows[:, 25:] += np.array([hat.features for hat in hats]).reshape(len(hats), 2)
    variance = np.einsum("hi,ij,hj->h", rows, covariance.shared, rows, optimize=True) + covariance.variance[cells]
    means = rows @ track.means.shared + track.means.intercepts[cells] + track.means.hats
    factor = track.calibration.factor
    return DayParts(records, means, np.sqrt(factor * variance), factor * covariance.hats)
