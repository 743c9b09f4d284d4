"""Record the noise that one input requests, and replay it for its neighbour.    [Cebere et al., arXiv 2602.17454]

The neighbour gets the outputs of the first run. If then all that is published is the same, byte for byte, nothing but
these outputs depends on data. The privacy loss is that of the requests: how far apart the numbers are that the noise is
added to, over the distance that the noise was asked for. A request of the neighbour that has another kind, distance or
epsilon shows data that nothing has paid for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.audit.hats import Neighbours
from hatcast.stream.mechanisms import Distances, Noise, Noisy, NoisyVector

Integers = NDArray[np.int64]
_BATCH: Final = "many"
_ROUNDED: Final = 1e-9  # relative; of sums of deltas


class Leak(Exception):
    """Raised if neighbours differ elsewhere than in the numbers that get noise. reason: where, without a number."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Terms:
    """Arguments of a request for noise, without its values: equal for neighbours."""

    kind: str  # `laplace`, `gaussian`; with `many`, requests with the same terms are one vector
    # l1, l2_squared: distances in steps; l2_squared is 0 for Laplace noise
    l1: int
    l2_squared: int
    epsilon: float
    delta: float

    def requested(self, noise: Noise, values: Integers) -> "NoiseRequest":
        """Request this noise for values, of noise for one value each time."""
        match self.kind:
            case "laplace many":
                return NoiseRequest(self, values, *noise.laplace_many(values, self.l1, self.epsilon))
            case "gaussian many":
                distances = Distances(self.l1, self.l2_squared)
                return NoiseRequest(self, values, *noise.gaussian_many(values, distances, self.epsilon, self.delta))
            case "laplace":
                drawn = [noise.laplace(value, self.l1, self.epsilon) for value in values.tolist()]
            case _:
                drawn = [noise.gaussian(value, self.l1, self.epsilon, self.delta) for value in values.tolist()]
        return NoiseRequest(self, values, np.array([each.value for each in drawn], np.int64), drawn[0].scale)


@dataclass(frozen=True, slots=True, eq=False)
class NoiseRequest:
    """A request of noise, and its answer."""

    terms: Terms
    values: Integers
    drawn: Integers
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class SelectionDraw:
    """A private selection, seen as a draw of one of sum(weights) positions, in the order of the candidates.

    An integer that is drawn uniformly from the chosen weight belongs to it: see `quantile.private_quantile`.
    """

    weights: Integers
    costs: Integers
    rate: Fraction
    position: int


class _Noise(ABC):
    """Noise whose requests are all answered in one place."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`."""
        return self._one(Terms("laplace", distance, 0, epsilon, 0.0), value)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """See `Noise.gaussian`."""
        return self._one(Terms("gaussian", distance, distance**2, epsilon, delta), value)

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        """See `Noise.laplace_many`."""
        return self._many(Terms("laplace " + _BATCH, distance, 0, epsilon, 0.0), values)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        """See `Noise.gaussian_many`."""
        return self._many(Terms("gaussian " + _BATCH, distances.l1, distances.l2_squared, epsilon, delta), values)

    def _one(self, terms: Terms, value: int) -> Noisy:
        found = self._answer(terms, np.array([value], np.int64))
        return Noisy(int(found.drawn[0]), found.scale)

    def _many(self, terms: Terms, values: Integers) -> NoisyVector:
        found = self._answer(terms, values.astype(np.int64))
        return NoisyVector(found.drawn.copy(), found.scale)

    @abstractmethod
    def _answer(self, terms: Terms, values: Integers) -> NoiseRequest: ...


@dataclass
class Recorder(_Noise):
    """Noise that records each request and its answer."""

    noise: Noise
    entries: list[NoiseRequest | SelectionDraw] = field(default_factory=list)
    chosen: int | None = None

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        """See `Noise.choose`."""
        self.chosen = self.noise.choose(weights, costs, rate)
        position = int(weights[: self.chosen].sum())
        self.entries.append(SelectionDraw(weights.copy(), costs.copy(), rate, position))
        return self.chosen

    def uniform(self, number: int) -> int:
        """See `Noise.uniform`. It must follow a selection, and draw from the chosen weight."""
        last = self.entries[-1] if self.entries else None
        if not isinstance(last, SelectionDraw) or self.chosen is None or int(last.weights[self.chosen]) != number:
            raise Leak("an integer is drawn that belongs to no selection")
        drawn = self.noise.uniform(number)
        self.entries[-1] = SelectionDraw(last.weights, last.costs, last.rate, last.position + drawn)
        self.chosen = None
        return drawn

    def _answer(self, terms: Terms, values: Integers) -> NoiseRequest:
        found = terms.requested(self.noise, values)
        self.entries.append(found)
        return found


@dataclass
class ReplayedNoise(_Noise):
    """Noise that repeats recorded answers, and keeps how far the noise is moved for that."""

    entries: Sequence[NoiseRequest | SelectionDraw]
    shift: Integers | None = None  # [numbers] is added to the answers, in the order of the requests; None: 0 everywhere
    at: int = 0
    numbers: int = 0  # answered so far
    moved: dict[tuple[Terms, int], list[Integers]] = field(default_factory=dict)
    log_ratio: float = 0.0
    selected: float = 0.0  # sum of the largest log ratios of selections whose candidates have the same weights
    rest: tuple[int, int] | None = None

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        """See `Noise.choose`."""
        found = self._next()
        if not isinstance(found, SelectionDraw) or found.rate != rate or found.weights.sum() != weights.sum():
            raise Leak("a private selection has other candidates or another rate")
        ends = np.cumsum(weights)
        index = int(np.searchsorted(ends, found.position, side="right"))
        before = int(np.searchsorted(np.cumsum(found.weights), found.position, side="right"))
        totals = _log_total(weights, costs, rate) - _log_total(found.weights, found.costs, rate)
        if np.array_equal(weights, found.weights):
            ratios = float(rate) * (costs - found.costs)[weights > 0] + totals
            self.selected += float(np.abs(ratios).max())
        else:
            self.log_ratio += float(rate) * float(costs[index] - found.costs[before]) + totals
        self.rest = found.position - int(ends[index] - weights[index]), int(weights[index])
        return index

    def uniform(self, number: int) -> int:
        """See `Noise.uniform`."""
        if self.rest is None or self.rest[1] != number:
            raise Leak("an integer is drawn that belongs to no selection")
        drawn, self.rest = self.rest[0], None
        return drawn

    @property
    def loss(self) -> float:
        """The largest log ratio of probabilities, over the outputs of all noise.

        Of selections whose candidates have other weights for the neighbour it is the log ratio of the recorded one.
        Gaussian noise has no largest one: then it is epsilon times the part of the distance that is used.
        """
        used = 0.0
        for (terms, _), moves in self.moved.items():
            moved = np.concatenate(moves).astype(object)
            l1, squared = int(np.abs(moved).sum()), int((moved * moved).sum())
            if terms.l1 == 0:
                if l1:
                    raise Leak("a number without noise depends on data")
                continue
            share = float(Fraction(l1, terms.l1))
            if terms.l2_squared:
                share = max(share, math.sqrt(squared / terms.l2_squared))
            used += share * terms.epsilon
        return used + self.selected + abs(self.log_ratio)

    @property
    def delta(self) -> float:
        """The sum of the deltas of the requests whose numbers differ."""
        return math.fsum(terms.delta for (terms, _), moves in self.moved.items() if any(map(np.any, moves)))

    def _answer(self, terms: Terms, values: Integers) -> NoiseRequest:
        found = self._next()
        if not isinstance(found, NoiseRequest) or found.terms != terms or len(found.values) != len(values):
            raise Leak("a request of noise has another distance, epsilon or number of values")
        group = 0 if _BATCH in terms.kind else self.at
        moved = values - found.values
        if self.shift is not None:
            shift = self.shift[self.numbers : self.numbers + len(moved)]
            found, moved = replace(found, drawn=found.drawn + shift), moved - shift
        self.numbers += len(moved)
        self.moved.setdefault((terms, group), []).append(moved)
        return found

    def _next(self) -> NoiseRequest | SelectionDraw:
        if self.at == len(self.entries):
            raise Leak("more noise is drawn")
        self.at += 1
        return self.entries[self.at - 1]


def _log_total(weights: Integers, costs: Integers, rate: Fraction) -> float:
    """Return ln of the sum of weights exp(-rate costs)."""
    positive = weights > 0
    least = int(costs[positive].min())
    terms = weights[positive] * np.exp(-float(rate) * (costs[positive] - least))
    return math.log(math.fsum(terms.tolist())) - float(rate) * least


def replayed(neighbours: Neighbours, noise: Noise, delta: float) -> float:
    """Return the privacy loss between two neighbours, from their requests for noise. Raises Leak.

    noise   answers the first run
    delta   of the claim: requests with larger ones are a leak
    """
    recorder = Recorder(noise)
    published = neighbours.one(recorder)
    replay = ReplayedNoise(recorder.entries)
    if neighbours.other(replay) != published:
        raise Leak("what is published differs although all noisy numbers are the same")
    if replay.at != len(recorder.entries):
        raise Leak("less noise is drawn")
    if replay.delta > delta * (1 + _ROUNDED):
        raise Leak("requests of noise have a larger delta than is claimed")
    return replay.loss
