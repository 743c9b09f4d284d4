"""A plain release as an observation of its HAT's mean.    [docs/specification/tracker.md, section 5]

All of it follows from published records: `counts` are public under `replace`, and absent under `add_remove`. Counts
are those of the users that K admits, so they are not used as features of the HAT: estimates were
worse with them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.calibration import Calibration, ReleaseCalibration
from hatcast.stream.tracker.contributions import Hat
from hatcast.stream.tracker.model import SHARED, Observation
from hatcast.stream.tracker.setting import Variances

DEVIATIONS: Final = 1.96  # of a normal distribution, on either side: 95 %
_UNKNOWN: Final = (5, 7.5, 0.2)  # users, readings and squares of a HAT whose counts are not published


HatKey = tuple[str, str]
"""cell and slot of a HAT of the day"""


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A released number, as the model sees it.

    value   above the policy's lower bound, in its unit: the number that was observed
    noise   the part of the observation's variance that is noise
    """

    observation: Observation
    value: float
    noise: float


class Records(Protocol):
    """Converter of one kind of policy's records to HATs and observations of the model."""

    @staticmethod
    def calibration(means: Sequence[float]) -> Calibration | ReleaseCalibration:
        """Return the calibration that goes with these records. means: of an earlier one; none at the beginning."""
        ...

    def hat(self, record: ReleaseRecord, cell: int) -> Hat | None:
        """Return the HAT of a record; None if the model does not have it. cell: its number."""
        ...

    def measurements(
        self, records: Sequence[ReleaseRecord], cells: Mapping[str, int], hats: Mapping[HatKey, int]
    ) -> Iterator[Measurement]:
        """Yield the released numbers of a slot or settlement, in the order in which the model takes them.

        cells   numbers of cells
        hats    numbers of the HATs of the day
        """
        ...


class PlainReleases:
    """Converter of plain releases: one observation for each HAT."""

    def __init__(self, variances: Variances, lower: float = 0.0) -> None:
        """lower: of the value, in its unit: the model is of distances from it."""
        self._variances, self._lower = variances, lower

    @staticmethod
    def calibration(means: Sequence[float]) -> ReleaseCalibration:
        """Return the calibration that goes with plain releases. means: one number; none at the beginning."""
        return ReleaseCalibration(*means)

    def hat(self, record: ReleaseRecord, cell: int) -> Hat | None:
        """Return the HAT of a release; None for a record that is not released."""
        return hat_of(record, cell, self._variances) if record.is_released else None

    def measurements(
        self, records: Sequence[ReleaseRecord], cells: Mapping[str, int], hats: Mapping[HatKey, int]
    ) -> Iterator[Measurement]:
        """Yield the noisy means of a slot's HATs, by cell."""
        for record in sorted(records, key=lambda each: each.cell):
            noise = noise_variance(record)
            if record.is_released and noise is not None and record.raw is not None:
                cell, number = cells[record.cell], hats[record.cell, record.slot]
                observation = _observation_of(record, cell, number, noise, self._variances)
                yield Measurement(observation, record.raw - self._lower, noise)


def hour_of(slot: str) -> int:
    """Return the hour of the local clock in which a slot starts. slot: its name."""
    return int(slot[:2])


def hat_of(release: ReleaseRecord, cell: int, variances: Variances) -> Hat:
    """Return the HAT of a release. cell: its number."""
    counts = release.counts
    users, readings, squares = _UNKNOWN if counts is None else (counts.users, counts.readings, counts.squares)
    sampling = (variances.bus + variances.bus_hat) * squares + variances.reading / readings
    own = variances.hat + sampling
    return Hat(cell, hour_of(release.slot), np.zeros(2), own, variances.hat / own, users, 0)


def noise_variance(release: ReleaseRecord) -> float | None:
    """Return the variance of a release's noise, in squared units.

    None if the record has no noisy value of the HAT: it is not released, or it has no noise and depends on no reading.
    """
    noise = release.noise
    if release.raw is None or release.interval95 is None or noise is None or noise.scale == 0:
        return None
    if noise.scale is not None:
        return 2 * noise.scale**2
    # The interval is clipped to [0, U], so the end that is farther from the unclipped value has the width.
    return (max(abs(end - release.raw) for end in release.interval95) / DEVIATIONS) ** 2


def _observation_of(release: ReleaseRecord, cell: int, hat: int, noise: float, variances: Variances) -> Observation:
    """Return the observation of a release: y = the HAT's mean + the estimator's other weights of buses + noise."""
    shift = 0.0 if release.counts is None else release.counts.shift or 0.0
    row = np.zeros(SHARED)
    row[0] = row[1 + hour_of(release.slot)] = 1
    rest = noise + (variances.bus + variances.bus_hat) * shift
    return Observation(cell, row, np.array([hat]), np.ones(1), np.ones(1), rest)
