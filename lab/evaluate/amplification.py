"""Privacy amplification against observers of releases only, by the noise of all users. Gaussian noise only.    [H 8]

There are two epsilons, for two kinds of adversary. Against the operator, a local user is hidden by its own noise only.
Against observers of the published blend all noise in it counts, except that of a coalition of local users who share
theirs. Laplace noise gives no amplification for any number of users: the tail of a sum of Laplace noises falls no
faster than that of one [H App. D].

This is the paper's theorem, for continuous noise, used for planning. The claim of a release is proved for its discrete
noise and is slightly larger (`_public.py`). The ledger charges the epsilon without amplification.
"""

import math
from dataclasses import dataclass

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid.setting import Setting
from hatcast.stream.mechanisms.gaussian import deviation_for, epsilon_for_delta


class BadCoalition(HatcastError):
    """`max_coalition` is out of range. It is without a default, because a claim of amplification depends on it."""

    def __init__(self) -> None:
        super().__init__("max_coalition: is out of range; use 0 up to the number of local users")


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Gaussian noise for (epsilon, delta): on the central users' mean, and on each local user's value.

    upper_bound   U, any unit
    """

    upper_bound: float
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
    """Privacy against observers of the blend only, at the delta of the noise.

    epsilon       never above that of the noise itself
    sensitivity   sensitivity of the blend to one user, in the unit of U
    deviation     s', standard deviation of the noise in the blend that the coalition does not know
    """

    epsilon: float
    sensitivity: float
    deviation: float


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
