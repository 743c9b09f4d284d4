"""Privacy against those who see only what is published: everybody's noise helps everybody. Gaussian only.    [H 8]

Two figures, for two kinds of adversary. Against the operator, a local user has its own noise and nothing else. Against
those who see the published blend, all noise in it counts, but for that of a coalition of local users who tell each
other theirs. With Laplace noise there is no gain at all, however many add theirs: the tail of a sum of Laplace noises
falls no faster than that of one [H App. D]. Releases have Laplace noise, so this is for planning: the ledger charges
the figure without amplification.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stream.errors import Refusal
from stream.hybrid.setting import Setting

_HALVINGS: Final = 40
_LEAST: Final = 1e-6  # of epsilons: what is below it is told as it


class BadCoalition(Refusal):
    """`max_coalition` is no number of local users. It has no default: whoever claims amplification has to choose it."""

    def __init__(self) -> None:
        super().__init__("max_coalition: is no number of local users; use 0 up to all of them")


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Noise for (epsilon, delta), to central users as a group and to each local user for itself.

    upper_bound   U, any unit
    """

    upper_bound: float
    epsilon: float
    delta: float

    def setting(self, central: int, local: int, variance: float) -> Setting:
        """Both groups alike. s_T is the deviation for a move by U / (c n), s_L that for one by U.

        By dp-accounting's exact calibration: the bound s = U sqrt(2 ln(1.25 / delta)) / eps of the paper is wider, and
        not proved above epsilon 1.
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
class Public:
    """What holds against those who see only the blend, for delta as before.

    epsilon       never above that of the noise itself
    sensitivity   the most that one user moves the blend, in the unit of U
    deviation     s': of the noise in the blend that no coalition knows
    """

    epsilon: float
    sensitivity: float
    deviation: float


def amplified(noise: GaussianNoise, setting: Setting, weight: float, max_coalition: int) -> Public:
    """The (epsilon', delta) of everybody outside the coalition, for a blend of this weight.    [H Thm 8.1, corrected]

    setting         as of `noise`
    max_coalition   |A|: local users that may tell each other, and everybody, their own noise
    Raises BadCoalition.

    s'^2 = w^2 s_T^2 + ((1 - w) / ((1 - c) n))^2 (|L| - |A|) s_L^2. A central user moves the blend by w U / (c n), a
    local one by (1 - w) U / ((1 - c) n), so the sensitivity is (U / n) max(w / c, (1 - w) / (1 - c)). Erratum: the
    published case split takes the lesser of the two.
    Each user is also hidden by its own noise alone, as without amplification, so epsilon' is never above it.
    """
    local = float(setting.local)
    if not 0 <= max_coalition <= local:
        raise BadCoalition
    each = (1 - weight) / local
    variance = weight**2 * setting.central_noise + each**2 * (local - max_coalition) * setting.local_noise
    sensitivity = noise.upper_bound * max(weight / float(setting.central), each)
    deviation = math.sqrt(variance)
    if deviation == 0:
        return Public(noise.epsilon, sensitivity, 0.0)
    return Public(min(noise.epsilon, epsilon_of(deviation / sensitivity, noise.delta)), sensitivity, deviation)


@lru_cache(maxsize=64)  # of few policies
def deviation_for(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise for (epsilon, delta), for a move by 1.    [dp-accounting]

    Raises ValueError unless epsilon is above 0 and delta strictly between 0 and 1.
    """
    from dp_accounting.pld import common  # noqa: PLC0415 - takes two seconds, and no release amplifies
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # noqa: PLC0415 - as above

    if not (epsilon > 0 and 0 < delta < 1):
        raise ValueError("Gaussian noise is for an epsilon above 0 and a delta between 0 and 1")
    found = GaussianPrivacyLoss.from_privacy_guarantee(common.DifferentialPrivacyParameters(epsilon, delta))
    return float(found.standard_deviation)


def epsilon_of(deviation: float, delta: float) -> float:
    """The least epsilon, up to rounding upwards, for which this noise on a move by 1 is (epsilon, delta).

    By halving on dp-accounting's delta(epsilon), which falls as epsilon grows.
    """
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # noqa: PLC0415 - as above

    loss = GaussianPrivacyLoss(deviation)
    low = high = _LEAST
    while loss.get_delta_for_epsilon(high) > delta:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high
