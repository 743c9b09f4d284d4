"""Wider intervals for a city that differs from the model more than expected.    [docs/specification/tracker.md, 1]

The constants of one year covered only 89 to 92 % of another. The ratio of what was seen to what was expected is a
function of released numbers, so it costs nothing.
"""

from typing import Final

_WINDOW: Final = 200.0  # queries; older ones fade exponentially


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
