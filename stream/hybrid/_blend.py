"""The estimate of a hybrid estimator: a blend of two private means.    [H Def 3.12]

See docs/specification/estimators.md, section 6.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from hatcast.stream.estimators import BadUsers, Users
from hatcast.stream.estimators.grouping import Counts, Integers, total, weighted_sum
from hatcast.stream.hybrid._interface import HybridEstimator, HybridParameters, check
from hatcast.stream.hybrid._public import Groups, public_epsilon
from hatcast.stream.hybrid.reports import report, report_bound
from hatcast.stream.mechanisms import Noise, Noisy, gaussian
from hatcast.stream.mechanisms.grid import clip, quantile95
from hatcast.stream.policy.policy import NoiseKind

TARGET: Final = "user_mean"
"""Target of all hybrid estimators, in each release: the unweighted mean of users' means, (1/n) sum mu_l"""

_WEIGHT_DIGITS: Final = 6
_PERIOD: Final = 40.0  # standard deviations
_TERMS: Final = 2**12
_LEVEL: Final = 0.95 + 2e-6
_MAX_WIDTH: Final = 5.0  # standard deviations; beyond 4.48 any distribution has less than 5 % (Chebyshev)
_BISECTIONS: Final = 30
_FREQUENCIES: Final = np.asarray(np.arange(1, _TERMS + 1) * (2 * math.pi / _PERIOD), np.float64)
_NOTHING = Noisy(0, 0.0)
_NO_REPORTS: Integers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HybridEstimate:
    """Publishable estimate of a HAT, in grid steps; `Grid.text` formats it in km/h. Its target is TARGET."""

    raw: int  # blend of two noisy means, on the grid
    top: int  # largest step that is not above U
    # within [0, top]; contains the blend before noise with probability 0.95 or more, for any data. It covers the noise
    # only, not sampling or differences between the groups
    interval95: tuple[int, int]
    weight: Fraction  # w, weight of the central mean
    kind: NoiseKind  # kind of both noises; the scale of Gaussian noise is its standard deviation
    central_scale: float  # scale of the noise on the central mean, steps; 0 if none was drawn
    local_scale: float  # scale of the noise on each local report, steps; 0 without reports
    # epsilon of any user against observers of releases only: at most the epsilon of its own noise
    public_epsilon: float
    groups: "GroupEstimates | None" = None  # each group's own estimate; None if no group's own mean is published

    @property
    def mean(self) -> int:
        """`raw` clipped to [0, U]."""
        return clip(self.raw, self.top)

    @property
    def weight_text(self) -> str:
        """The weight as text with up to six digits: "0.731059", "1.0"."""
        whole, rest = divmod(round(self.weight * 10**_WEIGHT_DIGITS), 10**_WEIGHT_DIGITS)
        return f"{whole}.{f'{rest:0{_WEIGHT_DIGITS}}'.rstrip('0') or '0'}"


@dataclass(frozen=True, slots=True)
class GroupEstimates:
    """Estimates of the mean of each group's users: those that `tcm_only` and `lm_only` return for the same noise.

    With `full_lm` the central users' estimate is that of reports too. None: the group has no users.
    """

    central: HybridEstimate | None
    local: HybridEstimate | None

    @property
    def public_epsilon(self) -> float:
        """Epsilon of any user against observers of releases only: the larger one of the two groups."""
        return max(each.public_epsilon for each in (self.central, self.local) if each is not None)


@lru_cache(maxsize=1024)  # the same settings recur every hour
def half_width(central: float, local: float, reports: int, weight: Fraction) -> int:
    """Return h such that the blend is within h steps of the blend before noise with probability 0.95 or more.

    central   scale of the discrete Laplace noise on the central mean, steps
    local     scale of the discrete Laplace noise on each report, steps
    reports   number of reports; 0 if the weight is 1
    weight    w, weight of the central mean
    A single noise has `quantile95`, around its value on the grid.

    Proof for sums. A geometric variable is an exponential one rounded down, so discrete Laplace noise of scale b (the
    difference of two geometric variables) is less than 1 from continuous Laplace noise of scale b. In the blend, a
    convex combination, this adds up to less than 1 step, rounding of values to the grid to at most 1/2, and rounding of
    the blend to at most 1/2. So h is the 95 % quantile of the continuous sum W plus 2 steps.

    W, in units of its standard deviation: its characteristic function is f(t) = 1 / ((1 + a^2 t^2) (1 + b^2 t^2)^k).
    Repeated with period L = 40, W has the density (1 + 2 sum_j f(t_j) cos(t_j x)) / L, t_j = 2 pi j / L; integrated
    from -q to q this gives P(|W| <= q), up to
    - the repetitions: at most P(|W| > 35). E exp(W) is at most 2, because a^2 + k b^2 = 1/2; so at most 4 exp(-35);
    - the omitted terms: f(t) <= 2 / t^2, so at most (4 L^2 / (2 pi)^3) / J^2 < 1.6e-6 with J = 2^12 terms;
    - floating point, far less.
    The quantile is computed for 0.95 + 2e-6.
    """
    if not reports:
        return quantile95(central)
    if not weight and reports == 1:
        return quantile95(local)
    central_scale, report_scale = float(weight * Fraction(central)), float((1 - weight) * Fraction(local) / reports)
    deviation = math.sqrt(2 * (central_scale**2 + reports * report_scale**2))
    if deviation == 0:
        return 2
    low, high = 0.0, _MAX_WIDTH
    squares = _FREQUENCIES**2
    terms = np.exp(
        -np.log1p((central_scale / deviation) ** 2 * squares)
        - reports * np.log1p((report_scale / deviation) ** 2 * squares)
    )
    terms /= _FREQUENCIES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        within = (2 * middle + 4 * float(terms @ np.sin(_FREQUENCIES * middle))) / _PERIOD
        low, high = (low, middle) if within >= _LEVEL else (middle, high)
    return math.ceil(high * deviation + 2)


def gaussian_half_width(central: float, local: float, reports: int, weight: Fraction) -> int:
    """Return `half_width` for discrete Gaussian noise. A single noise has `gaussian.quantile95`, around its value.

    Proof for sums. Each noise is at most 2 from continuous Gaussian noise (see the lemma in `mechanisms.gaussian`), so
    the blend of the discrete noises is at most 2 from that of the continuous ones, which is Gaussian. Rounding moves
    values to the grid by at most 1/2, the central mean in the blend by 1/2 and the blend by 1/2. So h is the 95 %
    quantile plus 3.5 steps.
    """
    if not reports:
        return gaussian.quantile95(central)
    if not weight and reports == 1:
        return gaussian.quantile95(local)
    share = float(weight)
    deviation = math.hypot(share * central, (1 - share) * local / math.sqrt(reports))
    return math.ceil(gaussian.QUANTILE95 * deviation + 3.5)


def estimate(
    estimator: HybridEstimator, central: Users, reports: Integers, parameters: HybridParameters, noise: Noise
) -> HybridEstimate | None:
    """Return w x (mean of central users' means + noise) + (1 - w) x (mean of reports), on the grid.

    central   users that trust the operator, as folded; private
    reports   int64 [(1 - c) n], steps: accepted reports of local devices, each with its own noise
    None if suppressed: the groups that the estimator reads have no users, which is public; no noise was drawn.
    Raises BadUsers; SettingError as `check` does.

    Privacy (replace: counts, and which users are central, are public and equal for neighbours):
    - Another mean in [0, U] of one central user moves the mean of c n of them, an exact fraction, by at most U / (c n),
      on the grid by at most d = floor(U / (c n grid)) + 1 steps. Noise for d is drawn once, at `epsilon`. A central
      user is in no other term.
    - Each report contains its user's own noise, at `local_epsilon`, before it is received (see `report`).
    - w is a function of counts and constants. So the result is computed from numbers that are private already.
    A central user pays `charge`; with Gaussian noise, each epsilon holds at `delta`. With `full_lm` each central user's
    own mean gets the noise of `report` instead, at `local_epsilon`.
    - The groups' own estimates are functions of the same numbers, so they cost nothing more. But they reveal the noisy
      central mean itself, which the other group's noise then no longer hides: see `_of_central`.
    """
    check(estimator, parameters)
    _check_reports(reports, parameters)
    means = central.checked(parameters.upper_bound_milli)
    sent, simulated = reports, _NO_REPORTS
    if estimator.all_local:
        simulated = _simulated_reports(means, parameters, noise)
        reports = np.concatenate((sent, simulated))
        means = Users(means.counts[:0], means.sums[:0])
    weight = _weight(estimator, len(means.counts), len(reports), parameters)
    if (weight > 0 and not len(means.counts)) or (weight < 1 and not len(reports)):
        return None
    noisy = _central_mean(means, parameters, noise) if weight else _NOTHING
    summed, local = (total(reports), len(reports)) if weight < 1 else (0, 0)
    blend = _published(noisy, summed, Groups(weight, len(means.counts), local, len(sent)), parameters)
    group_sizes = (len(central.counts), len(sent))
    if not _are_separate(group_sizes, parameters):
        return blend
    of_central = _of_reports(simulated, 0, parameters) if estimator.all_local else _of_central(noisy, means, parameters)
    groups = GroupEstimates(of_central, _of_reports(sent, len(sent), parameters))
    return replace(blend, public_epsilon=groups.public_epsilon, groups=groups)


def _weight(estimator: HybridEstimator, central: int, local: int, parameters: HybridParameters) -> Fraction:
    """Return the weight w of the central mean: the fixed one, else 0 or 1 if one group is empty."""
    if estimator.fixed_weight is not None:
        return estimator.fixed_weight
    if central and local:
        return Fraction(estimator.weight(parameters.setting(central, local)))
    return Fraction(1 if central else 0)


def user_mean(users: Users) -> Fraction:
    """Return (1/L) sum_l mu_l, exact, in milli-units. Needs at least one user."""
    ones: Counts = np.ones(len(users.counts), np.int64)
    return weighted_sum(users.counts, users.sums, (ones, ones)) / len(users.counts)


def _central_mean(users: Users, parameters: HybridParameters, noise: Noise) -> Noisy:
    grid = parameters.grid
    distance = grid.distance(parameters.sensitivity(len(users.counts)))
    return parameters.noisy(noise, grid.nearest(user_mean(users)), distance, parameters.epsilon)


def _simulated_reports(users: Users, parameters: HybridParameters, noise: Noise) -> Integers:
    """Return the reports [L] that the users' devices would send."""
    pairs = zip(users.sums.tolist(), users.counts.tolist(), strict=True)
    return np.array([report(Fraction(total, count), parameters, noise) for total, count in pairs], np.int64)


def _check_reports(reports: Integers, parameters: HybridParameters) -> None:
    """Raise BadUsers for reports that `accepts` rejects."""
    if reports.ndim != 1 or reports.dtype != np.int64:
        raise BadUsers("reports must be a one-dimensional int64 array")
    bound = report_bound(parameters)
    if bool(np.any((reports > bound) | (reports < -bound))):
        raise BadUsers("a report is outside of the accepted range")


def _are_separate(sizes: tuple[int, int], parameters: HybridParameters) -> bool:
    """Return whether each group that has users has enough of them for a mean of its own.

    If one has too few, the other's mean is not published either: the blend less that mean is the mean of the few.
    """
    least = parameters.group_min_users
    return least is not None and all(size >= least for size in sizes if size)


def _of_central(noisy: Noisy, users: Users, parameters: HybridParameters) -> HybridEstimate | None:
    """Return the estimate of the central users' mean alone; None without any.

    Its `public_epsilon` is `epsilon`: nothing hides a central user from an observer but the noise on this mean.
    """
    central = len(users.counts)
    return _published(noisy, 0, Groups(Fraction(1), central, 0, 0), parameters) if central else None


def _of_reports(reports: Integers, devices: int, parameters: HybridParameters) -> HybridEstimate | None:
    """Return the estimate of the mean of the users of some reports, of which devices sent `devices`; None without any.

    Its `public_epsilon` counts the noise of these reports only: no other noise is in their sum.
    """
    local = len(reports)
    return _published(_NOTHING, total(reports), Groups(Fraction(0), 0, local, devices), parameters) if local else None


def _published(noisy: Noisy, summed: int, groups: Groups, parameters: HybridParameters) -> HybridEstimate:
    """Return the estimate from a noisy central mean and the sum of the reports, both in steps."""
    is_gaussian, weight, local = parameters.kind is NoiseKind.GAUSSIAN, groups.weight, groups.local
    raw = round(_gaussian_blend(noisy.value, summed, groups) if is_gaussian else _blend(noisy.value, summed, groups))
    local_scale = parameters.local_scale if local else 0.0
    half = (gaussian_half_width if is_gaussian else half_width)(noisy.scale, local_scale, local, weight)
    top = parameters.grid.floor(parameters.upper_bound_milli)
    return HybridEstimate(
        raw=raw,
        top=top,
        interval95=(clip(raw - half, top), clip(raw + half, top)),
        weight=weight,
        kind=parameters.kind,
        central_scale=noisy.scale,
        local_scale=local_scale,
        public_epsilon=public_epsilon(parameters, groups),
    )


def _blend(central: int, summed: int, groups: Groups) -> Fraction:
    local = Fraction(summed, groups.local) if groups.local else Fraction(0)
    return groups.weight * central + (1 - groups.weight) * local


def _gaussian_blend(central: int, summed: int, groups: Groups) -> Fraction:
    """Return the blend, up to half a step: the central mean becomes a whole number of reports (`public_epsilon`)."""
    if not groups.local:
        return Fraction(central)
    return (round(groups.reports_in_one * central) + summed) * (1 - groups.weight) / groups.local
