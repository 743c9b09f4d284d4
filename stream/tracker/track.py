"""Means of the model and widths of its intervals, after one sequence of released numbers.

Post-processing of released numbers and public counts.    [docs/specification/tracker.md, section 1]
"""

import math
from dataclasses import dataclass

from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.tracker.calibration import Calibration, ReleaseCalibration
from hatcast.stream.tracker.contributions import Floats, Hat
from hatcast.stream.tracker.model import SHARED, Covariance, Means
from hatcast.stream.tracker.query import Query, expected_of, innovation_of, noiseless_sum
from hatcast.stream.tracker.state import TrackerState, floats_of


@dataclass(frozen=True, slots=True)
class Normal:
    """A mean and a variance, in the policy's unit and its square."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class HatEstimate:
    """Estimate of a HAT.

    road   the mean for its cell and hour, without the sampling of its buses
    mean   the mean of all of its readings
    """

    road: Normal
    mean: Normal


class Track:
    """Means of the model after one sequence of released numbers. A simulation has several for the same counts."""

    def __init__(
        self,
        centre: float,
        state: TrackerState | None = None,
        calibration: Calibration | ReleaseCalibration | None = None,
    ) -> None:
        """Args:
        centre: the prior mean of the city
        state: after the days before; None: there were none
        calibration: None: of queries, from the state
        """
        self.means = Means(centre)
        self.calibration = calibration or Calibration()
        if state is not None:
            self.means.shared = floats_of(state.means, SHARED)
            self.means.intercepts = floats_of(state.intercepts, len(state.cells))
            self.calibration = Calibration(state.calibration)

    def draw(self, query: Query, values: Floats, noise: LaplaceNoise) -> int:
        """Return Y with its noise. values: float64 [N], the private mean of each contribution of the day."""
        # The loss of a bus is at most 2 Z_b / D, whatever its Z_b: distance D at epsilon 1 names the noise of scale D.
        return noise.laplace(noiseless_sum(query, values, self.means), query.scale, 1.0).value

    def expected(self, query: Query) -> float:
        """Return the prediction of the query's weighted HATs, in the policy's unit."""
        return expected_of(query, self.means)

    def learn(self, query: Query, released: int) -> float:
        """Update with a released Y. Return its innovation in standard deviations."""
        innovation = innovation_of(query, released, self.means)
        self.means.update(query.observation, query.gain, innovation)
        self.calibration.add(innovation, query.gain.variance, query.noise)
        return innovation / math.sqrt(query.gain.variance)

    def estimate(self, number: int, hat: Hat, covariance: Covariance) -> HatEstimate:
        """Return the estimate of a HAT. number: of the HAT in its day."""
        own = Normal(float(self.means.hats[number]), float(covariance.hats[number]))
        return hat_estimate(hat, own, self, covariance)


def hat_estimate(hat: Hat, own: Normal, track: Track, covariance: Covariance) -> HatEstimate:
    """Return the estimate of a HAT. own: of its own deviation."""
    row = covariance.row_of(hat.cell, hat.hour, hat.features)
    centre, variance = track.means.predict(row, hat.cell), covariance.variance_of(row, hat.cell)
    # The own deviation is the road's and that of the sampling: what was learned of their sum is divided.
    share, factor = hat.road_share, track.calibration.factor
    of_road = share**2 * own.variance + share * (1 - share) * hat.variance
    return HatEstimate(
        Normal(centre + share * own.mean, factor * (variance + of_road)),
        Normal(centre + own.mean, factor * (variance + own.variance)),
    )
