"""Privacy against those who see only what is published: everybody's noise helps everybody. Gaussian only.    [H 8]

Two figures, for two kinds of adversary. Against the operator, a local user has its own noise and nothing else. Against
those who see the published blend, all noise in it counts, but for that of a coalition of local users who tell each
other theirs. With Laplace noise there is no gain at all, however many add theirs: the tail of a sum of Laplace noises
falls no faster than that of one [H App. D].

This is the paper's theorem, for continuous noise and for planning. What a release claims is proved for the noise that
it has, and a little more (`_public.py`). The ledger charges the figure without amplification.
"""

import math
from dataclasses import dataclass

from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid.setting import Setting
from hatcast.stream.mechanisms.gaussian import deviation_for, epsilon_for_delta


class BadCoalition(HatcastError):
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
class AmplifiedPrivacy:
    """What holds against those who see only the blend, for delta as before.

    epsilon       never above that of the noise itself
    sensitivity   the most that one user moves the blend, in the unit of U
    deviation     s': of the noise in the blend that no coalition knows
    """

    epsilon: float
    sensitivity: float
    deviation: float


def amplified(noise: GaussianNoise, setting: Setting, weight: float, max_coalition: int) -> AmplifiedPrivacy:
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
        return AmplifiedPrivacy(noise.epsilon, sensitivity, 0.0)
    return AmplifiedPrivacy(
        min(noise.epsilon, epsilon_for_delta(deviation / sensitivity, noise.delta)), sensitivity, deviation
    )
