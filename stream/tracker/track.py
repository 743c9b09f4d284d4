"""Means of the model and widths of its intervals, after one sequence of released numbers.

Post-processing of released numbers and public counts.    [docs/specification/tracker.md, section 1]
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.tracker.counts import Floats, ModelHat
from hatcast.stream.tracker.model import Covariance, Means
from hatcast.stream.tracker.prior_scale import Evidence
from hatcast.stream.tracker.query import STEPS, ResidualQuery, noiseless_sum

_WINDOW: Final = 200.0  # queries of a calibration; older ones fade exponentially


# The constants of one year covered only 89 to 92 % of another, so a city that differs from the model more than expected
# gets wider intervals. The ratio of what was seen to what was expected follows from released numbers: it costs nothing.
class Calibration:
    """Running ratio of squared innovations to their variances, both without the noise of the query."""

    def __init__(self, means: tuple[float, float] = (1.0, 1.0)) -> None:
        """means: as `means` returned them before."""
        self._seen, self._expected = means

    @property
    def means(self) -> tuple[float, float]:
        """Both running means: seen, expected."""
        return self._seen, self._expected

    def add(self, innovation: float, variance: float, noise: float) -> None:
        """Add a query's innovation, its variance, and the part of it that is noise."""
        self._seen += ((innovation**2 - noise) / variance - self._seen) / _WINDOW
        self._expected += ((variance - noise) / variance - self._expected) / _WINDOW

    @property
    def factor(self) -> float:
        """Factor of all reported variances, 1 or more."""
        return max(1.0, self._seen / self._expected)


class ReleaseCalibration:
    """Calibration for plain releases, whose noise is mostly larger than the model's uncertainty.

    A release counts by the square of the part of its variance that is not noise. So the ratio is as exact for small
    epsilons as for large ones, only later: its standard deviation is about 2.2 / sqrt(2 x 200), for any noise.

    ratio   of squared innovations to their variances, both without the noise of the release
    """

    def __init__(self, ratio: float = 1.0) -> None:
        self.ratio = ratio

    @property
    def means(self) -> tuple[float]:
        """The ratio."""
        return (self.ratio,)

    def add(self, innovation: float, variance: float, noise: float) -> None:
        """Add a release's innovation, its variance, and the part of it that is noise."""
        part = (variance - noise) / variance
        self.ratio += part * ((innovation**2 - noise) / variance - self.ratio * part) / _WINDOW

    @property
    def factor(self) -> float:
        """Factor of all reported variances, 1 or more."""
        return max(1.0, self.ratio)


@dataclass(frozen=True, slots=True)
class Normal:
    """A mean and a variance, in the policy's unit and its square."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class HatEstimate:
    """Estimate of a HAT."""

    road: Normal  # the mean for its cell and hour, without the sampling of its buses
    mean: Normal  # the mean of all of its readings


class Track:
    """Means of the model after one sequence of released numbers. A simulation has several for the same counts.

    evidence   of the scale of a guessed prior; None: it is not learnt
    """

    def __init__(
        self, prior: Floats, calibration: Calibration | ReleaseCalibration, evidence: Evidence | None = None
    ) -> None:
        """prior: means of the shared parts, float64 [29]."""
        self.means = Means(prior)
        self.calibration = calibration
        self.evidence = evidence

    def draw(self, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
        """Return Y with its noise. values: float64 [N], the private mean of each contribution of the day."""
        # The loss of a bus is at most 2 Z_b / D, whatever its Z_b: distance D at epsilon 1 names the noise of scale D.
        return noise.laplace(noiseless_sum(query, values, self.means), query.scale, 1.0).value

    def expected(self, query: ResidualQuery) -> float:
        """Return the prediction of the query's weighted HATs, in the policy's unit."""
        return self.means.expected(query.observation, query.gain) + self._own_of(query)

    def _own_of(self, query: ResidualQuery) -> float:
        """Return the HATs' own deviations in their prediction, less those in the observation's."""
        observation = query.observation
        own = self.means.hats[observation.hats] + query.gain.own @ self.means.shared
        return float((observation.weights - observation.betas) @ own)

    def learn(self, query: ResidualQuery, released: int) -> float:
        """Update with a released Y. Return its innovation in standard deviations."""
        observation = query.observation
        shift = released / (STEPS * query.total * query.kept)
        innovation = shift + self._own_of(query)
        self.means.update(observation, query.gain, innovation)
        self.calibration.add(innovation, query.gain.variance, query.noise)
        if self.evidence is not None:
            self.evidence.add(innovation, query)
        return innovation / math.sqrt(query.gain.variance)

    def estimate(self, number: int, hat: ModelHat, covariance: Covariance) -> HatEstimate:
        """Return the estimate of a HAT. number: of the HAT in its day."""
        own = covariance.own
        known = OwnDeviation(
            float(self.means.hats[number]),
            own.slopes[number],
            float(own.with_cell[number]),
            float(own.variance(np.array([number]))[0]),
        )
        return hat_estimate(hat, known, self, covariance)


@dataclass(frozen=True, slots=True, eq=False)
class OwnDeviation:
    """Mean, slopes and variances of the own deviation of one HAT: its entry in `Own`."""

    mean: float  # its intercept
    slopes: Floats
    with_cell: float
    variance: float


def hat_estimate(hat: ModelHat, own: OwnDeviation, track: Track, covariance: Covariance) -> HatEstimate:
    """Return the estimate of a HAT."""
    row, means = covariance.row_of(hat.cell, hat.hour, hat.features), track.means
    factor, share = track.calibration.factor, hat.road_share

    def with_share(part: float, rest: float) -> Normal:
        whole = row + part * own.slopes
        mean = float(whole @ means.shared + means.intercepts[hat.cell]) + part * own.mean
        given_shared = covariance.variance[hat.cell] + 2 * part * own.with_cell + part**2 * own.variance
        return Normal(mean, factor * float(whole @ covariance.shared @ whole + given_shared + rest))

    # The own deviation is the road's and that of the sampling: what was learned of their sum is divided.
    return HatEstimate(with_share(share, share * (1 - share) * hat.variance), with_share(1.0, 0.0))
