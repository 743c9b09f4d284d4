"""The release of a hybrid estimator: two private means into one number.    [H Def 3.12; estimators.md, section 6]"""

from fractions import Fraction

import numpy as np

from hatcast.stream.estimators import BadUsers, Users
from hatcast.stream.estimators._exact import total, weighted_sum
from hatcast.stream.estimators.grouping import Counts, Integers
from hatcast.stream.hybrid._interface import HybridEstimate, HybridEstimator, HybridParameters, check
from hatcast.stream.hybrid._interval import gaussian_half_width, half_width, variance
from hatcast.stream.hybrid._public import Groups, public_epsilon
from hatcast.stream.hybrid.device import report, report_bound
from hatcast.stream.mechanisms import Noise, Noisy, gaussian
from hatcast.stream.mechanisms.grid import clip
from hatcast.stream.policy.policy import NoiseKind

_NOTHING = Noisy(0, 0.0)


def estimate(
    estimator: HybridEstimator, central: Users, reports: Integers, parameters: HybridParameters, noise: Noise
) -> HybridEstimate | None:
    """What may be published: w x (mean of central users' means + noise) + (1 - w) x (mean of reports), on the grid.

    central   users that trust the operator, as the fold has them. Private
    reports   int64 [(1 - c) n]: what local devices sent and `accepts` took, steps; each with its own noise
    None: suppressed: nobody is there of whom the estimator takes anything, which is public. Nothing was drawn.
    Raises BadUsers; SettingError where `check` would.

    Privacy (replace: counts, and who is central and who local, are public and equal for neighbours):
    - One central user's mean elsewhere in [0, U] moves the mean of c n of them, an exact fraction, by at most
      U / (c n); on the grid by d = floor(U / (c n grid)) + 1 steps at most. Noise is made for d at `epsilon`, once. A
      central user is in no other part.
    - Each report has its own user's noise, at `local_epsilon`, before it gets here (see `report`).
    - w is a function of counts and constants. So what is published is computed from numbers that are private already.
    The price of a central user is `charge`; with Gaussian noise `delta` comes with every epsilon. With `full_lm` each
    central user's own mean gets the noise of `report` instead, at `local_epsilon`.
    """
    check(estimator, parameters)
    _check(reports, parameters)
    means = central.checked(parameters.upper_bound_milli)
    devices = len(reports)
    if estimator.all_local:
        reports = np.concatenate((reports, _reports_of(means, parameters, noise)))
        means = Users(means.counts[:0], means.sums[:0])
    weight = _weight(estimator, len(means.counts), len(reports), parameters)
    if (weight > 0 and not len(means.counts)) or (weight < 1 and not len(reports)):
        return None
    noisy = _central_mean(means, parameters, noise) if weight else _NOTHING
    summed, local = (total(reports), len(reports)) if weight < 1 else (0, 0)
    return _published(noisy, summed, Groups(weight, len(means.counts), local, devices), parameters)


def _weight(estimator: HybridEstimator, central: int, local: int, parameters: HybridParameters) -> Fraction:
    """w for these counts. A group without users weighs nothing, unless the estimator would have no other."""
    if estimator.fixed_weight is not None:
        return estimator.fixed_weight
    if central and local:
        return Fraction(estimator.weight(parameters.setting(central, local)))
    return Fraction(1 if central else 0)


def user_mean(users: Users) -> Fraction:
    """(1/L) sum_l mu_l, milli-units, exactly: of one user or more."""
    alone: Counts = np.ones(len(users.counts), np.int64)
    return weighted_sum(users.counts, users.sums, (alone, alone)) / len(users.counts)


def _central_mean(users: Users, parameters: HybridParameters, noise: Noise) -> Noisy:
    grid = parameters.grid
    distance = grid.distance(parameters.sensitivity(len(users.counts)))
    return parameters.noisy(noise, grid.nearest(user_mean(users)), distance, parameters.epsilon)


def _reports_of(users: Users, parameters: HybridParameters, noise: Noise) -> Integers:
    """[L] as if the users' devices had sent them."""
    pairs = zip(users.sums.tolist(), users.counts.tolist(), strict=True)
    return np.array([report(Fraction(each, count), parameters, noise) for each, count in pairs], np.int64)


def _check(reports: Integers, parameters: HybridParameters) -> None:
    """What `accepts` promises. Raises BadUsers."""
    if reports.ndim != 1 or reports.dtype != np.int64:
        raise BadUsers("reports are an int64 array")
    most = report_bound(parameters)
    if bool(np.any((reports > most) | (reports < -most))):
        raise BadUsers("a report is further away than any that is accepted")


def _published(noisy: Noisy, summed: int, groups: Groups, parameters: HybridParameters) -> HybridEstimate:
    """Of a noisy central mean, and of the sum of the reports; steps."""
    is_gaussian, weight, local = parameters.kind is NoiseKind.GAUSSIAN, groups.weight, groups.local
    raw = round(_gaussian_blend(noisy.value, summed, groups) if is_gaussian else _blend(noisy.value, summed, groups))
    local_scale = parameters.local_scale if local else 0.0
    spread = (gaussian_half_width if is_gaussian else half_width)(noisy.scale, local_scale, local, weight)
    variance_of = gaussian.variance if is_gaussian else variance
    share = float(weight)
    top = parameters.grid.floor(parameters.upper_bound_milli)
    return HybridEstimate(
        raw=raw,
        top=top,
        interval95=(clip(raw - spread, top), clip(raw + spread, top)),
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
    """The same to half a step: the central mean's part is a whole number of single reports, see `public_epsilon`."""
    if not groups.local:
        return Fraction(central)
    return (round(groups.reports_in_one * central) + summed) * (1 - groups.weight) / groups.local
