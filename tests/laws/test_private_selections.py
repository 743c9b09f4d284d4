"""Estimators that select first: on small HATs every outcome of the selection is tried, with its exact chance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from hatcast.stream.estimators import ESTIMATORS, Parameters, array_averaging
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts, Integers, wraparound
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.mechanisms.grid import Grid
from tests.support import UPPER_BOUND, ScalarNoise, as_users

ROUNDING = Decimal("1e-20")  # of the tests' own arithmetic, in 28 digits
GRID = Grid(Decimal("16.25"))  # four steps up to U
SELECTING = [
    ("levy", None, 0.5),
    ("levy", None, 2.0),
    ("quantile", "fixed", 1.0),
    ("quantile", "epsilon_dependent", 1.0),
    ("quantile", "epsilon_dependent", 6.0),
]
HATS = {"short": [3, 3, 3, 2, 2, 2], "long": [10, 6, 6, 6, 6, 6]}
"""With the first user's count as the array length WRAPAROUND splits users, and LEVY has two bins and three."""
Sums = tuple[int, ...]


@cache
def chances_of(weights: tuple[int, ...], costs: tuple[int, ...], rate: Fraction) -> dict[int, Decimal]:
    """What can be selected -> with which chance."""
    exponent = -Decimal(rate.numerator) / Decimal(rate.denominator)
    terms = [w * (exponent * c).exp() for w, c in zip(weights, costs, strict=True)]
    whole = sum(terms)
    return {i: term / whole for i, term in enumerate(terms) if weights[i]}


@dataclass
class Branch(ScalarNoise):
    """Noise that takes one branch of all selections: `path` as far as it goes, then the first possibility each time."""

    path: list[int]
    options: list[int] = field(default_factory=list)
    chance: Decimal = Decimal(1)
    asked: tuple[int, int, float] = (0, 0, 0.0)

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        chances = chances_of(tuple(weights.tolist()), tuple(costs.tolist()), rate)
        chosen = [*chances][self._next(len(chances))]
        self.chance *= chances[chosen]
        return chosen

    def uniform(self, number: int) -> int:
        self.chance /= number
        return self._next(number)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.asked = (value, distance, epsilon)
        return Noisy(value, 0.0)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError

    def _next(self, number: int) -> int:
        at = len(self.options)
        self.options.append(number)
        if at == len(self.path):
            self.path.append(0)
        return self.path[at]


def branches(run: Callable[[Branch], None]) -> Iterator[Branch]:
    """Every branch, depth first."""
    path: list[int] = []
    while True:
        branch = Branch(path)
        run(branch)
        yield branch
        while path and path[-1] == branch.options[len(path) - 1] - 1:
            path.pop()
        if not path:
            return
        path[-1] += 1
        path = [*path]


Outcomes = dict[object, tuple[Decimal, tuple[int, int, float]]]
"""interval -> its chance, and what noise is put on"""


def outcomes(name: str, counts: list[int], sums: Sums, parameters: Parameters) -> Outcomes:
    found: Outcomes = {}
    users = as_users(counts, sums)
    intervals: list[object] = []

    def run(branch: Branch) -> None:
        estimate = ESTIMATORS[name].estimate(users, parameters, branch)
        assert estimate is not None
        intervals.append(estimate.interval)

    for branch in branches(run):
        chance, _ = found.get(intervals[-1], (Decimal(0), None))
        found[intervals[-1]] = chance + branch.chance, branch.asked
    assert abs(sum((chance for chance, _ in found.values()), Decimal(-1))) < ROUNDING
    return found


def losses(one: Outcomes, other: Outcomes) -> tuple[Decimal, Decimal]:
    """The greatest log-ratio of chances of an interval; of an interval and any noisy value with it."""
    assert one.keys() == other.keys(), "an interval has no chance for a neighbour"
    selected = whole = Decimal(0)
    for interval, (chance, (value, distance, epsilon)) in one.items():
        chance_then, (value_then, *same) = other[interval]
        assert same == [distance, epsilon], "the noise tells more than the interval"
        loss = abs((chance / chance_then).ln())
        # Two Laplace distributions of one scale differ by exp(how far apart / scale) at most, and far out by just that.
        apart = abs(value - value_then) * Decimal(epsilon) / distance if distance else Decimal(abs(value - value_then))
        selected, whole = max(selected, loss), max(whole, loss + apart)
    return selected, whole


def worst_losses(name: str, counts: list[int], parameters: Parameters) -> tuple[Decimal, Decimal]:
    """Over all HATs where users' means are 0, U/2 or U, and all neighbours in which one becomes another."""

    @cache
    def known(shares: Sums) -> Outcomes:
        sums = tuple(count * UPPER_BOUND * share // 2 for count, share in zip(counts, shares, strict=True))
        return outcomes(name, counts, sums, parameters)

    found = [
        losses(known(shares), known((*shares[:user], other, *shares[user + 1 :])))
        for shares in product(range(3), repeat=len(counts))
        if list(shares[2:]) == sorted(shares[2:])  # not every one of the many
        for user in range(len(counts))
        for other in range(shares[user])
    ]
    return max(loss for loss, _ in found), max(loss for _, loss in found)


def parameters_of(counts: list[int], grouping: str, quantiles: str | None, epsilon: float) -> Parameters:
    return Parameters(UPPER_BOUND, GRID, epsilon, grouping, counts[0], quantiles)


@pytest.mark.parametrize("counts", HATS.values(), ids=HATS)
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize(("name", "quantiles", "epsilon"), SELECTING)
def test_neighbours_select_and_publish_within_their_shares_of_epsilon(
    name: str, quantiles: str | None, epsilon: float, grouping: str, counts: list[int]
) -> None:
    selected, whole = worst_losses(name, counts, parameters_of(counts, grouping, quantiles, epsilon))
    share = 1 - ESTIMATORS[name].shares["noise"]
    allowed = Decimal(epsilon) * share.numerator / share.denominator
    assert selected <= allowed + ROUNDING
    assert whole <= Decimal(epsilon) + ROUNDING


def one_array_a_user(counts: Counts, array_length: int) -> Arrays:
    """The mutant: WRAPAROUND with the papers' constants, which are those of BESTFIT."""
    return replace(wraparound(counts, array_length), split=1)


def quantile_losses() -> tuple[Decimal, Decimal]:
    """Of two neighbours: one user carries two array means from just below those of the rest to far above.

    In steps the means are 9 9 10 10 10, then 17 17 10 10 10.
    """
    counts = HATS["short"]
    parameters = parameters_of(counts, "wraparound", "epsilon_dependent", 1.0)
    finer = replace(parameters, grid=Grid(Decimal("2.5")))
    rest = [3 * 24_375] * 3 + [2 * 32_500]
    one, other = (
        outcomes("quantile", counts, (*rest, sum_of_user, 2 * 32_500), finer) for sum_of_user in (0, 2 * UPPER_BOUND)
    )
    return losses(one, other)


def test_wraparound_with_the_papers_constants_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    levy = parameters_of(HATS["long"], "wraparound", None, 1.0)
    half, whole = Decimal(1) / 2, Decimal(1)
    selected, published = quantile_losses()
    assert selected <= half
    assert published <= whole
    monkeypatch.setattr(array_averaging, "GROUPINGS", {"wraparound": one_array_a_user})
    for found in (worst_losses("levy", HATS["long"], levy), quantile_losses()):
        assert found[0] > half
        assert found[1] > whole
