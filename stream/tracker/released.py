"""A plain release as an observation of its HAT's mean.    [docs/specification/tracker.md, section 5]

All of it follows from published records: `counts` are public under `replace`, and absent under `add_remove`. Counts
are those of the users that K admits, so they are not used as features of the HAT: estimates were
worse with them.
"""

from typing import Final

import numpy as np

from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.contributions import Hat
from hatcast.stream.tracker.model import SHARED, Observation
from hatcast.stream.tracker.setting import Variances

DEVIATIONS: Final = 1.96  # of a normal distribution, on either side: 95 %
_UNKNOWN: Final = (5, 7.5, 0.2)  # users, readings and squares of a HAT whose counts are not published


def hour_of(release: ReleaseRecord) -> int:
    """Return the hour of the local clock in which a release's slot starts."""
    return int(release.slot[:2])


def hat_of(release: ReleaseRecord, cell: int, variances: Variances) -> Hat:
    """Return the HAT of a release. cell: its number."""
    counts = release.counts
    users, readings, squares = _UNKNOWN if counts is None else (counts.users, counts.readings, counts.squares)
    sampling = (variances.bus + variances.bus_hat) * squares + variances.reading / readings
    own = variances.hat + sampling
    return Hat(cell, hour_of(release), np.zeros(2), own, variances.hat / own, users, 0)


def noise_variance(release: ReleaseRecord) -> float | None:
    """Return the variance of a release's noise, in squared units.

    None if the record has no noisy value of the HAT: it is not released, or it was released without noise, as
    `clipped_sum` does with few users; such a value depends on no reading.
    """
    noise = release.noise
    if release.raw is None or release.interval95 is None or noise is None or noise.scale == 0:
        return None
    if noise.scale is not None:
        return 2 * noise.scale**2
    # The interval is clipped to [0, U], so the end that is farther from the unclipped value has the width.
    return (max(abs(end - release.raw) for end in release.interval95) / DEVIATIONS) ** 2


def observation_of(release: ReleaseRecord, hat: Hat, number: int, noise: float, variances: Variances) -> Observation:
    """Return the observation of a release: y = the HAT's mean + the estimator's other weights of buses + noise.

    number   of the HAT in its day
    noise    as `noise_variance` returns it
    """
    shift = 0.0 if release.counts is None else release.counts.shift or 0.0
    row = np.zeros(SHARED)
    row[0] = row[1 + hat.hour] = 1
    return Observation(
        hat.cell,
        row,
        np.array([number]),
        np.ones(1),
        np.ones(1),
        noise + (variances.bus + variances.bus_hat) * shift,
    )
