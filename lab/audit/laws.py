"""Exact laws on small inputs, of private selections and of private lists: every outcome with its probability, for all
neighbours.

A release with selections is run once for each path of outcomes. What is published for a path follows from a noisy
number; its log ratio under the two neighbours is at most that of the selected intervals, plus the distance of the
numbers before the noise over the scale, and reaches that far out. Probabilities are computed with 40 digits.

A list is a function of the noisy counts. It is tabulated by the code under audit: for each combination of noisy counts
around the threshold, where the last one on either side stands for all beyond. What the code requests of the noise gives
the probability of each combination.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np

from hatcast.lab.audit.events import Floats
from hatcast.lab.audit.family import AuditFinding
from hatcast.lab.audit.transcript import Integers, Leak
from hatcast.lab.survey.run import CellSelection
from hatcast.stream.estimators import ESTIMATORS, Estimate, Parameters, Users
from hatcast.stream.mechanisms import LaplaceNoise, Noise, Noisy
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy

DIGITS: Final = 40
ROUNDING: Final = Decimal("1e-25")  # of sums of a few numbers with 40 digits
COUNTS: Final = ((3, 3, 3, 2, 2, 2), (10, 6, 6, 6, 6, 6))
"""readings of users; with the first one as array length WRAPAROUND splits users, and LEVY has two bins and three"""
_STEPS: Final = 4  # of the grid up to U
EstimateOf = Callable[[Users, Parameters, Noise], Estimate | None]
Outcomes = dict[object, tuple[Decimal, tuple[int, int, float]]]
"""interval -> its probability, and what is asked of the noise then"""
SelectFrom = Callable[[Integers, list[int], int, tuple[Fraction, int], float, Noise], CellSelection]
_CELLS: Final = 2
_SLOTS: Final = 2
_MOST: Final = 2  # users of a cell and slot
_THRESHOLD: Final = 1
_NOISY: Final = tuple(range(_THRESHOLD - 2, _THRESHOLD + 4))
SELECTION: Final = "selection"
LISTS: Final = "private list, exact"
_ROUNDING: Final = 1e-12  # relative; of sums of floats


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

    def _other_kind(self, *_: Any, **__: Any) -> Any:
        raise Leak("a selection is followed by noise of another kind")  # than Laplace noise for one value

    gaussian = laplace_many = gaussian_many = _other_kind

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
class LargestLosses:
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


def losses_of(parameters: Parameters, counts: tuple[int, ...], estimate: EstimateOf) -> LargestLosses:
    """Return the losses over HATs of these users, whose means are 0, U/2 or U, and all changes of one user.

    estimate   the code under audit. Raises Leak.
    """
    upper = parameters.upper_bound_milli

    @cache
    def known(shares: tuple[int, ...]) -> Outcomes:
        sums = [count * upper * share // 2 for count, share in zip(counts, shares, strict=True)]
        return outcomes_of(Users(np.array(counts, np.int64), np.array(sums, np.int64)), parameters, estimate)

    with localcontext(Context(prec=DIGITS)):
        found = [
            pair_losses(known(shares), known((*shares[:user], other, *shares[user + 1 :])))
            for shares in product(range(3), repeat=len(counts))
            if list(shares[2:]) == sorted(shares[2:])  # not every one of the many
            for user in range(len(counts))
            for other in range(shares[user])
        ]
    return LargestLosses(max(selected for selected, _ in found), max(whole for _, whole in found), len(found))


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


class _Answers:
    """Noise with given answers, which keeps its requests: (value, distance, epsilon)."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        self._answers = iter(answers)
        self.requests: list[tuple[int, int, float]] = []

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`."""
        self.requests.append((value, distance, epsilon))
        return Noisy(next(self._answers), distance / epsilon)


def losses_of_lists(cap: int, epsilon: float, select_from: SelectFrom) -> tuple[float, int]:
    """Return the largest log ratio of the probabilities of a list, and the number of neighbours. Raises Leak.

    Counts are of two cells and two slots; neighbours differ by 1 in up to `cap` of them.

    select_from   the code under audit
    """
    numbers, cells = _CELLS * _SLOTS, [*range(_CELLS)]

    def selected(counts: tuple[int, ...], noise: LaplaceNoise) -> tuple[int, ...]:
        table = np.array(counts, np.int64).reshape(_CELLS, _SLOTS)
        # The annotation of `select_from` has all of `Noise`: a list needs Laplace noise alone.
        chosen = select_from(table, cells, cap, (Fraction(_THRESHOLD), 1), epsilon, noise)  # type: ignore[arg-type]
        return tuple(chosen.selected)

    tables: dict[tuple[int, ...], Floats] = {}
    for at in product(range(len(_NOISY)), repeat=numbers):
        chosen = selected((0,) * numbers, _Answers(tuple(_NOISY[each] for each in at)))
        tables.setdefault(chosen, np.zeros((len(_NOISY),) * numbers))[at] = 1.0

    def law(counts: tuple[int, ...]) -> Floats:
        noise = _Answers(counts)
        selected(counts, noise)
        if [value for value, _, _ in noise.requests] != [*counts]:
            raise Leak("a count is published without noise, or gets it twice")
        masses = [_masses(value, asked / distance) for value, distance, asked in noise.requests]
        return np.array([_probability(table, masses) for table in tables.values()])

    laws = {counts: np.log(law(counts)) for counts in product(range(_MOST + 2), repeat=numbers)}
    found = [float(np.abs(laws[one] - laws[other]).max()) for one, other in _neighbours(numbers, min(cap, numbers))]
    return max(found), len(found)


def _neighbours(numbers: int, cap: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for counts in product(range(_MOST + 1), repeat=numbers):
        for entered in product((0, 1), repeat=numbers):
            if 0 < sum(entered) <= cap:
                yield counts, tuple(count + more for count, more in zip(counts, entered, strict=True))


def _masses(value: int, rate: float) -> Floats:
    """Return the probability of each noisy count, discrete Laplace around `value`, with both tails at the ends."""
    p = np.exp(-rate)
    found = (1 - p) / (1 + p) * p ** np.abs(np.array(_NOISY, np.float64) - value)
    low, high = value - _NOISY[0], _NOISY[-1] - value
    found[0] = p**low / (1 + p) if low >= 0 else 1 - p ** (1 - low) / (1 + p)
    found[-1] = p**high / (1 + p) if high >= 0 else 1 - p ** (1 - high) / (1 + p)
    return np.asarray(found)


def _probability(table: Floats, masses: list[Floats]) -> float:
    for each in reversed(masses):
        table = table @ each
    return float(table)


def audit_selection(policy: Policy, estimate: EstimateOf) -> AuditFinding:
    """Compare the exact laws of a policy's selections, on all neighbours of small inputs.

    estimate   the code under audit
    """
    shares = ESTIMATORS[policy.estimator].shares
    whole, pairs, problem = 0.0, 0, None
    for counts in COUNTS:
        parameters = small(policy, counts)
        try:
            found = losses_of(parameters, counts, estimate)
        except Leak as leak:
            problem = leak.reason
            break
        pairs += found.pairs
        whole = max(whole, float(found.whole))
        allowed = parameters.epsilon * float(1 - shares["noise"])
        if float(found.selected) > allowed * (1 + float(ROUNDING)) + float(ROUNDING):
            problem = f"a selection loses {float(found.selected):.6g}, above its share {allowed:g}"
    if problem is None and whole > policy.epsilon * (1 + _ROUNDING):
        problem = f"a release loses {whole:.6g}, above the claim {policy.epsilon:g}"
    return AuditFinding(
        part=SELECTION,
        epsilon=policy.epsilon,
        neighbours="all neighbours of small HATs, exactly",
        pairs=pairs,
        loss=whole,
        problem=problem,
    )


def audit_lists(policy: Policy, cost: SelectionCost, select_from: SelectFrom) -> AuditFinding:
    """Compare the exact laws of private lists, on all neighbours of small counts.

    select_from   the code under audit
    """
    loss: float | None = None
    pairs, problem = 0, None
    try:
        loss, pairs = losses_of_lists(policy.max_hats_per_day, cost.epsilon, select_from)
    except Leak as leak:
        problem = leak.reason
    if loss is not None and loss > cost.epsilon * (1 + _ROUNDING):
        problem = f"a list loses {loss:.6g}, above the claim {cost.epsilon:g}"
    return AuditFinding(
        part=LISTS,
        epsilon=cost.epsilon,
        neighbours="all neighbours of small counts, exactly",
        pairs=pairs,
        loss=loss,
        problem=problem,
    )
