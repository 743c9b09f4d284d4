"""Audit of one family with a given noise: search, then samples of the worst neighbours, then the noise alone.

The noise is compared with the distribution that was asked for: bins, tails, and the set of outputs. Every integer must
be a possible output for every value: an output set that depends on data, as with floating-point noise [Mironov 2012],
shows data whatever epsilon is. So outputs modulo a small number are uniform too.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from scipy.special import bdtr, bdtrc, chdtrc, ndtr, ndtri

from hatcast.lab.audit.events import Floats, bound_of, table_of
from hatcast.lab.audit.hats import Family, Neighbours, RandomNumbers
from hatcast.lab.audit.search import TOLERANCE, search
from hatcast.lab.audit.transcript import Integers, NoiseRequest, Recorder, Terms
from hatcast.stream.mechanisms import Noise

_BINS: Final = 40
_LEAST: Final = 10.0  # expected number in a bin
_MODULUS: Final = 16
_FINE: Final = 50.0  # from this scale on, residues are uniform up to 1e-100
_WIDE: Final = 1000.0  # from this scale on, bins of the discrete Gaussian are those of the normal one up to 1e-6
_WIDEST: Final = 12  # scales to either side of a narrower one; beyond lie 1e-30
_TAIL: Final = 5e-4  # of either tail
_MOST_TERMS: Final = 3  # requests of different terms whose noise is sampled
_OF_PAIRS: Final = 10  # neighbours of a whole day: one of so many, since a day has up to a hundred HATs
_OF_SHIFTS: Final = 40  # and of a horizon where each noisy number is shifted by itself
_OF_SAMPLES: Final = 3  # samples of the noise: one of so many of a release
_FEWEST: Final = 400  # below, no bin of the noise has enough


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
    residues = np.bincount(outputs % _MODULUS, minlength=_MODULUS)
    uniform = _chi_square(residues, np.full(_MODULUS, len(outputs) / _MODULUS)) if scale >= _FINE else 1.0
    return Fit(_bins(noise, law), _tails(noise, law), uniform)


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


def _chi_square(observed: Integers, expected: Floats) -> float:
    if expected.min() < _LEAST:  # the approximation does not hold
        return 1.0
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about one part of a policy."""

    part: str  # such as `mean`
    # epsilon, delta: of the claim
    epsilon: float
    delta: float = 0.0
    neighbours: str  # the worst found, in words
    pairs: int  # neighbours compared, in the search or exactly
    # the largest loss of what is asked of the noise, or the exact one; None: neighbours differ elsewhere
    loss: float | None
    samples: int = 0  # releases drawn
    bound: float | None = None  # lower bound of epsilon by samples; None: none were drawn
    problem: str | None  # why the claim does not hold; None: no reason was found

    @property
    def margin(self) -> float | None:
        """The claim less the bound."""
        return None if self.bound is None else self.epsilon - self.bound


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers of samples and pairs for one family. error: probability of a false alarm, at most."""

    samples: int
    pairs: int
    error: float


def audit_family(family: Family, effort: Effort, random: RandomNumbers, noise: Noise) -> AuditFinding:
    """Audit one family. The verdict is a false alarm with probability `effort.error` at most.

    noise   what the releases draw from: the system's, or a mutant
    """
    share = 1 if family.sample_divisor else _OF_SHIFTS if family.is_alone else _OF_PAIRS
    pairs = -(-effort.pairs // share)
    found = search(family, pairs, random, noise)
    neighbours, problem = found.neighbours, found.leak
    loss = None if found.leak else found.share * family.claim.epsilon
    if problem is None and found.share > 1 + TOLERANCE:
        problem = f"requests of noise lose {loss:.6g}, above the claim {family.claim.epsilon:g}"
    bound, samples = None, 0
    if problem is None and family.sample_divisor:
        samples = -(-effort.samples // family.sample_divisor)
        bound = _bound(neighbours, family, replace(effort, samples=samples), random, noise)
        if bound > family.claim.epsilon:
            problem = f"samples show an epsilon of at least {bound:.4g}, above the claim {family.claim.epsilon:g}"
        problem = problem or _noise_problem(neighbours, effort, noise)
    return AuditFinding(
        part=family.name,
        epsilon=family.claim.epsilon,
        delta=family.claim.delta,
        neighbours=neighbours.name,
        pairs=found.pairs,
        loss=loss,
        samples=samples,
        bound=bound,
        problem=problem,
    )


def _bound(neighbours: Neighbours, family: Family, effort: Effort, random: RandomNumbers, noise: Noise) -> float:
    """Release one or the other, by the flip of a coin, and return the lower bound of epsilon."""
    sides = random.coins(effort.samples)
    samples = [(neighbours.one if side else neighbours.other)(noise) for side in sides.tolist()]
    return bound_of(table_of(samples), sides, family.claim.delta, effort.error / 2)


def _noise_problem(neighbours: Neighbours, effort: Effort, noise: Noise) -> str | None:
    """Draw the noise alone, as the release requests it; return why its distribution is wrong, None if it is right."""
    recorder = Recorder(noise)
    neighbours.one(recorder)
    requests = {each.terms: each for each in recorder.entries if isinstance(each, NoiseRequest) and each.terms.l1}
    number = effort.samples // _OF_SAMPLES
    if number < _FEWEST:
        return None
    for terms, request in list(requests.items())[:_MOST_TERMS]:
        if terms.l2_squared == 0 and request.scale < terms.l1 / terms.epsilon * (1 - TOLERANCE):
            return f"the noise states a scale of {request.scale:g}, less than distance / epsilon"
        for value in (int(request.values[0]), int(request.values[0]) + terms.l1):
            drawn = terms.requested(noise, np.full(number, value, np.int64)).drawn
            fit = fit_of(drawn, value, terms, request.scale)
            if fit.least < effort.error / (4 * _MOST_TERMS):
                return f"the noise does not fit its distribution (p = {fit.least:.1e})"
    return None
