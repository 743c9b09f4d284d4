"""The hybrid paper's lemmas: mean squared errors against the mean of all n users, and amplification.    [H 3, 4, 5, 8]

**Errors.** Values are drawn independently in each group; noise of any kind enters by its variance only. Both groups
have users. The tests compare these lemmas with each other, and with those in closed form.

**Amplification** against observers of releases only, by the noise of all users, which is Gaussian. There are two
epsilons, for two kinds of adversary. Against the operator, a local user is hidden by its own noise only. Against
observers of the published blend all noise in it counts, except that of a coalition of local users who share theirs.
Laplace noise gives no amplification for any number of users: the tail of a sum of Laplace noises falls no faster than
that of one [H App. D].

This is the paper's theorem, for continuous noise, used for planning. The claim of a release is proved for its discrete
noise and is slightly larger (stream/hybrid/_public.py). The ledger charges the epsilon without amplification.
"""

import math
from dataclasses import dataclass

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid._interface import HybridEstimator, Number, Setting
from hatcast.stream.mechanisms.gaussian import deviation_for, epsilon_for_delta


def tcm_only(setting: Setting) -> Number:
    """Return E_T: sampling error (central users represent all), noise, bias.    [H Lemma 3.2]"""
    share, users = setting.share, setting.users
    return (
        (1 - share) * (1 - share) / setting.central * setting.central_variance
        + (1 - share) / users * setting.local_variance
        + setting.central_noise
        + _squared((1 - share) * setting.gap)  # mu_T - mu
    )


def full_lm(setting: Setting) -> Number:
    """Return E_F: noise only, because all users are included.    [H Lemma 3.4]"""
    return setting.local_noise / setting.users


def lm_only(setting: Setting) -> Number:
    """Return E_L: sampling error (local users represent all), noise, bias.    [H Lemma 3.11]"""
    share, users = setting.share, setting.users
    return (
        share * share / setting.local * setting.local_variance
        + share / users * setting.central_variance
        + setting.local_noise / setting.local
        + _squared(share * setting.gap)  # mu_L - mu
    )


def hybrid(setting: Setting, weight: Number) -> Number:
    """Return E_H(w) of any blend w mu_T + (1 - w) mu_L.    [H Lemma 3.13]"""
    deviation = weight - setting.share
    return (
        _squared(deviation) * (setting.central_variance / setting.central + setting.local_variance / setting.local)
        + weight * weight * setting.central_noise
        + (1 - weight) * (1 - weight) * setting.local_noise / setting.local
        + _squared(deviation * setting.gap)  # w mu_T + (1 - w) mu_L - mu, as mu = c mu_T + (1 - c) mu_L
    )


def error_of(estimator: HybridEstimator, setting: Setting) -> Number:
    """Return the error of any estimator of the registry, with its own weight."""
    return full_lm(setting) if estimator.all_local else hybrid(setting, estimator.weight(setting))


def improvement(error: Number, setting: Setting) -> Number:
    """Return R: the error of the better baseline (TCM-only or full-LM) divided by this error.    [H Def 3.5]"""
    return min(tcm_only(setting), full_lm(setting)) / error


def improvement_over_the_worse(error: Number, setting: Setting) -> Number:
    """Return r: the error of the worse baseline divided by this error.    [H Def 5.1]"""
    return max(tcm_only(setting), full_lm(setting)) / error


def ratios_of(estimator: HybridEstimator, setting: Setting) -> tuple[float, float]:
    """Return R and r of an estimator, with its own weight."""
    error = error_of(estimator, setting)
    return float(improvement(error, setting)), float(improvement_over_the_worse(error, setting))


def laplace_setting(users: Number, share: Number, upper_bound: Number, epsilon: Number, variance: Number) -> Setting:
    """Return the setting of equally distributed groups with Laplace noise of one epsilon.    [H 2.1]

    share   c, strictly between 0 and 1; c n need not be an integer
    s_T^2 = 2 U^2 / (eps c n)^2, s_L^2 = 2 U^2 / eps^2.
    """
    central = share * users
    scale = upper_bound / epsilon
    return Setting(
        central=central,
        local=users - central,
        central_noise=2 * _squared(scale / central),
        local_noise=2 * _squared(scale),
        central_variance=variance,
        local_variance=variance,
    )


def _squared(number: Number) -> Number:
    return number * number


class BadCoalition(HatcastError):
    """`max_coalition` is out of range. It is without a default, because a claim of amplification depends on it."""

    def __init__(self) -> None:
        super().__init__("max_coalition: is out of range; use 0 up to the number of local users")


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Gaussian noise for (epsilon, delta): on the central users' mean, and on each local user's value."""

    upper_bound: float  # U, any unit
    epsilon: float
    delta: float

    def setting(self, central: int, local: int, variance: float) -> Setting:
        """Return the setting of two groups of equal variance. s_T is the deviation for U / (c n), s_L that for U.

        Deviations are dp-accounting's exact calibration. The paper's s = U sqrt(2 ln(1.25 / delta)) / eps is larger,
        and not proved above epsilon 1.
        """
        deviation = deviation_for(self.epsilon, self.delta) * self.upper_bound
        return Setting(
            central=float(central),
            local=float(local),
            central_noise=(deviation / central) ** 2,
            local_noise=deviation**2,
            central_variance=variance,
            local_variance=variance,
        )


@dataclass(frozen=True, slots=True)
class AmplifiedPrivacy:
    """Privacy against observers of the blend only, at the delta of the noise."""

    epsilon: float  # never above that of the noise itself
    sensitivity: float  # sensitivity of the blend to one user, in the unit of U
    deviation: float  # s', standard deviation of the noise in the blend that the coalition does not know


def amplified(noise: GaussianNoise, setting: Setting, weight: float, max_coalition: int) -> AmplifiedPrivacy:
    """Return the (epsilon', delta) of users outside the coalition, for a blend of this weight. [H Thm 8.1, corrected]

    setting         result of `noise.setting`
    max_coalition   |A|: number of local users that may share their own noise with anyone
    Raises BadCoalition.

    s'^2 = w^2 s_T^2 + ((1 - w) / ((1 - c) n))^2 (|L| - |A|) s_L^2. A central user moves the blend by w U / (c n), a
    local one by (1 - w) U / ((1 - c) n), so the sensitivity is (U / n) max(w / c, (1 - w) / (1 - c)). Erratum: the
    published case distinction takes the smaller of the two.
    Each user is also hidden by its own noise alone, so epsilon' is never above the epsilon without amplification.
    """
    local = float(setting.local)
    if not 0 <= max_coalition <= local:
        raise BadCoalition
    report_weight = (1 - weight) / local
    variance = weight**2 * setting.central_noise + report_weight**2 * (local - max_coalition) * setting.local_noise
    sensitivity = noise.upper_bound * max(weight / float(setting.central), report_weight)
    deviation = math.sqrt(variance)
    if deviation == 0:
        return AmplifiedPrivacy(noise.epsilon, sensitivity, 0.0)
    return AmplifiedPrivacy(
        min(noise.epsilon, epsilon_for_delta(deviation / sensitivity, noise.delta)), sensitivity, deviation
    )
