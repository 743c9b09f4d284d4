"""The noise as drawn, against the distribution that was asked for: bins, tails, and the set of outputs.

Every integer must be a possible output for every value: an output set that depends on data, as with floating-point
noise [Mironov 2012], shows data whatever epsilon is. So outputs modulo a small number are uniform too.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, chdtrc, ndtr, ndtri

from hatcast.lab.audit.transcript import Integers, Terms

Floats = NDArray[np.float64]
_BINS: Final = 40
_LEAST: Final = 10.0  # expected number in a bin
_MODULUS: Final = 16
_FINE: Final = 50.0  # from this scale on, residues are uniform up to 1e-100
_WIDE: Final = 1000.0  # from this scale on, bins of the discrete Gaussian are those of the normal one up to 1e-6
_WIDEST: Final = 12  # scales to either side of a narrower one; beyond lie 1e-30
_TAIL: Final = 5e-4  # of either tail


@dataclass(frozen=True, slots=True)
class Fit:
    """p-values of a sample of noise: of the bins, of both tails, and of the residues (1 if the scale is too small)."""

    bins: float
    tails: float
    residues: float

    @property
    def least(self) -> float:
        """The smallest p-value, times their number."""
        return min(1.0, 3 * min(self.bins, self.tails, self.residues))


@dataclass(frozen=True, slots=True)
class _Law:
    """Discrete Laplace or Gaussian distribution. scale: in steps"""

    is_gaussian: bool
    scale: float

    def below(self, x: Integers) -> Floats:
        """Return P(X <= x)."""
        if not self.is_gaussian:
            p = math.exp(-1 / self.scale)
            size = np.abs(x).astype(np.float64)
            return np.asarray(np.where(x < 0, p**size / (1 + p), 1 - p ** (size + 1) / (1 + p)), np.float64)
        if self.scale >= _WIDE:
            return np.asarray(ndtr((x + 0.5) / self.scale), np.float64)
        furthest = math.ceil(_WIDEST * self.scale)
        terms = np.exp(-0.5 * (np.arange(-furthest, furthest + 1) / self.scale) ** 2)
        cumulative = np.cumsum(terms / terms.sum())
        return np.asarray(cumulative[np.clip(x + furthest, 0, 2 * furthest)], np.float64)

    def near(self, probability: Floats) -> Integers:
        """Return integers near the quantiles of the continuous distribution."""
        if self.is_gaussian:
            return np.asarray(np.rint(self.scale * ndtri(probability)), np.int64)
        tails = np.minimum(probability, 1 - probability)
        return np.asarray(np.rint(np.where(probability < 0.5, 1, -1) * self.scale * np.log(2 * tails)), np.int64)


def fit_of(outputs: Integers, value: int, terms: Terms, scale: float) -> Fit:
    """Return how well outputs fit a value with the noise of these terms.

    scale   as the noise states it, which must be at least distance / epsilon for Laplace noise
    """
    law, noise = _Law(terms.l2_squared > 0, scale), outputs - value
    return Fit(_bins(noise, law), _tails(noise, law), _residues(outputs) if scale >= _FINE else 1.0)


def _bins(noise: Integers, law: _Law) -> float:
    ends = np.unique(law.near(np.arange(1, _BINS) / _BINS))
    probabilities = np.diff([0.0, *law.below(ends).tolist(), 1.0])
    observed = np.bincount(np.searchsorted(ends, noise, side="left"), minlength=len(ends) + 1)
    return _chi_square(observed, probabilities * len(noise))


def _tails(noise: Integers, law: _Law) -> float:
    """Return the p-value of the number of draws in the tails, too many or too few."""
    border = max(1, int(law.near(np.array([1 - _TAIL]))[0]))
    below, above = law.below(np.array([-border, border - 1]))
    outside, probability = int((np.abs(noise) >= border).sum()), float(below + 1 - above)
    more = float(bdtrc(outside - 1, len(noise), probability)) if outside else 1.0
    return min(1.0, 2 * min(more, float(bdtr(outside, len(noise), probability))))


def _residues(outputs: Integers) -> float:
    observed = np.bincount(outputs % _MODULUS, minlength=_MODULUS)
    return _chi_square(observed, np.full(_MODULUS, len(outputs) / _MODULUS))


def _chi_square(observed: Integers, expected: Floats) -> float:
    if expected.min() < _LEAST:  # the approximation does not hold
        return 1.0
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))
