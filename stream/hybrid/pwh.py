"""PWH, the privacy-weighted hybrid: the blend with the smallest noise. Needs no knowledge about values.    [H 5]"""

from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


def weight(local: Number, central_noise: Number, local_noise: Number) -> Number:
    """Return the weight w = s_L^2 / (s_L^2 + (1 - c) n s_T^2) of the central mean; the local mean has 1 - w.

    [H Def 5.3]

    local           (1 - c) n, number of users in the local mean: 0 or more
    central_noise   s_T^2, variance of the noise on the central mean
    local_noise     s_L^2, variance of the noise on each report; at least one of the two is above 0
    Fractions give a fraction. w minimises w^2 s_T^2 + (1 - w)^2 s_L^2 / ((1 - c) n): the weights are inverse to the
    noise variances.
    """
    return local_noise / (local_noise + local * central_noise)


class PrivacyWeighted:
    """w = s_L^2 / (s_L^2 + (1 - c) n s_T^2).    [H Def 5.3]

    Never worse than the worse of `tcm_only` and `full_lm`. With Laplace noise of one epsilon it is better than
    `tcm_only`, and better than both if and only if c n > 1 and (c n - 1) ((1 - c) eps^2 sigma^2 / U^2 - 2 c) < 2.
    """

    name: Final = "pwh"
    needs: Final = Needs.NOTHING
    fixed_weight: Final = None
    all_local: Final = False

    def weight(self, setting: Setting) -> Number:
        """See HybridEstimator."""
        return weight(setting.local, setting.central_noise, setting.local_noise)


ESTIMATOR: Final = PrivacyWeighted()
