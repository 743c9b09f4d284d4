"""Audit of one family with a given noise: search, then samples of the worst neighbours, then the noise alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from hatcast.lab.audit.events import bound_of
from hatcast.lab.audit.families import Family, Neighbours
from hatcast.lab.audit.features import table_of
from hatcast.lab.audit.random_numbers import SeededNumbers
from hatcast.lab.audit.sampler import fit_of
from hatcast.lab.audit.search import TOLERANCE, search
from hatcast.lab.audit.transcript import Integers, Recorder, Request, Terms
from hatcast.stream.mechanisms import Distances, Noise

_MOST_TERMS: Final = 3  # requests of different terms whose noise is sampled
_OF_PAIRS: Final = 10  # neighbours of a whole day: one of so many, since a day has up to a hundred HATs
_OF_SHIFTS: Final = 40  # and of a horizon where each noisy number is shifted by itself
_OF_SAMPLES: Final = 3  # samples of the noise: one of so many of a release
_FEWEST: Final = 400  # below, no bin of the noise has enough


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about one part of a policy.

    part        such as `mean`
    epsilon, delta   of the claim
    neighbours  the worst found, in words
    pairs       neighbours compared, in the search or exactly
    loss        the largest loss of what is asked of the noise, or the exact one; None: neighbours differ elsewhere
    samples     releases drawn
    bound       lower bound of epsilon by samples; None: none were drawn
    problem     why the claim does not hold; None: no reason was found
    """

    part: str
    epsilon: float
    delta: float
    neighbours: str
    pairs: int
    loss: float | None
    samples: int
    bound: float | None
    problem: str | None

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


def audit_family(
    family: Family, effort: Effort, random: SeededNumbers, noise: Noise, progress: Callable[[int], None] | None = None
) -> Finding:
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
    if progress is not None:
        progress(1)
    return Finding(
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


def _bound(neighbours: Neighbours, family: Family, effort: Effort, random: SeededNumbers, noise: Noise) -> float:
    """Release one or the other, by the flip of a coin, and return the lower bound of epsilon."""
    sides = random.coins(effort.samples)
    samples = [(neighbours.one if side else neighbours.other)(noise) for side in sides.tolist()]
    return bound_of(table_of(samples), sides, family.claim.delta, effort.error / 2)


def _noise_problem(neighbours: Neighbours, effort: Effort, noise: Noise) -> str | None:
    """Draw the noise alone, as the release requests it; return why its distribution is wrong, None if it is right."""
    recorder = Recorder(noise)
    neighbours.one(recorder)
    requests = {each.terms: each for each in recorder.entries if isinstance(each, Request) and each.terms.l1}
    number = effort.samples // _OF_SAMPLES
    if number < _FEWEST:
        return None
    for terms, request in list(requests.items())[:_MOST_TERMS]:
        if terms.l2_squared == 0 and request.scale < terms.l1 / terms.epsilon * (1 - TOLERANCE):
            return f"the noise states a scale of {request.scale:g}, less than distance / epsilon"
        for value in (int(request.values[0]), int(request.values[0]) + terms.l1):
            fit = fit_of(_drawn(noise, terms, value, number), value, terms, request.scale)
            if fit.least < effort.error / (4 * _MOST_TERMS):
                return f"the noise does not fit its distribution (p = {fit.least:.1e})"
    return None


def _drawn(noise: Noise, terms: Terms, value: int, number: int) -> Integers:
    """Return [number] draws of `value` with noise."""
    if terms.kind == "laplace":
        drawn: Sequence[int] = [noise.laplace(value, terms.l1, terms.epsilon).value for _ in range(number)]
    elif terms.kind == "gaussian":
        drawn = [noise.gaussian(value, terms.l1, terms.epsilon, terms.delta).value for _ in range(number)]
    elif terms.l2_squared:
        values = np.full(number, value, np.int64)
        return noise.gaussian_many(values, Distances(terms.l1, terms.l2_squared), terms.epsilon, terms.delta).values
    else:
        return noise.laplace_many(np.full(number, value, np.int64), terms.l1, terms.epsilon).values
    return np.array(drawn, np.int64)
