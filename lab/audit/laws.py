"""Private selections on small inputs: every outcome with its exact probability, for all neighbours.

A release with selections is run once for each path of outcomes. What is published for a path follows from a noisy
number; its log ratio under the two neighbours is at most that of the selected intervals, plus the distance of the
numbers before the noise over the scale, and reaches that far out. Probabilities are computed with 40 digits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Final

from hatcast.lab.audit.transcript import Integers, Leak
from hatcast.stream.estimators import ESTIMATORS, Estimate, Parameters, Users
from hatcast.stream.mechanisms import Distances, Noise, Noisy, NoisyVector
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy

import numpy as np  # isort: skip

DIGITS: Final = 40
ROUNDING: Final = Decimal("1e-25")
"""of sums of a few numbers with 40 digits"""
COUNTS: Final = ((3, 3, 3, 2, 2, 2), (10, 6, 6, 6, 6, 6))
"""readings of users; with the first one as array length WRAPAROUND splits users, and LEVY has two bins and three"""
_STEPS: Final = 4  # of the grid up to U

EstimateOf = Callable[[Users, Parameters, Noise], Estimate | None]
Outcomes = dict[object, tuple[Decimal, tuple[int, int, float]]]
"""interval -> its probability, and what is asked of the noise then"""


@dataclass
class Branch:
    """Noise that takes one path of selections: `path` as far as it goes, then the first possibility each time."""

    path: list[int]
    options: list[int] = field(default_factory=list)
    probability: Decimal = Decimal(1)
    asked: tuple[int, int, float] = (0, 0, 0.0)

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        """See `Noise.choose`."""
        probabilities = _probabilities_of(tuple(weights.tolist()), tuple(costs.tolist()), rate)
        chosen = [*probabilities][self._next(len(probabilities))]
        self.probability *= probabilities[chosen]
        return chosen

    def uniform(self, number: int) -> int:
        """See `Noise.uniform`."""
        self.probability /= number
        return self._next(number)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`."""
        self.asked = (value, distance, epsilon)
        return Noisy(value, 0.0)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """Selections are followed by Laplace noise. Raises Leak."""
        raise Leak("a selection is followed by noise of another kind")

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        """See `gaussian`. Raises Leak."""
        raise Leak("a selection is followed by noise of another kind")

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        """See `gaussian`. Raises Leak."""
        raise Leak("a selection is followed by noise of another kind")

    def _next(self, number: int) -> int:
        at = len(self.options)
        self.options.append(number)
        if at == len(self.path):
            self.path.append(0)
        return self.path[at]


@cache
def _probabilities_of(weights: tuple[int, ...], costs: tuple[int, ...], rate: Fraction) -> dict[int, Decimal]:
    """Return the probability of each candidate that has one."""
    exponent = -Decimal(rate.numerator) / Decimal(rate.denominator)
    terms = [w * (exponent * c).exp() for w, c in zip(weights, costs, strict=True)]
    whole = sum(terms)
    return {i: term / whole for i, term in enumerate(terms) if weights[i]}


def _branches(run: Callable[[Branch], None]) -> Iterator[Branch]:
    """Yield every path, depth first."""
    path: list[int] = []
    while True:
        branch = Branch(path)
        run(branch)
        yield branch
        while path and path[-1] == branch.options[len(path) - 1] - 1:
            path.pop()
        if not path:
            return
        path = [*path[:-1], path[-1] + 1]


@dataclass(frozen=True, slots=True)
class Losses:
    """Largest log ratios of probabilities over all neighbours: of a selected interval, and with the noise."""

    selected: Decimal
    whole: Decimal
    pairs: int


def has_selections(policy: Policy) -> bool:
    """Return whether the policy's estimator selects privately before it draws noise."""
    estimator = ESTIMATORS.get(policy.estimator)
    return estimator is not None and "noise" in estimator.shares and len(estimator.shares) > 1


def small(policy: Policy, counts: tuple[int, ...]) -> Parameters:
    """Return the policy's parameters with a grid of four steps, and the largest count as array length."""
    step = Decimal(policy.upper_bound) / _STEPS / 1000
    return replace(Parameters.of(policy), grid=Grid(step), array_length=counts[0])


def losses_of(parameters: Parameters, counts: tuple[int, ...], estimate: EstimateOf) -> Losses:
    """Return the losses over HATs of these users, whose means are 0, U/2 or U, and all changes of one user.

    estimate   the code under audit. Raises Leak.
    """
    with localcontext(Context(prec=DIGITS)):
        return _losses_of(parameters, counts, estimate)


def _losses_of(parameters: Parameters, counts: tuple[int, ...], estimate: EstimateOf) -> Losses:
    upper = parameters.upper_bound_milli

    @cache
    def known(shares: tuple[int, ...]) -> Outcomes:
        sums = [count * upper * share // 2 for count, share in zip(counts, shares, strict=True)]
        return outcomes_of(Users(np.array(counts, np.int64), np.array(sums, np.int64)), parameters, estimate)

    found = [
        pair_losses(known(shares), known((*shares[:user], other, *shares[user + 1 :])))
        for shares in product(range(3), repeat=len(counts))
        if list(shares[2:]) == sorted(shares[2:])  # not every one of the many
        for user in range(len(counts))
        for other in range(shares[user])
    ]
    return Losses(max(selected for selected, _ in found), max(whole for _, whole in found), len(found))


def outcomes_of(users: Users, parameters: Parameters, estimate: EstimateOf) -> Outcomes:
    """Return all outcomes of a release of these users. Raises ValueError for a context of too few digits."""
    found: Outcomes = {}
    intervals: list[object] = []

    def run(branch: Branch) -> None:
        released = estimate(users, parameters, branch)
        intervals.append(None if released is None else released.interval)

    for branch in _branches(run):
        probability, _ = found.get(intervals[-1], (Decimal(0), None))
        found[intervals[-1]] = probability + branch.probability, branch.asked
    if abs(sum((probability for probability, _ in found.values()), Decimal(-1))) > ROUNDING:
        raise ValueError("the outcomes of a selection do not have probability 1 together")
    return found


def pair_losses(one: Outcomes, other: Outcomes) -> tuple[Decimal, Decimal]:
    """Return the largest log ratios of one pair: of a selected interval, and with the noise. Raises Leak."""
    if one.keys() != other.keys():
        raise Leak("an interval has no probability under a neighbour")
    selected = whole = Decimal(0)
    for interval, (probability, (value, distance, epsilon)) in one.items():
        probability_then, (value_then, *same) = other[interval]
        if same != [distance, epsilon]:
            raise Leak("the noise depends on more than the interval")
        loss = abs((probability / probability_then).ln())
        apart = abs(value - value_then)
        if apart and not distance:
            raise Leak("a number without noise depends on data")
        added = apart * Decimal(epsilon) / distance if distance else Decimal(0)
        selected, whole = max(selected, loss), max(whole, loss + added)
    return selected, whole
