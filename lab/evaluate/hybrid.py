"""Compare the hybrid model with its two baselines: by the lemmas, and by simulated releases.    [H, Figures 1 to 5, 7,
8a]

Values are parts of U. Each user's mean is one of two values, with the given deviation: mean squared errors depend on
nothing else, and the number of users with the higher value is a single draw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np

from hatcast.lab.evaluate.inputs import SampledHat
from hatcast.lab.evaluate.lemmas import GaussianNoise, amplified, laplace_setting, ratios_of
from hatcast.lab.evaluate.simulation import Draws, Floats
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HybridEstimator, HybridParameters, Setting, Spread
from hatcast.stream.mechanisms.grid import Grid

DEFAULT: Final = "kvh,pwh"
SIGMAS: Final = "0.109,0.289,0.456"  # Beta(10, 10), Beta(1, 1) and Beta(0.1, 0.1), as in the paper
DELTA: Final = 1e-7
COALITIONS: Final = (0.0, 0.1, 0.5, 0.9)  # shares of the local users, who share their noise with each other
LINE_POINTS: Final = 201
AXES: Final = MappingProxyType(
    {
        "users": (1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5),
        "share": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5),
        "epsilon": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    }
)
"""Fields of `Case` that are varied, one at a time, and the values that are simulated."""

_LEAST_USERS: Final = 2  # one of each group
_UPPER_MILLI: Final = 1_000_000
_GRID: Final = Grid(Decimal("0.000001"))  # so fine that the wider noise for rounding is negligible
_STEPS: Final = _GRID.floor(_UPPER_MILLI)  # of U
SHARES: Final = (0.001, 0.1)
EPSILONS: Final = (0.1, 10.0)
_POINTS: Final = 41  # along each side


# Each group's own mean, weighed by its share: the mean of all users from `groups = "separate"`. No bias.
_SEPARATE: Final = HybridEstimator("separate", lambda setting: setting.share)
_CONTENDERS: Final[Mapping[str, HybridEstimator]] = MappingProxyType({**HYBRID_ESTIMATORS, _SEPARATE.name: _SEPARATE})


@dataclass(frozen=True, slots=True)
class Case:
    """n users, of whom a share c is central; one epsilon for all. Deviations and gap are parts of U."""

    users: float
    share: float
    epsilon: float
    sigma: float
    sigma_local: float
    gap: float = 0.0

    def at(self, axis: str, x: float) -> "Case":
        """Return the case with another value on an axis."""
        return replace(self, **{axis: x})

    @property
    def has_both_groups(self) -> bool:
        """True if both groups have at least one user."""
        return self.share * self.users >= 1 and (1 - self.share) * self.users >= 1

    @property
    def whole(self) -> "Case":
        """The nearest case with integer numbers of users, which can be simulated."""
        users = round(self.users)
        central = min(max(round(self.share * users), 1), users - 1)
        return replace(self, users=users, share=central / users)

    @property
    def setting(self) -> Setting:
        """The case for the lemmas, in parts of U."""
        alike = laplace_setting(self.users, self.share, 1.0, self.epsilon, self.sigma**2)
        return replace(alike, local_variance=self.sigma_local**2, gap=self.gap)


@dataclass(frozen=True, slots=True)
class Point:
    """Relative improvement R over the better baseline at one x: by the lemmas, and simulated."""

    x: float
    theory: float
    over_worse: float  # r over the worse baseline, by the lemmas
    simulated: float
    standard_error: float  # of `simulated`


@dataclass(frozen=True, slots=True)
class Curve:
    """One estimator at one sigma along one axis. line: (x, R, r) by the lemmas; points: simulated."""

    axis: str
    estimator: str
    sigma: float
    line: tuple[tuple[float, float, float], ...]
    points: tuple[Point, ...]


def parse_estimators(text: str) -> list[HybridEstimator]:
    """Parse a list of estimators' names. Raises HatcastError."""
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in _CONTENDERS]
    if unknown:
        fix = name_fix(unknown[0], _CONTENDERS)
        raise HatcastError(f"--estimators: {unknown[0]!r} is not an estimator of the hybrid model; {fix}")
    return [_CONTENDERS[name] for name in dict.fromkeys(names)]


def parse_sigmas(text: str) -> list[float]:
    """Parse a list of deviations. Raises HatcastError."""
    try:
        found = list(dict.fromkeys(float(each) for each in text.split(",")))
    except ValueError:
        found = []
    if not found or not all(0 <= each <= 0.5 for each in found):
        raise HatcastError(f"--sigma: {text!r} are not deviations; write parts of U from 0 to 0.5, such as {SIGMAS}")
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """The case of a recorded HAT, and R and r of every estimator in it, by the lemmas."""

    name: str  # of recording and HAT
    case: Case
    upper_bound: float
    unit: str  # of its values; upper_bound: U in it
    ratios: Mapping[str, tuple[float, float]]

    @property
    def central(self) -> int:
        """T, the number of central users."""
        return round(self.case.users * self.case.share)

    @property
    def local(self) -> int:
        """L, the number of local users."""
        return round(self.case.users) - self.central


def measured(hat: SampledHat, name: str, share: float, epsilon: float) -> Measured:
    """Return the case of a recorded HAT, if this share of its users were central. Raises HatcastError.

    sigma is the standard deviation of its users' means. Which users would trust is not known, so groups are alike.
    """
    means = hat.means(Draws(0), 1)[0] / hat.upper_bound_milli
    if len(means) < _LEAST_USERS:
        raise HatcastError(f"{name} has {len(means)} users: name a --hat with {_LEAST_USERS} or more")
    sigma = float(means.std())
    case = Case(len(means), share, epsilon, sigma, sigma).whole
    ratios = {each.name: ratios_of(each, case.setting) for each in _CONTENDERS.values()}
    return Measured(name, case, hat.upper_bound_milli / 1000, hat.unit, ratios)


def check_cases(cases: Sequence[Case]) -> None:
    """Check that users' means can be within [0, U] and that both groups have users. Raises HatcastError."""
    for case in cases:
        if max(case.sigma, case.sigma_local) + abs(case.gap) / 2 > 0.5:
            raise HatcastError(f"--gap: with sigma {case.sigma:g} users' means would leave [0, U]; use less of either")
        if not case.has_both_groups:
            raise HatcastError("--share: leaves one group without users; use more --users or another share")


def curves(
    cases: Sequence[Case],
    estimators: Sequence[HybridEstimator],
    runs: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Curve]:
    """Return the curves of every axis through every case. Calls `progress` after each simulated point."""
    draws = Draws(seed)
    found = []
    for axis, case in product(AXES, cases):
        points: dict[str, list[Point]] = {each.name: [] for each in estimators}
        for x in AXES[axis]:
            here = case.at(axis, x)
            if here.has_both_groups:
                here = here.whole  # integer numbers of users, so x may differ from that of the axis
                squares, x_here = squared_errors(here, estimators, runs, draws), getattr(here, axis)
                for each in estimators:
                    ratios = *ratios_of(each, here.setting), *_ratio(squares, each.name)
                    points[each.name].append(Point(x_here, *ratios))
            progress(1)
        found += [
            Curve(axis, each.name, case.sigma, tuple(_line(axis, case, each)), tuple(points[each.name]))
            for each in estimators
        ]
    return found


def _line(axis: str, case: Case, estimator: HybridEstimator) -> list[tuple[float, float, float]]:
    xs = np.geomspace(AXES[axis][0], AXES[axis][-1], LINE_POINTS).tolist()
    places = ((x, here) for x in xs if (here := case.at(axis, x)).has_both_groups)
    return [(x, *ratios_of(estimator, here.setting)) for x, here in places]


def squared_errors(case: Case, estimators: Sequence[HybridEstimator], runs: int, draws: Draws) -> dict[str, Floats]:
    """Return [runs] squared errors against the mean of all users, in parts of U, of these and of both baselines.

    As `stream.hybrid.estimate` does: the exact central mean on the grid, with noise for the widened distance; reports
    with their own noise; the blend rounded to the grid.
    """
    users, central = round(case.users), round(case.users * case.share)
    local = users - central
    spread = Spread(*(round(each * _UPPER_MILLI) for each in (case.sigma, case.sigma_local, case.gap)))
    parameters = HybridParameters(_UPPER_MILLI, _GRID, case.epsilon, case.epsilon, spread)
    middle, half_gap = _STEPS / 2, case.gap * _STEPS / 2
    means = [
        middle + shift + sigma * _STEPS * (2 * draws.binomial(number, runs) / number - 1)
        for number, sigma, shift in ((central, case.sigma, -half_gap), (local, case.sigma_local, half_gap))
    ]
    target = (central * means[0] + local * means[1]) / users
    scale = _GRID.distance(parameters.sensitivity(central)) / case.epsilon
    noisy = np.rint(means[0]) + draws.laplace_sum(scale, 1, runs)
    reports = means[1] + draws.laplace_sum(parameters.local_scale, local, runs) / local
    everyone = target + draws.laplace_sum(parameters.local_scale, users, runs) / users
    baselines = [HYBRID_ESTIMATORS[name] for name in ("tcm_only", "full_lm")]
    found = {}
    for each in (*baselines, *estimators):
        weight = float(each.weight(parameters.setting(central, local)))
        blend = everyone if each.all_local else weight * noisy + (1 - weight) * reports
        found[each.name] = ((np.rint(blend) - target) / _STEPS) ** 2
    return found


def _ratio(squares: dict[str, Floats], name: str) -> tuple[float, float]:
    """Return the simulated R and its standard error (delta method)."""
    best = min((squares["tcm_only"], squares["full_lm"]), key=lambda each: float(each.mean()))
    own = squares[name]
    ratio = float(best.mean() / own.mean())
    deviations = best / best.mean() - own / own.mean()
    return ratio, ratio * float(deviations.std(ddof=1)) / len(deviations) ** 0.5


@dataclass(frozen=True, slots=True)
class Amplification:
    """Epsilon against viewers of the output, by central share. coalition: its share of the local users."""

    coalition: float
    points: tuple[tuple[float, float], ...]


def amplifications(case: Case) -> list[Amplification]:
    """Return the amplifications of KVH with Gaussian noise for (case.epsilon, DELTA), over `share`.    [H, Figure 7]"""
    noise = GaussianNoise(1.0, case.epsilon, DELTA)
    places = [here.whole for share in AXES["share"] if (here := case.at("share", share)).has_both_groups]
    kvh = HYBRID_ESTIMATORS["kvh"]
    found = []
    for part in COALITIONS:
        points = []
        for here in places:
            central = round(here.share * here.users)
            local = round(here.users) - central
            setting = noise.setting(central, local, case.sigma**2)
            public = amplified(noise, setting, float(kvh.weight(setting)), int(part * local))
            points.append((here.share, public.epsilon))
        found.append(Amplification(part, tuple(points)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Heatmap:
    """R and r of one estimator. shares [C], epsilons [E]; improvements (R), over_worse (r) [E, C].

    NaN where one group is empty.    [H, Figures 2b, 8a and 8b]
    """

    estimator: str
    sigma: float
    shares: Floats
    epsilons: Floats
    improvements: Floats
    over_worse: Floats


def heatmaps(case: Case, estimators: Sequence[HybridEstimator]) -> list[Heatmap]:
    """Return a heatmap of each estimator, with the users, deviations and gap of the case."""
    shares, epsilons = np.geomspace(*SHARES, _POINTS), np.geomspace(*EPSILONS, _POINTS)
    found = []
    for each in estimators:
        improvements, over_worse = np.full((2, _POINTS, _POINTS), np.nan)
        for row, epsilon in enumerate(epsilons.tolist()):
            for column, share in enumerate(shares.tolist()):
                here = replace(case, share=share, epsilon=epsilon)
                if here.has_both_groups:
                    improvements[row, column], over_worse[row, column] = ratios_of(each, here.setting)
        found.append(Heatmap(each.name, case.sigma, shares, epsilons, improvements, over_worse))
    return found
