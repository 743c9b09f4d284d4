"""The estimate of a hybrid estimator: a blend of two private means.    [H Def 3.12]

See docs/specification/estimators.md, section 6.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from hatcast.stream.estimators import BadUsers, Users
from hatcast.stream.estimators._exact import total, weighted_sum
from hatcast.stream.estimators.grouping import Counts, Integers
from hatcast.stream.hybrid._estimate import GroupEstimates, HybridEstimate
from hatcast.stream.hybrid._interface import HybridEstimator, HybridParameters, check
from hatcast.stream.hybrid._interval import gaussian_half_width, half_width, variance
from hatcast.stream.hybrid._public import Groups, public_epsilon
from hatcast.stream.hybrid.device import report, report_bound
from hatcast.stream.mechanisms import Noise, Noisy, gaussian
from hatcast.stream.mechanisms.grid import clip
from hatcast.stream.policy.policy import NoiseKind

_NOTHING = Noisy(0, 0.0)
_NO_REPORTS: Integers = np.empty(0, np.int64)


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
    variance_of = gaussian.variance if is_gaussian else variance
    share = float(weight)
    top = parameters.grid.floor(parameters.upper_bound_milli)
    return HybridEstimate(
        raw=raw,
        top=top,
        interval95=(clip(raw - half, top), clip(raw + half, top)),
        weight=weight,
        kind=parameters.kind,
        central_scale=noisy.scale,
        local_scale=local_scale,
        variance=share**2 * variance_of(noisy.scale) + (1 - share) ** 2 * variance_of(local_scale) / max(local, 1),
        public_epsilon=public_epsilon(parameters, groups),
        delta=parameters.delta or 0.0,
    )


def _blend(central: int, summed: int, groups: Groups) -> Fraction:
    local = Fraction(summed, groups.local) if groups.local else Fraction(0)
    return groups.weight * central + (1 - groups.weight) * local


def _gaussian_blend(central: int, summed: int, groups: Groups) -> Fraction:
    """Return the blend, up to half a step: the central mean becomes a whole number of reports (`public_epsilon`)."""
    if not groups.local:
        return Fraction(central)
    return (round(groups.reports_in_one * central) + summed) * (1 - groups.weight) / groups.local
